"""flaremq demo.

demo    the command
orders  a shop and its three readers
plots   rates over time
spark   the Spark half
"""
