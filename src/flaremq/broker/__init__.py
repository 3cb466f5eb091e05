"""Floor 6: the broker. Imports remoting, store and filter. Only `servers` imports `app`.

    allowance      whether a pull may be served, and which messages it wants: asked once for many pulls of one
                   kind
    app            the composition root
    aside          work that would hold up the event loop, in a few threads of its own
    attributes     attributes of topics and groups, which are changed by saying what is to be added and what
                   removed
    broadcast      how far broadcasting consumers are, for as long as they are there
    calls          what the broker asks of clients, over the connections that they opened themselves
    configuration  settings of a running broker, shown and changed
    deleted        topics that were deleted while the log still holds their messages, kept in
                   deletedTopics.json
    desk           all requests but sends and pulls: which handler serves each, in families with limits of
                   their own
    filters        what consumers want, compiled: from the text of a pull, or from the heartbeats of its group
    groups         which consumers are connected, group by group, and what each group wants
    guard          keeps slow consumers from dragging the broker down: who is too far behind may not read any
                   more
    locks          which consumer of a group has a queue for itself: orderly consumers lock before they pull
    longpoll       pulls that found nothing and wait: woken in the turn in which a message arrives for them
    metrics        the broker's figures as Prometheus reads them, under the names and labels of RocketMQ 5
    namesrvs       the NameServers it belongs to
    offsets        how far each group is with each queue, kept in consumerOffset.json
    overload       sends refused early, fairly by topic
    paging         a large table, page by page: how slaves and tools read topics and groups
    persist        tables that outlive the broker: one JSON file each, with the one before it as .bak
    producers      which producers are connected: for transactions, for replies, and for administrators
    pulling        one pull, as the broker sees it: who asks for what, from where on, and whether it may wait
    put            from append to answer: what a put must wait for, and who is told when it need wait no
                   longer
    rates          how fast the broker as a whole takes and gives messages: rates of the last seconds, how
                   long puts took, and what a day brought
    refused        the requests that this broker does not serve, each with the reason that the asking peer is
                   told
    registration   registration with every NameServer
    runtime        the table of GET_BROKER_RUNTIME_INFO: what a broker is doing, as tools and exporters read
                   it
    sending        ordinary sends on their way through a turn, and what is known of the topics that they go to
    settings       the broker's options
    state          what a broker knows besides its messages: topics, groups, offsets, filters, who is
                   connected
    stats          statistics by topic and by group, under RocketMQ's names and keys: what
                   VIEW_BROKER_STATS_DATA shows
    steps          how a broker comes up, one line for each step with the time that it took
    subscriptions  settings of consumer groups, kept in subscriptionGroup.json, and which topics a group may
                   not read
    tasks          periodic work
    topics         the topics of this broker, kept in topics.json
"""
