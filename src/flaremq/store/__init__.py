"""Floor 4: the message store. Imports model; knows no network.

    api                protocols and values shared with callers
    batchconsumequeue  the queue of a topic whose messages are stored as inner batches: one entry for many
                       messages
    checkpoint         the checkpoint: up to which store times the log, the queues and the index are safe on
                       disk
    commitlog          every message of every topic, in arrival order
    consumequeue       one queue of a topic: twenty bytes per message that say where its record lies
    consumequeue_ext   what does not fit in a queue entry: store time and filter bits of a message, in a file
                       beside the queue
    disk               the one door to the disk. Every other room asks here, so that tests can put a faulty
                       disk behind it
    dispatch           queue and index entries made from the log
    entries            queue entries: made from records by the batch, and followed back to records by the
                       batch
    figures            what a store looks like from outside: how far its parts are behind, how full its disks
                       are, how old it is
    filequeue          a run of equal-sized files that together are one long sequence of bytes
    find               lookup by key, id and time
    flags              whether the store accepts reads and writes, and if not, why
    flush              threads that make written bytes durable
    index              the folder index/: which records have a key, over all files, newest last
    indexfile          one index file: which records have a key. Pure: it works on any buffer that is a whole
                       file
    lock               who may open a store folder, and whether the last one left it in order
    mappedfile         one file of a queue of files: where it begins, how far it is written, how far it is
                       safe
    moment             what can be believed of a store that a broker is writing to: one moment of its log,
                       queues and index
    preallocate        the next log files, made ready before they are needed: created, reserved, mapped,
                       warmed, locked
    put                from messages to rows of drafts: the plain lane, for one message and for batches
    queue_offsets      the next logical offset of every queue: what an append gives to the message it stores
    queues             all queues of all topics: found, made when first needed, recovered, flushed and cut
                       together
    reader             messages of a queue from an offset
    recovery           what a crash left, made whole
    retention          deletion by age and disk space
    scan               a read-only walk of a store folder: no lock, no writing, nothing deleted, safe beside a
                       live broker
    settings           the store's options
    space              log lines about a full disk
    store              the message store itself
    timesearch         which unit of a queue was stored at a given time. Pure: the caller reads, here it is
                       only decided
    transient          the pool of write buffers: appends go to locked memory first, and to the file when
                       committed
    workers            the store's threads, and their order of starting and stopping
"""
