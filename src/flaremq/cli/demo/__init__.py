"""flaremq demo.

demo       the command
orders     a shop, its consumers, and what they counted
plots      rates over time
raftscene  a Raft group that loses its leader
spark      the Spark half
specials   a reminder, a payment in a transaction, and a dead letter
"""
