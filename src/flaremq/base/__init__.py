"""Floor 1: what every process needs. Standard library only; every other package may import it.

backoff         attempts repeated with growing pauses, until a deadline
clock           wall-clock and monotonic time behind one seam
descriptors     the limit on open files, and the share reserved for the store
errors          every exception that FlareMQ raises, in one tree
files           small files written whole or not at all
lifecycle       threads, tasks and event loops with an owner and an end
live            settings that may change under their readers
localpath       paths on this machine, told apart from addresses of remote storage
logs            log output, as text or JSON
memory          freed memory returned to the system
metrics         counters, gauges and histograms in Prometheus's text format
options         every option name that RocketMQ knows
propertiesfile  Java's .properties format
settings        text into frozen dataclasses, and back
settingsfile    settings changed at run time, kept across restarts
sources         settings from a file, the environment and flags, in that order
text            sizes, spans, counts and times as text
units           sizes, spans of time, cores
watermark       a number that only grows, and those waiting for it
"""
