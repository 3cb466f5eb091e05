"""Floor 6: operating a cluster. Imports client.

admin         the Admin, the way to all others
brokers       brokers and clusters
clusterdocuments  clusters and brokers as JSON documents
documents     values as JSON documents, for --json and for web pages
groups        consumer groups
health        a verdict on a cluster
members       connected clients and what they report
namesrvs      NameServer settings and key-value tables
orderconf     queue counts of ordered topics
progress      lag in messages and in time
raft          Raft groups: who leads, who is behind, and changes of either
resets        offsets reset
servers       several servers asked at once
sync          the blocking Admin
topics        topics on all their brokers
wording       texts of servers parsed into values
"""
