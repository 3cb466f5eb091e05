"""The simulator of Raft groups: the rules of their members, on clocks, disks and a network that fail.

group     members, their network and their clients in virtual time
ledger    the log and the ballot of a member on a simulated disk
machine   one member: what its node does for its rules
nemesis   carries out the faults of a plan, and heals them
plan      what a run does, as data drawn from a seed
promises  what must hold at every moment
readings  what readers are told must fit what was written
runner    one run: faults, healing, and what must hold
"""
