"""The turn: everything that all connections delivered in one turn of the event loop, served together.

    socket > connection > [turn] > lanes: many requests per call
                                 > plain: one Command, one coroutine

The problem
-----------
Serving one small message takes some hundred steps of Python: split a frame, read its header, look up the
topic, append, build the answer, write it. Done per message, in a coroutine per message, that is the speed
limit of a Python broker. But nearly all of these steps cost the same for two hundred messages as for one,
if each step is done once for all of them. A turn of one message takes 37 to 39 us of CPU; every further
message 2 to 3 us (docs/performance.md).

So the unit of work is not the message but the turn. The event loop reads all ready sockets before it runs
anything that was scheduled meanwhile. The first delivery schedules `run`; by the time it is called,
whatever the kernel had for any connection is in the turn's buffer.

How it works
------------
Sockets are read straight into one buffer, one connection behind the other (`inlet`), so nothing is
joined, and a body is copied once on its way to the log. Frames are split in one call into rows of numbers
(`Batch`). Each lane takes the ordinary requests of its codes in a few compiled calls, and marks the
others. A frame that no lane has taken becomes a `Command`: if its code is a lane's, it is handed to the lane
in its place between the others, so that the order of a connection is kept; all others go to the router.
All answers to a connection in one turn are written together.

An example
----------
A, B and C have sent something since the last turn:

    A   two sends to Orders, and the first half of a third
    B   a pull of Orders
    C   a heartbeat

    buffer   [ A: send, send, half ][ B: pull ][ C: heartbeat ]
    frames     0     1               2          3                  the half is no frame yet

    send lane    takes 0 and 1: topic looked up once, one append, one answer buffer for A
    pull lane    takes 2: reads what 0 and 1 have just stored, and answers
    plain        3 becomes a Command, and a coroutine of the router answers it
    rest         the half stays in A's inlet, and is put before what A delivers next

A connection that sends bytes that are not a frame is closed; the frames before them have been served. If
serving a turn fails (a bug of ours), its connections are closed, because it is not known what was answered;
all others go on.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import Final, Protocol

from flaremq.base.errors import FlareError, Malformed
from flaremq.base.units import MiB
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.burst import command_of, fault_of, split
from flaremq.protocol.bulk.columns import Chunk, Frame, Plain
from flaremq.protocol.codes import FRAME_SIZE_MAX, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.gate import Gate
from flaremq.remoting.inlet import Inlet, Reads
from flaremq.remoting.large import LARGE, Large

log = logging.getLogger(__name__)

BUFFER_SIZE: Final = 4 * MiB
"""Of one turn, unless its network says otherwise."""
_SLOW_S: Final = 0.05
_AT_ONCE_S: Final = 0.005
"""A turn that begins this soon after the last one follows it at once: the loop did not rest in between."""
_NO_AGE_MS: Final = 1 << 40
_FRAME_WIDTH: Final = Frame.WIDTH  # A global is faster than a class attribute.


class Source(Protocol):
    """A connection, as the turn sees it."""

    host: bytes
    """Address and port of the peer, encoded as in a record."""

    @property
    def inlet(self) -> Inlet | None:
        """Where its bytes come in."""

    @property
    def is_open(self) -> bool: ...
    def received(self, command: Command) -> None: ...
    def send_parts(self, parts: Sequence[Bytes]) -> None: ...
    def send_bytes(self, data: Bytes) -> None: ...
    def broken(self, error: Malformed) -> None: ...
    @property
    def is_full(self) -> bool:
        """Its write buffer is above the high-water mark: do no more work for it now."""

    def when_writable(self, work: Callable[[], None]) -> None: ...
    def waited_ms(self) -> int: ...
    def begun(self) -> None: ...
    def ended(self) -> None: ...


@dataclass(slots=True)
class Batch:
    """The frames of one turn, as rows of columns."""

    data: Bytes
    sources: Sequence[Source]
    chunks: array[int]
    frames: array[int]
    pairs: array[int]
    heads: bytearray
    """Begins with the hosts of all sources; parsers append to it."""
    waited_ms: Sequence[int] | None = None
    """How long the oldest bytes of each source waited in the kernel, if the loop was late."""
    gate: Gate | None = None
    """If set, lanes ask it which requests they may serve without a check of each."""


@dataclass(slots=True, frozen=True)
class PlainRow:
    """A frame that no lane has taken, and its place in the turn."""

    row: int
    chunk: int
    source: Source
    command: Command


class Lane(Protocol):
    """Serves the requests of some codes: ordinary ones in a few calls, the others in order between them."""

    @property
    def codes(self) -> frozenset[int]: ...
    @property
    def age_max_ms(self) -> int:
        """The age above which it refuses a request. Ages are measured only if one can be above it."""

    def parse(self, batch: Batch) -> int:
        """Take the ordinary frames and return their number; mark the others (Frame.PLAIN)."""

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        """Serve what was parsed, and these others in their places between them."""


def leave_all(
    batch: Batch, codes: frozenset[int], wanted: Callable[[int], bool] = lambda _chunk: True
) -> None:
    """Leave a lane's requests to the plain lane: all of them, or those of some chunks."""
    frames = batch.frames
    for f in range(0, len(frames), Frame.WIDTH):
        if (
            frames[f + Frame.CODE] in codes
            and not frames[f + Frame.PLAIN]
            and wanted(frames[f + Frame.CHUNK])
        ):
            frames[f + Frame.PLAIN] = Plain.FIELDS


class Turn:
    """The turns of one port, or of one caller."""

    def __init__(
        self,
        lanes: Sequence[Lane] = (),
        *,
        answers: Callable[[Batch], int] | None = None,
        gate: Gate | None = None,
        now_s: Callable[[], float] = perf_counter,
        buffer_size: int = BUFFER_SIZE,
    ) -> None:
        """`answers` takes answers in bulk and returns how many it took. `gate` is asked about every
        request, before any work is done for it."""
        self._lanes = lanes
        self._answers = answers
        self.gate = gate
        self._now_s = now_s
        self._late_s = min((lane.age_max_ms for lane in lanes), default=_NO_AGE_MS) / 1000
        self._loop = asyncio.get_running_loop()
        self._large = min(LARGE, buffer_size // 4)
        self.reads = Reads(buffer_size, lambda: self._loop.call_soon(self.run), self.run)
        self._began_s = self._ended_s = now_s()
        self._since_s = self._rested_s = (
            0.0  # From the last turn's start, and from its end, to this one's start.
        )
        self.slow = 0
        """How many turns took too long."""
        self.draining = False
        """Lanes are off: every request is answered one by one, and sent elsewhere."""

    # Reading.

    def inlet(self, source: Source, *, shut: bool = False) -> Inlet:
        """The inlet of a new connection; `shut` until its first bytes have been checked."""
        return Inlet(self.reads, source, shut)

    def deliver(self, source: Source, data: bytes) -> None:
        """Add bytes that were not read here: those that a TLS session has decrypted."""
        assert source.inlet is not None
        source.inlet.deliver(data)

    # Serving.

    def run(self) -> None:
        """Serve everything that was delivered since the last turn."""
        began_s, reads = self._now_s(), self.reads
        self._since_s, self._rested_s = began_s - self._began_s, began_s - self._ended_s
        self._began_s = began_s
        for source, large in reads.take_larges():
            self._serve(large.whole(), [source], [large.size])
        sources, ends = reads.take()
        if sources:
            self._serve(reads.view[: ends[-1]], sources, ends)
            reads.done()
        self._ended_s = self._now_s()
        took_s = self._ended_s - began_s
        if took_s > _SLOW_S:
            self.slow += 1
            size = ends[-1] if ends else 0
            log.log(
                # A slow turn of a server delays all its peers, one of a client only itself.
                logging.WARNING if self._answers is None else logging.DEBUG,
                "a turn of %d connections and %d bytes took %.0f ms",
                len(sources),
                size,
                took_s * 1e3,
            )

    def _serve(self, data: memoryview, sources: list[Source], ends: list[int]) -> None:
        try:
            batch = self._batch(data, sources, ends)
            self._route(batch)
            self._keep_rests(batch)
        except Exception:
            # A bug of ours. These connections cannot go on, as it is not known what was answered.
            log.exception("a turn of %d connections failed: they are closed", len(sources))
            for source in sources:
                source.broken(Malformed("this server failed to serve what came: connect again"))

    def _batch(self, data: memoryview, sources: list[Source], ends: list[int]) -> Batch:
        chunks, heads = _chunks([source.host for source in sources], ends)
        frames, pairs = split(data, chunks, FRAME_SIZE_MAX)
        batch = Batch(data, sources, chunks, frames, pairs, heads, gate=self.gate)
        if self._since_s > self._late_s:
            batch.waited_ms = self._ages_ms(sources, frames)
        return batch

    def _ages_ms(self, sources: list[Source], frames: array[int]) -> list[int]:
        """How long the oldest bytes of each source have waited to be read.

        Before a turn, all sockets are read completely: these bytes arrived after the last turn began. So ages
        are not measured while turns follow each other quickly. The kernel reports the age of the youngest
        bytes, which is the age of a request that came alone. Of several, the first may have come as soon as
        the loop was held up: when the slow turn before this one began, or, if something else held up the
        loop, at least as long ago as any source has waited.
        """
        youngest = [source.waited_ms() for source in sources]
        held_ms = max(youngest)
        if self._rested_s < _AT_ONCE_S:
            held_ms = max(held_ms, round(self._since_s * 1000))
        counts = Counter(frames[Frame.CHUNK :: _FRAME_WIDTH])
        return [held_ms if counts[chunk] > 1 else age_ms for chunk, age_ms in enumerate(youngest)]

    def _route(self, batch: Batch) -> None:
        lanes = () if self.draining else self._lanes
        left = len(batch.frames) // _FRAME_WIDTH
        if self._answers is not None and left:
            left -= self._answers(batch)
        parsed = []
        for lane in lanes:
            if left:
                left -= lane.parse(batch)
                parsed.append(lane)
        if not left:
            for lane in parsed:
                lane.run(batch, ())
            return
        plain = self._plain_rows(batch, lanes)
        for lane in lanes:
            lane.run(batch, [each for each in plain if each.command.code in lane.codes and _asks(each)])
        taken = frozenset().union(*(lane.codes for lane in lanes)) if lanes else frozenset[int]()
        for each in plain:
            if each.command.code not in taken or not _asks(each):
                each.source.received(each.command)

    def _plain_rows(self, batch: Batch, lanes: Sequence[Lane]) -> list[PlainRow]:
        """Every frame that no lane has taken, as a Command. Closes connections with unreadable headers."""
        codes = frozenset().union(*(lane.codes for lane in lanes)) if lanes else frozenset[int]()
        frames, plain = batch.frames, []
        for row in range(len(frames) // Frame.WIDTH):
            f = row * Frame.WIDTH
            if (
                not frames[f + Frame.PLAIN]
                and frames[f + Frame.CODE] in codes
                and not frames[f + Frame.FLAG] & 1
            ) or frames[f + Frame.PLAIN] == Plain.TAKEN:
                continue
            chunk = frames[f + Frame.CHUNK]
            source = batch.sources[chunk]
            try:
                command = command_of(batch.data, frames, row)
            except Malformed as error:
                batch.chunks[chunk * Chunk.WIDTH + Chunk.REST] = frames[f + Frame.AT]
                source.broken(error)
                continue
            if self.gate is None or command.is_response or _passes(self.gate, source, command):
                plain.append(PlainRow(row, chunk, source, command))
        return plain

    def _keep_rests(self, batch: Batch) -> None:
        chunks = batch.chunks
        if chunks[Chunk.REST :: Chunk.WIDTH] == chunks[Chunk.END :: Chunk.WIDTH]:
            return
        for number, source in enumerate(batch.sources):
            c = number * Chunk.WIDTH
            rest, end = chunks[c + Chunk.REST], chunks[c + Chunk.END]
            if rest == end:
                continue
            fault = fault_of(chunks, number)
            if fault is not None:
                source.broken(fault)
                continue
            inlet = source.inlet
            assert inlet is not None
            if not source.is_open:
                continue  # The rest of the frame will never arrive.
            needed, begun = chunks[c + Chunk.NEEDED], bytes(batch.data[rest:end])
            if (
                max(needed - len(begun), len(begun)) > self._large
            ):  # A rest must leave room in the shared buffer.
                inlet.large = Large(needed, begun)
            else:
                inlet.rest = begun


def _chunks(hosts: list[bytes], ends: list[int]) -> tuple[array[int], bytearray]:
    """Rows of Chunk, and the hosts that they refer to."""
    if len(hosts) == 1:
        return array("q", (ends[0], 0, len(hosts[0]), 0, 0, 0)), bytearray(hosts[0])
    chunks = array("q", bytes(8 * Chunk.WIDTH * len(hosts)))
    chunks[Chunk.END :: Chunk.WIDTH] = array("q", ends)
    sizes = array("q", map(len, hosts))
    chunks[Chunk.BORN_HOST_SIZE :: Chunk.WIDTH] = sizes
    chunks[Chunk.BORN_HOST_AT :: Chunk.WIDTH] = array("q", accumulate(sizes[:-1], initial=0))
    return chunks, bytearray().join(hosts)


def _passes(gate: Gate, source: Source, request: Command) -> bool:
    """Whether the gate lets a request pass. A refused one is answered here."""
    try:
        gate.check(source, request)
    except FlareError as error:
        if request.wants_answer:
            source.send_bytes(encode_frame(response_to(request, error.response_code, str(error))))
        return False
    except Exception as error:  # A gate that fails lets nothing pass.
        log.exception("the gate failed to check %s", request)
        if request.wants_answer:
            remark = f"{type(error).__name__}, {error}"
            source.send_bytes(encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark)))
        return False
    return True


def _asks(plain: PlainRow) -> bool:
    return not plain.command.is_response
