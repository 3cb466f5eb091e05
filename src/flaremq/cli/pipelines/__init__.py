"""flaremq pipeline. Spark is imported only when a command runs.

archive   archive, compact and replay
commands  the command group
progress  a running stream on one line
recipe    run and plan
spark     a Spark session for one command
stats     stats
store     rebuild and audit
"""
