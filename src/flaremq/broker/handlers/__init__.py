"""Every other request. A handler class offers `table()`: request code to coroutine.

    admin_broker  the broker itself
    admin_group   settings of consumer groups
    admin_topic   topics
    consumer      requests of administrators to consumers: go back, say where you are and how you do, consume
                  this one
    group         requests about who is connected: heartbeats, good-byes, and who asks for whom
    offset        offsets and queue locks
    progress      lag of groups
    pull          pulls: what a consumer may read, read and answered as it lies in the log; or parked until
                  there is more
    query         messages by key, id and time
    send          sends: all ordinary ones of a turn in a few calls, the others where they stand among them
    send_plain    sends, one by one: whatever is not the ordinary send, and what every send means, in readable
                  steps
    sendback      messages that a consumer could not process
"""
