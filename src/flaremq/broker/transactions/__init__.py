"""Transactional messages: prepared, then committed, rolled back or asked about.

ends          ends of transactions as rows of drafts (twin)
halves        prepared messages on their way in
lane          ordinary ends of transactions, all of a turn at once
ledger        which of them are open, and how far both queues are done with
requests      the end of a transaction, and parked ones brought back
transactions  the work: commit, roll back, check, park
"""
