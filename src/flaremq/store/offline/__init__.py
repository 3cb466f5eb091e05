"""A store folder read without its broker, or while it runs. Never writes.

documents   facts and findings as JSON documents
export      messages one by one, by queue or as they are in the log
folder      files, ranges, queues and owner of a folder
moment      a consistent view of a store that is being written to
queuefiles  queue entries read one by one
report      the findings of a verification
scan        records of the log, piece by piece
verify      every record, entry and index file checked
"""
