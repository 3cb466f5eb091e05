"""Floor 6: RocketMQ topics and store files in Spark. Imports client and arrow.

    appcds         an archive of Spark's classes, ready to be mapped: it halves the start of a session
    batch          reading a batch: offsets are found out once, when Spark plans the first action on a frame
    beside         two jobs of Spark at a time, where one alone would leave processors idle
    cache          a folder for what is dear to make and cheap to make again: a Java's front door, class
                   archives, logs
    claim          whose an archive is: what lies in a folder, which query fills it, and who does so now
    commits        how far a group is, told to brokers: as well as can be, and never at the cost of a query
    course         the course of a stream: which queues it reads, how far they go, and how much the next batch
                   takes
    deltaformat    an archive as a Delta table: tasks write files, one commit of its log makes those of a
                   batch part of it
    errors         Spark's exceptions in one line
    fetch          fetching: raw records of ranges of queues, many pulls under way at a time, given in order
    files          the format "rocketmq-store": the files of a store as a table, without its broker
    given          options as Spark hands them over: names in any case, values as text. Read once, and nothing
                   is guessed
    heads          what brokers know of queues: which there are, where they begin and end, where a time or a
                   group is
    icebergformat  an archive as an Iceberg table, in a catalog that is a SQLite file inside the archive
    ids            message ids that come out the same when a batch is written again, so that a repeat can be
                   recognised
    java           finding a Java that Spark runs on
    launch         starting Spark's JVM without a word on the terminal, and ending it
    links          links to a cluster: one client with one loop thread for each NameServer, kept as long as
                   the process
    manifest       the commit log of an archive: which files are part of it, version by version
    offsets        offsets of a stream: their one form, and what is decided about them. Nothing here asks
                   anybody
    options        options as Spark passes them
    partitions     ranges of queues, packed into tasks: large ones are split, small ones share a task
    parts          where rows of an archive lie: a folder for each hour of each topic, named the way Hive does
    peeks          single looks into queues: how large messages are, where a time is to the message, whether
                   there is more
    pieces         pieces: ranges cut into what one pull can bring, and what an answer means for one of them.
                   No I/O
    places         places: where reading begins or ends, as somebody said it, before any broker was asked
    plan           what a session is to be like, and what that means in Spark's own words
    progress       progress of streams, told to brokers at the end of each batch, so that tools show how far
                   Spark is
    queues         queues as texts: `topic@broker:queueId`, the way they stand in offsets, options and
                   messages
    reading        what batches and streams have in common: tasks, and how the rows of one are read
    resolve        from places to offsets: where a query begins and ends, found out by asking brokers once
    rows           columns and types: what Spark calls them, and what of them is wanted
    sending        what one task of Spark sends: rows come by batches, and none is left without its receipt at
                   the end
    session        opening Spark the way our commands and pipelines want it: found, quiet, quick to start,
                   gone when it ends
    ship           what executors on other machines need of us: our Python as a zip, or a whole environment
    shown          what others see of a plain archive: its files under names that every reader of Parquet
                   understands
    sink           where a stream becomes part of an archive: tasks write files, the driver commits those of a
                   batch at once
    source         format("rocketmq")
    staging        rows become Parquet files: one for each hour of each topic, sorted by queue, on the disk
                   when it ends
    stream         reading a stream: offsets for Spark's batches, and a wait where there is nothing new
    tableformats   what an archive needs of a table format, and the one that is only files and our commit log
    tables         archives as tables: opened in whichever format they are, and read as of one moment
    watch          waiting for more: a pull that its broker holds for each queue, until there is something new
                   in any
    writer         writing: each task sends its rows and returns when all of them are stored
    writing        the options of writing, and the columns that it takes: checked in the driver, before
                   anything is sent
"""
