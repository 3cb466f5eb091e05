"""flaremq demo.

demo    the command
orders  a shop and its three consumers
plots   rates over time
spark   the Spark half
"""
