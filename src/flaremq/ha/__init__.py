"""Floor 5: high availability. A slave follows the log of its master, byte for byte.

acks      how far enough slaves have the log: the mark that SYNC_MASTER waits for
fit       whether two logs fit, asked before anything is copied
master    the HA port of a master, and the slaves on it
settings  the options of replication
slave     follows a master
states    what masters and slaves say of themselves
wire      the stream as bytes
"""
