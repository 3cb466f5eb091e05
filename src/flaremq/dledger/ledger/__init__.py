"""The log of a member of a Raft group: DLedger's files, beneath a message store.

ballots       what a member must never forget, on the disk
checkpoint    how far a ledger is safe, on the disk
damage        what of it is known to be damaged, and not repaired yet
entries       heads of entries, written and examined, many a call (twin)
entryindex    where each entry lies, and its term
entrylog      the entries of a log, as they are found
raftlog       the log of a store, as a member writes it
records       what the group itself says in its log
soundness     what of a ledger is whole, after a stop or a crash
storeledger   the ledger as a node knows it
"""
