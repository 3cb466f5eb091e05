"""What admin methods return.

brokers   brokers, clusters and NameServers
groups    consumer groups
health    findings about a cluster
messages  single messages
outcome   results of asking several servers, with failures
topics    topics
trace     the journey of a message
"""
