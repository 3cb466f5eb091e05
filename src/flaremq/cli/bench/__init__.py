"""flaremq bench.

bench      the command
consume    the consuming side
histogram  latencies counted by size
load       the sending side
"""
