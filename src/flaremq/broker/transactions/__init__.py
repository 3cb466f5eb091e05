"""Transactional messages: prepared, then committed, rolled back or asked about.

halves        prepared messages on their way in
ledger        which of them are open, and how far both queues are done with
requests      the end of a transaction, and parked ones brought back
transactions  the work: commit, roll back, check, park
"""
