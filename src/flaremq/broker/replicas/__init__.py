"""Copies of this broker: its slaves, or its master.

calls          what is asked of the master
copyback       how far a slave has come for a returning master
duty           whether this broker delivers for its group
escape         what an acting master delivers, sent to other brokers
exchange       what members ask each other before they start
logside        how the log reaches others, or comes from them: the seam of replication and raftside
masteroffsets  which of the master's consumer offsets replace ours
mastership     which of two masters of one name serves: the epoch of a store
members        the group of this broker, as NameServers know it
metasync       topics, groups, offsets and progress, copied from the master
preonline      the start of a member, after an exchange with the others
raftside       the log of a member of a Raft group
refusals       requests that a slave leaves to its master
replication    the HA port of a master, the follower of a slave, and their requests
rivals         another master of our name: one of the two must not serve
seat           what a member needs to act for a missing master, put together
sheet          figures of masters and slaves for /metrics
tablereader    what a Raft group's leader has changed in its tables, read from the log
tablewriter    what this leader changes in its tables, written to the log
"""
