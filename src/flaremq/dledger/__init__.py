"""DLedger: stores whose log is kept by a group, in the formats of the DLedger library.

carry         what a store has besides its log, carried over into a converted one
convert       a store into one of the other kind, and the proof that nothing is missing
frames        what members say to each other, as bytes
groupnode     the rules of a member at work: timers, the log and the ballot around them
ledgerfiles   the files of a ledger, written
ledgerlog     a log of entries, as store.api.Log
links         the connections between the members of a group
logwriter     a log written anew, file by file
member        the rules of one member of a Raft group
node          a member of a group that follows our own rules
note          how far a conversion is, on the disk
proof         every record has its copy, and every copy its queue entry
rebuild       queues and index of a store that has a log only
relocate      copies of records in another log, many a call (twin)
settings      the options of a group
types         what members of a group say to each other, and what their rules ask of the node
"""
