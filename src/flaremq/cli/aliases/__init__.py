"""mqadmin's command names and flags.

brokers   brokers, clusters and NameServers
groups    groups and offsets
messages  messages
options   mqadmin's options
topics    topics
"""
