"""Floor 5: producers and consumers. Imports remoting; knows no store.

    api        one coroutine for each request
    balance    which queue a message goes to: in turn, by a key, or as the program says; away from brokers in
               trouble
    forks      what a forked child must let go of
    frames     requests to send, many at once: what all messages to a queue have in common is written once
    identity   who a client is: its address as servers see it, its id, and the ids of its messages
    incoming   requests that brokers make of clients
    instance   a client: connections, routes and heartbeats that producers and consumers share
    lanes      messages that go together: lanes with one request under way in each at a time
    members    the producers and consumers of a client
    message    receipts and received messages
    namesrvs   the NameServers, one in use at a time
    outgoing   a message on its way out: checked, named, perhaps compressed, and made into a request
    patience   waiting for those who are away: sends that would rather be late than fail
    pipeline   many messages under way at a time: frames are made and written in runs, receipts come as they
               come
    placement  where a message goes: the queue for each attempt to send it, and the address of that queue's
               broker
    portal     how blocking programs use the async core: one thread with one event loop, and calls into it
    producer   sending messages, from an event loop
    pulls      many pulls under way on one connection: frames from a template, answers to one who takes them
               all
    refusals   what a server's "no" means: an error of ours with its code, its words and what to do next
    routes     topic routes, cached and refreshed
    settings   the options of clients
    single     one send and its answer, without a Command for either: what most programs do most of the time
    sync       the blocking face: same names, no await
"""
