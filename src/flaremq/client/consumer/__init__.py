"""Consuming.

assignment    the queues a consumer holds
base          the base of all consumers
bulkpull      many pulls in flight on one connection
concurrent    delivery without order
delivery      fetched messages to handlers, and their outcomes
iterate       async for
litepull      LitePullConsumer and PullConsumer
locks         queue locks of orderly consumers
member        a member of a consumer group
offsets       offsets kept by brokers or in a local file
orderly       delivery in order
outcome       what a handler may return or raise
processqueue  messages fetched and not yet consumed
pull          one fetching coroutine per queue
push          PushConsumer
rebalance     a member's share of the queues
runninginfo   a consumer's state for operators, and consumption on demand
sendback      failed messages returned to their broker
stats         consumption rates
workers       handler calls in tasks or threads
"""
