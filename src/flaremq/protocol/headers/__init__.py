"""Custom headers, one dataclass for each request or response that has one.

broker       a broker's own statistics, settings and replication
group        groups, and requests from brokers to their clients
namesrv      NameServers: registration, routes, key-value settings
pop          pop consumption
pull         pulls, offsets and single messages
replicas     between a slave and its master, FlareMQ's own
send         sends, replies and messages sent back
topic        topics and their queues
transaction  the end of a transaction, and the broker's check
"""
