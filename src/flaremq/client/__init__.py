"""Floor 5: producers and consumers. Imports remoting; knows no store.

api       one coroutine for each request
blocking  the async core behind blocking methods
client    connections, routes and heartbeats shared by producers and consumers
errors    server responses as exceptions
forks     sockets closed in forked children
hooks     your code around each send and each handler call
inbox     messages handled once, in your own database
incoming  requests that brokers make of clients
members   the producers and consumers of a client
message   receipts and received messages
namesrvs  the NameServers, one in use at a time
otel      spans for OpenTelemetry
routes    topic routes, cached and refreshed
settings  the options of clients
sync      the blocking clients: same names, no await
trace     what happens to messages, recorded in the trace topic
"""
