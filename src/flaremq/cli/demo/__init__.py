"""flaremq demo.

demo      the command
orders    a shop and its three consumers
plots     rates over time
spark     the Spark half
specials  a reminder, a payment in a transaction, and a dead letter
"""
