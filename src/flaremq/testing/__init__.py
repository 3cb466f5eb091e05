"""Floor 9: test kits for users, and fakes for our own suite. Nothing else in src imports it.

    asserts         expectations about messages
    builders        small valid things to test with
    clock           clocks that tests move
    cluster         servers as processes, killed and restarted
    disk            disks that fail on demand: full ones, ones whose sync says no, and one whose power is cut
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
    wireclient      a client that is no more than the wire: one call for each request that tests need, answers
                    as values
"""
