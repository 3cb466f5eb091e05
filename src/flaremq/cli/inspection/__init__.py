"""flaremq store: a store folder, read without its broker.

    commands  `flaremq store`: look into a store folder. Read-only, also beside a running broker
    export    messages of a store folder, one after the other: by queue, or as they lie in the log
    facts     what lies in a store folder: files, ranges, queues, index, checkpoint, and who holds it. Read-
              only
    queues    queue entries of a store folder, read one by one where they lie, without trusting any of them
    report    what a verification found, and how it is worded
    verify    whether a store is what it says: every record of the log, every queue entry, every index file
"""
