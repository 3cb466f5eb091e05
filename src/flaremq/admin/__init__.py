"""Floor 6: operating a cluster. Imports client.

    admin          the Admin, from which the others are reached
    brokers        brokers and clusters
    brokervalues   values about brokers, clusters and NameServers
    connections    clients that are connected, as many brokers tell of them
    groups         consumer groups
    groupvalues    values about groups of consumers
    health         a cluster judged by a few limits
    healthvalues   values about the health of a cluster
    messages       single messages, found, tracked and redelivered
    messagevalues  values about single messages
    namesrvs       NameServer settings and key-value tables
    orderconf      queue counts of ordered topics
    outcome        what came of asking many servers: what they said, and which of them failed, and why
    progress       lag in messages and in time
    resend         dead letters redelivered
    resets         offsets reset
    rosters        who is in a group just now, and what its members say when brokers ask them
    scans          messages read without a group
    servers        several servers asked at once
    sync           the blocking face
    topics         topics on all their brokers
    topicvalues    values about topics
    tracks         what became of a message in a group: told by offsets, as nobody keeps a list of consumed
                   messages
    wording        server texts into values
"""
