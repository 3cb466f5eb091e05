"""Floor 5: the NameServer. Imports remoting.

app       the composition root
handlers  requests, one function each
kvconfig  key-value settings in kvConfig.json
routes    the route table; pure
settings  the NameServer's options
"""
