"""The rules of a Raft group: no clock, no I/O and no chance of their own.

election     polls and votes: this member's own, and those that others ask for
following    what a follower does with what its leader pushes
handover     a leader gives its place to another member
membership   who belongs to the group: its checksum, and which changes may be made
replication  what a leader knows of the other members, and pushes to them
state        what all rules of a member share
vouching     how a member that has forgotten something becomes a voter again
"""
