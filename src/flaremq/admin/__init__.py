"""Floor 6: operating a cluster. Imports client.

admin         the Admin, the way to all others
brokers       brokers and clusters
deadletters   what groups gave up: found, sent again, put away
documents     values as JSON documents, for --json and for web pages
groups        consumer groups
health        a verdict on a cluster
members       connected clients and what they report
messages      single messages, found, tracked and redelivered
namesrvs      NameServer settings and key-value tables
orderconf     queue counts of ordered topics
progress      lag in messages and in time
resend        copies of dead letters, sent again
resets        offsets reset
scans         messages read without a group
servers       several servers asked at once
sync          the blocking Admin
topics        topics on all their brokers
traces        the journey of a message, from trace records
transactions  those that have not ended: listed, and decided if they are parked
waiting       messages that wait to be delivered
wording       texts of servers parsed into values
"""
