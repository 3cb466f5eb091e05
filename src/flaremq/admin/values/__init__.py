"""What admin methods return.

brokers       brokers, clusters and NameServers
deadletters   messages that groups gave up
groups        consumer groups
health        findings about a cluster
messages      single messages
outcome       results of asking several servers, with failures
raft          the members of a Raft group
topics        topics
trace         the journey of a message
transactions  transactions that have not ended
"""
