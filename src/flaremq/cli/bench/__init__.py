"""flaremq bench.

bench      the command
consume    the consuming side
histogram  a histogram of latencies
load       the sending side
"""
