"""Commands about topics, groups and clusters.

cluster   flaremq cluster
config    flaremq cluster config, namesrv and kv
group     flaremq group
ha        flaremq cluster ha
health    flaremq cluster health
offsets   offsets printed, and parsed for resets
ordering  flaremq topic allocate and order
raft      flaremq cluster group
rates     flaremq topic rates and producers
running   flaremq group running
topic     flaremq topic
"""
