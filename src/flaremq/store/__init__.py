"""Floor 4: the message store. Imports model; knows no network.

api        protocols and values shared with callers
commitlog  every message of every topic, in arrival order
copyrows   copies of stored records, many in one append (twin)
dispatch   queue and index entries made from the log
drafts     single messages and batches into rows of drafts
filelog    reading a log that lies in files, whatever is around its records
find       lookup by key, id and time
flags      whether the store accepts reads and writes, and if not, why
flush      threads that make written bytes durable
follow     a store whose log follows another
holes      what lies behind a hole in the log of a slave
reader     messages of a queue from an offset
recovery   what a crash left, made whole
retention  deletion by age and disk space
settings   the store's options
space      log lines about a full disk
status     lag, disk usage and age, for metrics and admin tools
store      the message store itself
wholerecords  where the last whole record ends of a log that grows by pieces
workers    the store's threads, and their order of starting and stopping
"""
