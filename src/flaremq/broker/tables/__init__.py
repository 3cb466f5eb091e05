"""Everything that a broker knows apart from its messages.

attributes          changes to the attributes of topics and groups
broadcast           offsets of broadcasting consumers
configfile          tables kept as JSON files
consumers           connected consumers by group
delayoffsets        delayOffset.json
deletedtopics       topics deleted while the log still holds their messages
filters             compiled subscriptions
offsets             consumerOffset.json
producers           connected producers by group
queuelocks          queues locked by orderly consumers
requestmodes        messageRequestMode.json
subscriptiongroups  subscriptionGroup.json
tables              all of them
timercounts         timermetrics
topics              topics.json
"""
