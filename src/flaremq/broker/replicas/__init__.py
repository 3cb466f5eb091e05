"""Copies of this broker: its slaves, or its master.

acting         what a member needs to act for a missing master, put together
calls          what is asked of the master
copyback       how far a slave has come for a returning master
duty           whether this broker delivers for its group
escape         what an acting master delivers, sent to other brokers
exchange       what members ask each other before they start
masteroffsets  which of the master's consumer offsets replace ours
mastership     which of two masters of one name serves: the epoch of a store
members        the group of this broker, as NameServers know it
metasync       topics, groups, offsets and progress, copied from the master
preonline      the start of a member, after an exchange with the others
refusals       requests that a slave leaves to its master
replication    the HA port of a master, the follower of a slave, and their requests
rivals         another master of our name: one of the two must not serve
sheet          figures of masters and slaves for /metrics
"""
