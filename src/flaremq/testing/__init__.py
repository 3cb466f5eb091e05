"""Floor 9: test kits for users, and fakes for our own suite. Nothing else in src imports it.

asserts   assertions about messages
clock     clocks that tests move
cluster   servers as processes, killed and restarted
embedded  servers inside the test process
faults    kills, cut connections, damaged files
local     servers for one test
patience  time limits that allow for a busy machine
plugin    pytest fixtures
twins     both twins of a module
wire      TCP proxies that can be cut
"""
