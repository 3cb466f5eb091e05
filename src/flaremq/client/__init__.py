"""Floor 5: producers and consumers. Imports remoting; knows no store.

    api       one coroutine for each request
    blocking  the async core behind blocking methods
    client    connections, routes and heartbeats shared by producers and consumers
    errors    server responses as exceptions
    forks     what a forked child must let go of
    frames    requests to send, many at once: what all messages to a queue have in common is written once
    identity  who a client is: its address as servers see it, its id, and the ids of its messages
    incoming  requests that brokers make of clients
    members   the producers and consumers of a client
    message   receipts and received messages
    namesrvs  the NameServers, one in use at a time
    routes    topic routes, cached and refreshed
    settings  the options of clients
    single    one send and its answer, without a Command for either: what most programs do most of the time
    sync      the blocking face: same names, no await
"""
