"""Floor 6: the broker. Imports remoting, store and filter. Only `servers` imports `app`.

app            the composition root
clientcalls    requests that a broker makes of its clients
composition    all its parts, and the small features that belong to no other room
config         all sections of its configuration
configuration  settings of a running broker, shown and changed
deliveries     whether and where it delivers what has waited
doors          the ports it listens on
features       the parts it is made of: requests, periodic work, start and stop
link           registration with one NameServer
namesrvs       the NameServers it registers with
offload        work moved off the event loop
overload       sends refused early, fairly by topic
registration   registration with every NameServer
role           whether it is a slave, and of which master
routing        handlers and their families
settings       the broker's options
slowconsumers  groups too far behind, cut off
storage        the store, opened and closed
tasks          periodic work
"""
