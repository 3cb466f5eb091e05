"""Cold files of a member, read again from its disk and repaired from another member.

coldledger   entries and their index as they lie on the disk
ledgerscrub  the thread that reads, the task that repairs, and what is told of both
patch        entries of another member, judged and written in the place of damaged ones
place        how far a scrub is, kept in a small file
repairs      asks other members for what is damaged here, and gives them what is damaged there
scrubber     walks the ledger once in a period
"""
