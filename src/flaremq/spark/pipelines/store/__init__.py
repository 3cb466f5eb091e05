"""Pipelines over store folders.

audit         log, queues and index against each other
auditarchive  a store against an archive
auditindex    keys against index entries
auditlogs     two logs against each other
auditqueues   records against queue entries
derive        queue and index entries derived from a log
indexfiles    index files written by tasks
queuefiles    queue files written by tasks
rebuild       queues and index rebuilt from a log
"""
