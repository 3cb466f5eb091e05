"""The inlet: how bytes get from the sockets into the buffer of the next turn.

The problem
-----------
A turn serves one buffer that holds the bytes of all connections, each connection's in one piece. To save
the copying, the event loop reads sockets straight into it: it calls `get_buffer` to ask where to read to,
reads, and calls `buffer_updated` with the number of bytes. Four things get in the way:

- A read may end in the middle of a frame.
- A frame may be too large for a buffer that all connections share.
- The buffer may be full, or a connection may be read again after others have been, so that its new bytes
  cannot lie right behind its old ones. The turn must then be served first.
- Serving a turn may pause and close connections. That must not happen between the two calls: libuv would
  call a function that is no longer there, and the process would crash.

How it works
------------
`Reads` is the shared buffer (4 MiB), with the connections that have delivered and where the bytes of each
end. An `Inlet` belongs to one connection, and `get_buffer` returns one of three places:

- The shared buffer, at most 256 KiB of it. If the last turn left an incomplete frame (`rest`), it is
  copied there first, and the loop reads right behind it.
- The buffer of a large frame (`large`). The turn sets one up instead of a rest when more than 256 KiB of an
  incomplete frame have arrived or are missing. It grows as bytes arrive, and takes none beyond the end of
  the frame. A complete one is served alone, before the shared buffer.
- The spare buffer (64 KiB), if the shared one has less than 64 KiB free behind the rest, or if others have
  delivered in this turn since this connection did. `buffer_updated` then serves the turn, which empties
  the shared buffer, and copies the bytes there (or to the large frame that this turn has just set up). As
  that is done before the next read, one spare buffer is enough.

The inlet of an accepted connection is `shut` until its first bytes show what it speaks, and stays so under
TLS. Its reads go to the spare buffer too, then to `Connection.entered`, which delivers the plain bytes.
The loop does not ask where to read to for a paused connection: new bytes stay in the kernel, and a rest or
a large frame stays in the inlet. Bytes that it delivered before are served all the same.

An example
----------
A and B send frames of 300 bytes. The last turn left 100 bytes of A's next frame in its inlet.

    500 from A    shared, 100..600    behind its rest, which is copied to 0..100; schedules the turn
    300 from B    shared, 600..900
    250 from A    spare               B came since: serves A 0..600 (2 frames) and B 600..900 (1 frame),
                                      then copies the 250 bytes to 0..250
    the turn                          A 0..250 is no complete frame: it is A's rest

C sends a frame of 1,000,000 bytes. Its first 262,144 are read to the shared buffer. 737,856 are missing,
so the turn moves the frame to a buffer of 524,288 bytes, which grows to 1,000,000 when it is full.

Takes the compiled twin if it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.remoting._inlet_py import Inlet, Reads
else:
    try:
        from flaremq.remoting._inlet_c import Inlet, Reads
    except ImportError:
        from flaremq.remoting._inlet_py import Inlet, Reads

__all__ = ["Inlet", "Reads"]
