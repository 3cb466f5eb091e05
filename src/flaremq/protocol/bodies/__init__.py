"""JSON bodies, one dataclass for each.

cluster  brokers, topics, key-value tables, replication status
group    heartbeats, subscriptions, locks and offsets
pop      pop, and assignment by the broker
raft     the state of a Raft group's member
route    routes and broker registration
running  the state and connections of running clients
stats    progress, rates and queue entries
timer    how many timer messages wait
"""
