"""Fetching: raw records of ranges of queues, many pulls under way at a time, given in order.

    pieces ─► window of pulls ─► answers, in any order ─► pieces that are done, in order ─► chunks ─► reader

The window and the chunks that wait are bounded, so a slow reader slows the pulls and not the machine.
The network has the loop thread and the reader its own, so both work at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from flaremq.base.backoff import Backoff
from flaremq.base.errors import (
    CallTimeout,
    DataLost,
    FlareError,
    GroupNotFound,
    InvalidParameter,
    NoRoute,
    TopicNotFound,
)
from flaremq.base.units import MiB
from flaremq.client.api import PullResult
from flaremq.client.client import Client
from flaremq.client.consumer.bulkpull import PullFrames, PullLine
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.spark.clients import cluster_client
from flaremq.spark.options import DEFAULT_GROUP
from flaremq.spark.read.options import NO_FILTER, Filter, ReadOptions
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.read.pullranges import (
    COUNT_MAX,
    TOOLS_GROUP,
    Meaning,
    PulledRecords,
    PullRange,
    Strides,
    cut,
    meaning,
    pull_header,
)

log = logging.getLogger(__name__)

CHUNK_SIZE: Final = 2 * MiB
_WAITING_CHUNKS: Final = 3
_WINDOW: Final = 64
_WINDOW_FILTERED: Final = 8
_WINDOW_BYTES: Final = 16 * MiB
_ANSWER_LIMIT_S: Final = 10.0
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What a task needs to know in addition to its ranges."""

    name_server: str
    group: str = DEFAULT_GROUP
    filter: Filter = NO_FILTER
    fail_on_data_loss: bool = True
    timeout_s: float = 60.0

    @classmethod
    def of(cls, options: ReadOptions) -> FetchPlan:
        return cls(
            options.name_server,
            options.reading_group,
            options.filter,
            options.fail_on_data_loss,
            options.broker_timeout_s,
        )


class RecordChunk(NamedTuple):
    """Records back to back, of one broker. Those outside of [begin, end) do not count."""

    broker: str
    data: bytes | memoryview
    begin: int = 0
    end: int | None = None


def chunks(plan: FetchPlan, ranges: Sequence[QueueRange]) -> Generator[RecordChunk, None, None]:
    """All records of the ranges, queue by queue in order. Raises what keeps them from being had."""
    cluster = cluster_client(plan.name_server)
    fetch = cluster.run(_begun(cluster.client, plan, ranges))
    try:
        while (chunk := cluster.run(fetch.next())) is not None:
            yield chunk
    finally:
        cluster.run(fetch.close())


async def _begun(client: Client, plan: FetchPlan, ranges: Sequence[QueueRange]) -> Fetch:
    return Fetch(client, plan, ranges)


class Fetch:
    """One task's reading. Lives in the loop of its client."""

    def __init__(self, client: Client, plan: FetchPlan, ranges: Sequence[QueueRange]) -> None:
        self._client = client
        self._plan = plan
        self._filtered = plan.filter.is_set
        self._group = plan.group
        self._strides = Strides()
        self._cut = cut(ranges, self._strides, filtered=self._filtered)
        self._window: deque[PullRange] = deque()
        self._answer_size = 0
        self._to_ask: deque[PullRange] = deque()
        self._resting: list[tuple[float, PullRange]] = []
        self._lines: dict[str, PullLine[PullRange]] = {}
        self._suggested: dict[str, int] = {}
        self._masters_only: set[str] = set()
        """Brokers with a slave that has let us down, and is not asked again."""
        self._frames: dict[tuple[str, str, int], PullFrames] = {}
        self._stirred = asyncio.Event()
        self._floors: dict[str, int] = {}
        self._fatal: FlareError | None = None
        self._out: asyncio.Queue[RecordChunk | None] = asyncio.Queue(_WAITING_CHUNKS)
        self._joined: list[bytes | memoryview] = []
        self._joined_size, self._joined_broker = 0, ""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="fetch")

    async def next(self) -> RecordChunk | None:
        """The next chunk; None behind the last. Raises what the fetching ended with."""
        if not self._out.empty():
            return self._out.get_nowait()
        getting = asyncio.create_task(self._out.get())
        await asyncio.wait((getting, self._task), return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        getting.cancel()
        self._task.result()
        return None if self._out.empty() else self._out.get_nowait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        for line in self._lines.values():
            line.forget()
        if not self._task.cancelled():
            self._task.exception()  # Whoever read has it; who stopped early does not want it.

    # The work.

    async def _run(self) -> None:
        more = True
        while more or self._window:
            more = more and self._fill()
            await self._ask_all()
            while self._window and self._window[0].is_done:
                await self._give(self._window.popleft())
            if self._fatal is not None:
                raise self._fatal
            if self._window and not self._to_ask and not (more and self._has_room()):
                await self._rest()
        await self._flush()
        await self._out.put(None)

    def _has_room(self) -> bool:
        """Whether another piece may be asked for now."""
        if self._window and self._window[-1].is_probe:
            return False
        limit = _WINDOW_FILTERED if self._filtered else _WINDOW
        if self._answer_size:
            limit = min(limit, max(2, _WINDOW_BYTES // self._answer_size))
        return len(self._window) < limit

    def _fill(self) -> bool:
        """Put pieces into the window while it has room. False if there are no more."""
        while self._has_room():
            try:
                piece = next(self._cut)
            except StopIteration:
                return False
            self._window.append(piece)
            self._to_ask.append(piece)
        return True

    async def _ask_all(self) -> None:
        lines, away = [], dict[str, FlareError]()
        while self._to_ask:
            piece = self._to_ask.popleft()
            piece.skip(self._floors.get(piece.of.key, 0))
            if piece.is_done:
                continue
            piece.asked_of = self._suggested.get(piece.of.broker, MASTER_ID)
            if piece.of.broker in away:  # Not being reached takes its time, and once is enough.
                self.failed(piece, away[piece.of.broker])
                continue
            try:
                line = await self._line(piece.of)
            except FlareError as error:
                away[piece.of.broker] = error
                self.failed(piece, error)
                continue
            piece.asked_as, piece.asked = self._group, min(piece.end - piece.at, COUNT_MAX)
            line.ask(piece, self._frames_of(piece.of), piece.at, piece.asked)
            lines.append(line)
        for line in dict.fromkeys(lines):
            line.write()

    async def _line(self, of: QueueRange) -> PullLine[PullRange]:
        client, broker = self._client, of.broker
        if client.routes.known(of.topic) is None and await client.routes.refresh(of.topic) is None:
            # All its brokers may be away for a while. A broker knows better whether a topic is gone.
            raise NoRoute(
                f"topic {of.topic!r} is unknown to the NameServer now: check that its brokers are running"
            )
        address = client.routes.address(broker, self._suggested.get(broker, MASTER_ID))
        if address is None:
            raise NoRoute(f"broker {broker!r} is unknown to the NameServer now: check that it is running")
        line = self._lines.get(address)
        if line is None or not line.connection.is_open:
            connection = await client.caller.connected(address, client.settings.connect_timeout_s)
            line = self._lines[address] = PullLine(connection, address, self)
        return line

    def _frames_of(self, of: QueueRange) -> PullFrames:
        key = of.broker, of.topic, of.queue
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = PullFrames(pull_header(of, self._group, self._plan.filter))
        return found

    async def _rest(self) -> None:
        """Until an answer comes, or a piece has rested for long enough."""
        self._stirred.clear()
        now_s = self._loop.time()
        wake_s = min((now_s + _ANSWER_LIMIT_S, *(at_s for at_s, _ in self._resting)))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_s - now_s)):
                await self._stirred.wait()
        now_s = self._loop.time()
        self._give_up(now_s)
        self._to_ask.extend(piece for at_s, piece in self._resting if at_s <= now_s)
        self._resting = [each for each in self._resting if each[0] > now_s]

    def _give_up(self, now_s: float) -> None:
        for line in self._lines.values():
            if len(line) and now_s - line.quiet_since_s >= _ANSWER_LIMIT_S:
                line.give_up(
                    CallTimeout(f"{line.address} did not answer {len(line)} pulls in {_ANSWER_LIMIT_S:g} s")
                )

    # Answers.

    def pulled(self, what: PullRange, pulled: PullResult) -> None:
        self._stirred.set()
        broker = what.of.broker
        if broker not in self._masters_only:
            self._suggested[broker] = pulled.suggested_broker_id
        means, onward = meaning(what, pulled, filtered=self._filtered)
        if means is Meaning.TAKEN:
            if not self._filtered:
                self._strides.learn(broker, what.asked, onward - what.at)
            self._answer_size = max(self._answer_size * 7 // 8, len(pulled.body))
            what.take(pulled)
        elif means is Meaning.PASSED:
            what.moved(onward)
        elif what.asked_of != MASTER_ID:
            self._back_to_master(what, f"it has offsets {pulled.min_offset} to {pulled.max_offset}")
        elif means is Meaning.LOST:
            self._lost(what, onward)
        else:
            self._again_later(what, _behind(what, pulled.max_offset))
            return
        if not what.is_done:
            self._to_ask.append(what)

    def failed(self, what: PullRange, error: FlareError) -> None:
        self._stirred.set()
        if what.asked_of != MASTER_ID:
            self._back_to_master(what, error)
            self._to_ask.append(what)
        elif isinstance(error, GroupNotFound) and what.asked_as == DEFAULT_GROUP:
            self._to_ask.append(what)
            if self._group == DEFAULT_GROUP:
                log.info("%s: pulling as group %s from now on", error, TOOLS_GROUP)
                self._group = TOOLS_GROUP
                self._frames.clear()
        elif isinstance(error, TopicNotFound | InvalidParameter):
            self._lost(what, what.of.end, f" ({error})")
            if not what.is_done:
                self._to_ask.append(what)
        elif error.retriable and not _is_final(error):
            self._client.refresh_soon()
            self._again_later(what, error)
        else:
            self._fatal = self._fatal or error

    def _lost(self, piece: PullRange, onward: int, why: str = "") -> None:
        gone = f"{piece.of.key} [{piece.at}, {min(onward, piece.of.end)})"
        if self._plan.fail_on_data_loss:
            self._fatal = self._fatal or DataLost(
                f"messages were gone before they were read: {gone}{why}. Set failOnDataLoss=false to "
                "continue without them, or start again after them"
            )
            return
        if self._floors.get(piece.of.key, -1) < onward:
            log.warning("messages were gone before they were read, and were skipped: %s%s", gone, why)
            self._floors[piece.of.key] = onward  # Whoever else waits for them need not ask.
        piece.skip(onward)

    def _back_to_master(self, piece: PullRange, why: object) -> None:
        """A slave is asked because its master said so. One that cannot help is not asked again."""
        log.info("a slave of %s cannot serve the pull, asking its master again: %s", piece.of.broker, why)
        self._masters_only.add(piece.of.broker)
        self._suggested.pop(piece.of.broker, None)
        piece.asked_of = MASTER_ID

    def _again_later(self, piece: PullRange, error: FlareError) -> None:
        if piece.backoff is None:
            piece.backoff = Backoff(
                _PAUSE_S, _PAUSE_MAX_S, timeout_s=self._plan.timeout_s, now_s=self._loop.time
            )
        pause_s = piece.backoff.pause_s()
        if pause_s is None:
            if isinstance(error, DataLost) and not self._plan.fail_on_data_loss:
                log.warning("%s", error)
                piece.skip(piece.end)
                return
            self._fatal = self._fatal or error
            return
        self._resting.append((self._loop.time() + pause_s, piece))

    # Out.

    async def _give(self, piece: PullRange) -> None:
        for part in piece.parts:
            if not part.is_whole:
                await self._flush()
                await self._out.put(RecordChunk(piece.of.broker, part.data, part.begin, part.end))
                continue
            if self._joined_broker != piece.of.broker:
                await self._flush()
            self._join(part, piece.of.broker)
            if self._joined_size >= CHUNK_SIZE:
                await self._flush()

    def _join(self, part: PulledRecords, broker: str) -> None:
        self._joined_broker = broker
        self._joined.append(part.data)
        self._joined_size += len(part.data)

    async def _flush(self) -> None:
        joined, self._joined, self._joined_size = self._joined, [], 0
        if joined:
            data = joined[0] if len(joined) == 1 else b"".join(joined)
            await self._out.put(RecordChunk(self._joined_broker, data))


def _behind(piece: PullRange, most: int) -> DataLost:
    return DataLost(
        f"messages to be read are not in {piece.of.key}: [{piece.at}, {piece.end}), but it ends at {most}. A "
        "failover may have lost them; wait for the broker, or set failOnDataLoss=false to continue without "
        "them"
    )


def _is_final(error: FlareError) -> bool:
    """A refusal that calls itself a system error, but will be the same the next time."""
    return error.remark is not None and "not support" in error.remark
