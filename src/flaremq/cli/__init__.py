"""Floor 8: the flaremq command.

about      flaremq version
commands   the table of commands
connect    a command's connection to its cluster
main       the entry point
names      shell completion of topic and group names
options    options shared by commands
profile    flaremq profile
profiles   named clusters, and the one in use
render     tables for people, JSON for programs
sightings  brokers seen earlier, to notice when one is missing
store      flaremq store
times      times as people write them
tls        TLS flags and profiles
words      help texts reworded for people
"""
