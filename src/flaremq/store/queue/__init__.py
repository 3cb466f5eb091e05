"""Consume queues. `entries` and `timesearch` are pure and may be imported by Spark's pipelines.

batchconsumequeue  the queue of a topic that stores inner batches
consumequeue       20 bytes for each message: where its record is
entries            entries made and followed by the batch (twin)
extension          store time and filter bits that do not fit into queue entries
nextoffsets        the next offset of each queue
queues             all queues of all topics
timesearch         binary search by store time
"""
