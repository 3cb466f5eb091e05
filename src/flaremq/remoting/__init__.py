"""Floor 4: sockets. Imports protocol.

caller      outgoing calls: connections made, kept and renewed
connection  one socket: bytes in, answers out, back-pressure both ways
gate        what may refuse a request, asked before any work is done
handshake   a connection's first bytes: PROXY header, TLS or a frame
http        a small HTTP server for metrics and health
inlet       the shared read buffer of a port (twin)
large       frames too large for that buffer
network     the one door to the network: listening and connecting
pending     calls waiting for their answers
ports       free ports, and the ports of a broker
router      request codes to handlers, in families with limits
server      a listening port
settings    Netty's options, as far as they apply
tls         TLS options and contexts
turn        all frames that arrived in one turn of the event loop
"""
