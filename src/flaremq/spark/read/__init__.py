"""Reading topics.

batch         batch reads
bounds        startingOffsets and endingOffsets
fetch         raw records of queue ranges
groupcommit   a group's offsets reported to brokers
offsetreader  what brokers know of queues
offsets       a stream's offsets, and decisions about them
options       read options
partitions    queue ranges packed into tasks
planner       the next micro-batch, and the wait for it
progress      a stream's progress reported to brokers
pullranges    ranges of one pull each
resolve       bounds into offsets
stream        streaming reads
task          the rows of one task
"""
