"""A member among those of Apache's DLedger library (0.3.x): it speaks their protocol and follows their rules.

election   votes, heartbeats, and leadership that is taken over
following  what a follower does with what its leader pushes
links      connections to the others, and theirs to us
messages   what members say to each other, as JSON
node       such a member at work
pushing    what a leader pushes to the others, and what they have
rules      the rules of one member
state      what all rules share, what happens to a member, and what it asks its node to do
"""
