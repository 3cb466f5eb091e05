"""Floor 9: test kits for users, and fakes for our own suite. Nothing else in src imports it.

asserts         expectations about messages
clock           clocks that tests move
cluster         servers as processes, killed and restarted
embedded        servers inside the test process
facts           tables of facts made by hand, for tests of rooms that read what a walk has noted
faults          kills, cut connections, damaged files
indexbench      an index in a folder with a clock that stands still, for tests of it
local           servers for one test
patience        time limits that allow for a busy machine
plugin          pytest fixtures
retentionbench  a log to be kept short, on a disk as full as a test wants it, for tests of retention
twins           both twins of a room
wire            TCP proxies that can be cut
"""
