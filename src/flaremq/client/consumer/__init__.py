"""Consuming.

    base          what all consumers share
    concurrent    delivery without order
    deliver       delivery: what is fetched goes to handlers, and what they say becomes done, later or dead
    directly      a message that an operator makes a consumer consume, to see what comes of it
    figures       how fast a consumer is, by topic: what an operator sees who asks it
    holdings      the queues that are ours: taken, fetched, moved and given away
    inbox         messages for programs that ask for them one by one: `async for`
    lite          consuming messages by asking for them, from an event loop
    locks         queue locks of orderly consumers
    member        a member of a consumer group
    offsets       offsets kept by brokers or in a local file
    orderly       delivery in order
    outcome       what a handler may return or raise
    processqueue  messages fetched and not yet consumed
    pull          one fetching coroutine per queue
    push          PushConsumer
    rebalance     a member's share of the queues
    running       what an operator sees who asks a running consumer
    sendback      failed messages returned to their broker
    troubles      troubles that many queues have at once are one trouble: told when it begins and when it is
                  over
    workers       handlers called in tasks or threads
"""
