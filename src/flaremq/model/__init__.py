"""Floor 2: messages, topics and the record format. Imports base.

allocate     strategies that divide queues among the members of a group
batch        several messages in one body (twin)
columns      int64 tables in which modules exchange many messages at once
compression  zlib, LZ4 and zstd bodies
delays       delay levels and their spans
encode       drafts into record bytes (twin)
host         addresses as records and message ids hold them
jsonfields   typed members of a JSON object
layout       byte maps of everything on disk
message      messages and queues as values
msgid        RocketMQ's two message ids
names        valid, reserved and derived names of topics and groups
properties   message properties as text and as bytes
queuekey     a queue written as topic@broker:queueId
record       record bytes into rows and values (twin)
retrypolicy  how long a failed message waits for its next attempt
sysflag      bits of a record's sysFlag
tags         Java's String.hashCode (twin)
timers       moments of timer messages, and the handles that cancel them
topic        topic and group settings as values and as JSON
"""
