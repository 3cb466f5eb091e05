"""The seeded simulator: NameServers, brokers and clients with their real code, in one thread, from one seed.

checks          what must hold of a history
disk            disks that forget what was not synced, and end their node in the middle of an operation
events          what happened: a running hash, and the last thousand events
groupchecks     what must hold of Raft groups, at every moment and in the end
groupregisters  answers of leaders, told against each other as registers
history         what clients asked for and saw
loop            one event loop for all nodes, with virtual time
memberfaults    what befalls members of groups alone: changes, lost disks, disks that hang
nemesis         carries out the faults of a plan, and heals them
offsetfiles     whether a file of committed offsets is ahead of its log
offsetwatch     the committed offsets of groups, and what a failover makes of them
plan            what a run does, as data drawn from a seed
queueends       watches where queues end: nobody may say an older end than another has said
registers       whether one order explains what clients saw of a register
runner          one run: faults, healing, and all checks
shrink          a failing plan made smaller, and written as a test
wires           connections in memory
workers         workers without threads
workload        what clients do in a run
world           machines, servers and clients of a simulation
"""
