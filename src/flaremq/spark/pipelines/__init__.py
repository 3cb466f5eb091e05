"""Ready pipelines. They do not know each other.

    archive       topics into an archive
    audit         proves what a store holds: records, queues and index against each other, and against another
                  store
    auditarchive  whether an archive holds what a store holds: message by message, each once, with the same
                  contents
    auditindex    whether the index leads to every record that it should: keys of the log against entries of
                  index files
    auditlogs     whether two stores have the same log: a slave and its master, a copy and its origin. Byte by
                  byte
    auditqueues   whether each entry of a queue points at its record, and each record has its entry
    compact       small archive files into large ones
    derive        what a log says of its queues and of its index: derived piece by piece, by the code of the
                  broker itself
    indexfiles    index files from a log, each by a task of its own that knows where its file begins
    queuefiles    queue files from runs of entries: each is put together by one task, once and whole
    rebuild       consumeQueue and IndexFile made anew from a CommitLog, by Spark, byte for byte as the broker
                  makes them
    recipe        a user's own pipeline: sources, steps and sinks in a YAML file, read and checked before
                  Spark is started
    recipechecks  what the formats themselves can tell of a recipe before Spark is started: options, and what
                  they can do
    recipeshown   what a recipe would do, told to people without starting Spark, and without telling secrets
    replay        archived messages sent again
    run           doing what a recipe says: views are made, tables written, and streams run until they end or
                  are stopped
    runprogress   how far a stream is: what Spark reports of a batch, in the few numbers that one wants to see
    sqlnames      which views a query names, as far as its words tell: Spark alone can truly read it, and is
                  not up yet
    stats         numbers about messages: how many, how large and how late, by topic, queue, tag, producer and
                  hour
    statsoffsets  how far consumer groups are: asked from brokers, or read from the file that a broker keeps
                  by its store
    statsplots    statistics as pictures: when messages came, how large and how late, which keys and tags, and
                  what waits
    statsshown    statistics for people: a few tables for the terminal, each with what matters most
    statstables   the tables of statistics: made of what Spark has counted, in Arrow, and written as Parquet
                  files
    views         the views of a recipe: sources as frames, and steps made of them, each error with its place
                  in the file
    yamltree      a YAML file with the line of everything in it, so that an error can say where it is
"""
