"""Floor 8: the flaremq command.

    about      flaremq version
    bench      `flaremq bench`: how fast a RocketMQ cluster is, ours or Apache's
    cluster    `flaremq cluster`
    compose    from texts to servers: what `namesrv`, `broker`, `up` and servers inside tests have in common
    connect    a command's connection to its cluster
    demo       `flaremq demo`: a real cluster at work on this machine, one of its brokers killed, and nothing
               lost
    documents  a message as a JSON document and as a line, the same wherever a command shows one
    group      `flaremq group`
    health     `flaremq cluster health`
    histogram  times, counted by size: any number of them in little memory, each known to one part in a
               hundred
    load       load for `flaremq bench`: messages as fast as a window allows, or by a plan, and what came of
               them
    main       the entry point
    message    `flaremq message`
    names      shell completion of topic and group names
    offsets    offsets of groups: how they are shown, and how people say where to reset them to
    options    options shared by commands
    ordering   which queues are whose: `flaremq topic allocate` and `flaremq topic order`
    orders     orders for the demo: a shop that sells, three programs that read what it sold, and who counts
               it all
    plots      pictures: what the demo counted, over time
    processes  servers as processes of their own, started by another program: the demo, and tests
    profile    flaremq profile
    profiles   named clusters, and the one in use
    received   consumers for `flaremq bench`: they count, and look at how old a message is
    render     tables for people, JSON for programs
    running    `flaremq group running`: what members of a group say about themselves
    send       `flaremq send`: messages from the command line, from a file, or from the lines of stdin
    serve      servers in the foreground: settings from file, environment and flags; SIGTERM, SIGINT and
               SIGHUP drain
    settings   settings of brokers and NameServers: `flaremq cluster config`, `namesrv` and `kv`
    sightings  brokers seen earlier, to notice when one is missing
    table      the commands. Help and completion read this table alone, so that neither loads a command
    tail       `flaremq tail`: the messages of a topic as they arrive
    times      times as people write them
    tls        TLS flags and profiles
    topic      `flaremq topic`
    traffic    traffic of topics, and who sends: `flaremq topic rates` and `flaremq topic producers`
    up         `flaremq up`: a NameServer and a broker in one process, for a laptop
    words      help texts reworded for people
"""
