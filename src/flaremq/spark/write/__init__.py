"""Writing to topics.

ids      message ids that a repeated batch repeats
options  write options
sender   what one task sends
writer   Spark's writers
"""
