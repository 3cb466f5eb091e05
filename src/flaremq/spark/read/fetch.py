"""Fetch: the raw records of a task's queue ranges, pulled over the network and returned in order.

    ranges > pull ranges > window of pulls > answers, in any order > chunks, in order > decoder

The problem
-----------
A Spark task reads ranges of queue offsets. The broker decides how many messages answer a pull: RocketMQ
gives at most 32 recent or 8 old ones by default, even if more were asked for. With one pull after the
other a task would mostly wait: 16,384 messages in answers of 32 are 512 round trips.

Many pulls can be under way at once only if it is known where each answer will end, and the broker does
not say. Answers come in any order, but each queue must stay in order. A slow reader must not fill the
memory. And while a task reads, brokers restart, fail over and delete old files.

How it works
------------
Without a filter, the first pull from a broker is a probe. The number of offsets that its answer covers is
the stride, and ranges are cut into pull ranges of one stride (`pullranges`). A short answer shortens the
stride; after 256 full ones in a row it is doubled. With a filter an answer may end anywhere: pull ranges
then have up to 4096 offsets, and each sends one pull after the other.

The window holds up to 64 pull ranges (8 with a filter), or as many as 16 MiB of answers allow, but at
least two. Those at its front that are done leave it, and their records are joined to chunks of about
2 MiB of one broker. While three chunks wait for the reader, no new pulls are sent. The network runs in
the client's loop thread and the decoder in the task's thread, so both work at the same time.

A pull that may succeed later is repeated after 50 ms, then after pauses that double up to 1 s, until its
pull range has made no progress for `brokerTimeout`; any other error ends the task. A connection without
an answer for 10 s is closed, and its pulls are repeated. A slave is asked if the master suggests it, until
it cannot serve a pull. Messages that are gone end the task with `DataLost`, or are skipped and logged if
failOnDataLoss is false.

An example
----------
A task reads [0, 100) of queue 0 and [500, 520) of queue 1 from a broker that gives 32 messages:

    asked   0: [0, 100)      the probe
    answer  0: [0, 32)       the stride is 32, and the probe ends at 32
    asked   0: [32, 64)  0: [64, 96)  0: [96, 100)  1: [500, 520)     in one write
    answer  0: [64, 96)      waits for its predecessor
    answer  0: [32, 50)      short, as its messages are large: the stride is 18
    asked   0: [50, 64)
    answer  1: [500, 520)    waits
    answer  0: [50, 64)      [32, 64) and [64, 96) leave the window
    answer  0: [96, 100)     the rest leaves it: all 120 records are one chunk
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
_SOME_SLAVE: Final = 1
_WAITING_CHUNKS: Final = 3
_WINDOW: Final = 64
_WINDOW_FILTERED: Final = 8
_WINDOW_BYTES: Final = 16 * MiB
_ANSWER_LIMIT_S: Final = 10.0
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """How to fetch a task's ranges."""

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
    """Records of one broker, back to back. Ignore those outside of [begin, end)."""

    broker: str
    data: bytes | memoryview
    begin: int = 0
    end: int | None = None


def chunks(plan: FetchPlan, ranges: Sequence[QueueRange]) -> Generator[RecordChunk, None, None]:
    """All records of the ranges, queue by queue in order. Raises the error that ended the fetch."""
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
    """One task's fetch. Lives in its client's event loop."""

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
        """Brokers whose slave could not serve a pull, and is not asked again."""
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
        """The next chunk; None after the last. Raises the error that ended the fetch."""
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
            # Mark it as seen: `next` has raised it, or the reader stopped early and does not need it.
            self._task.exception()

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
        """Whether another pull range may enter the window now."""
        if self._window and self._window[-1].is_probe:
            return False
        limit = _WINDOW_FILTERED if self._filtered else _WINDOW
        if self._answer_size:
            limit = min(limit, max(2, _WINDOW_BYTES // self._answer_size))
        return len(self._window) < limit

    def _fill(self) -> bool:
        """Put pull ranges into the window while it has room. False if there are no more."""
        while self._has_room():
            try:
                pull = next(self._cut)
            except StopIteration:
                return False
            self._window.append(pull)
            self._to_ask.append(pull)
        return True

    async def _ask_all(self) -> None:
        lines, away = [], dict[str, FlareError]()
        while self._to_ask:
            pull = self._to_ask.popleft()
            pull.skip(self._floors.get(pull.of.key, 0))
            if pull.is_done:
                continue
            pull.asked_of = self._suggested.get(pull.of.broker, MASTER_ID)
            if pull.of.broker in away:  # Do not wait again for a connect that has just failed.
                self.failed(pull, away[pull.of.broker])
                continue
            try:
                line = await self._line(pull.of)
            except FlareError as error:
                away[pull.of.broker] = error
                self.failed(pull, error)
                continue
            if line.address != self._client.routes.master(pull.of.broker):
                pull.asked_of = pull.asked_of or _SOME_SLAVE  # Its master is away.
            pull.asked_as, pull.asked = self._group, min(pull.end - pull.at, COUNT_MAX)
            line.ask(pull, self._frames_of(pull.of), pull.at, pull.asked)
            lines.append(line)
        for line in dict.fromkeys(lines):
            line.write()

    async def _line(self, of: QueueRange) -> PullLine[PullRange]:
        client, broker = self._client, of.broker
        if client.routes.known(of.topic) is None and await client.routes.refresh(of.topic) is None:
            # All its brokers may be down for a while. Only a broker can say that the topic is deleted.
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
        """Wait until an answer comes, or until a pull range is to be asked for again."""
        self._stirred.clear()
        now_s = self._loop.time()
        wake_s = min((now_s + _ANSWER_LIMIT_S, *(at_s for at_s, _ in self._resting)))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_s - now_s)):
                await self._stirred.wait()
        now_s = self._loop.time()
        self._give_up(now_s)
        self._to_ask.extend(pull for at_s, pull in self._resting if at_s <= now_s)
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
        elif what.asked_of != MASTER_ID and self._client.routes.master(broker) is None:
            # What a slave lacks is not lost: its master may have it.
            has = f"{pulled.min_offset} to {pulled.max_offset}"
            why = f"the master of {broker} is away, and its slave has offsets {has} of {what.of.key}"
            self._client.refresh_soon()
            self._again_later(what, NoRoute(f"{why}, not {what.at}: start the master"))
            return
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
        if what.asked_of != MASTER_ID and self._client.routes.master(what.of.broker) is None:
            self._client.refresh_soon()
            self._again_later(what, error)
        elif what.asked_of != MASTER_ID:
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

    def _lost(self, pull: PullRange, onward: int, why: str = "") -> None:
        gone = f"{pull.of.key} [{pull.at}, {min(onward, pull.of.end)})"
        if self._plan.fail_on_data_loss:
            self._fatal = self._fatal or DataLost(
                f"messages were gone before they were read: {gone}{why}. Set failOnDataLoss=false to "
                "continue without them, or start again after them"
            )
            return
        if self._floors.get(pull.of.key, -1) < onward:
            log.warning("messages were gone before they were read, and were skipped: %s%s", gone, why)
            self._floors[pull.of.key] = onward  # Other pull ranges of the queue skip them too.
        pull.skip(onward)

    def _back_to_master(self, pull: PullRange, why: object) -> None:
        """A slave is asked if its master suggests it. One that cannot serve a pull is not asked again."""
        log.info("a slave of %s cannot serve the pull, asking its master again: %s", pull.of.broker, why)
        self._masters_only.add(pull.of.broker)
        self._suggested.pop(pull.of.broker, None)
        pull.asked_of = MASTER_ID

    def _again_later(self, pull: PullRange, error: FlareError) -> None:
        if pull.backoff is None:
            pull.backoff = Backoff(
                _PAUSE_S, _PAUSE_MAX_S, timeout_s=self._plan.timeout_s, now_s=self._loop.time
            )
        pause_s = pull.backoff.pause_s()
        if pause_s is None:
            if isinstance(error, DataLost) and not self._plan.fail_on_data_loss:
                log.warning("%s", error)
                pull.skip(pull.end)
                return
            self._fatal = self._fatal or error
            return
        self._resting.append((self._loop.time() + pause_s, pull))

    # Out.

    async def _give(self, pull: PullRange) -> None:
        for part in pull.parts:
            if not part.is_whole:
                await self._flush()
                await self._out.put(RecordChunk(pull.of.broker, part.data, part.begin, part.end))
                continue
            if self._joined_broker != pull.of.broker:
                await self._flush()
            self._join(part, pull.of.broker)
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


def _behind(pull: PullRange, most: int) -> DataLost:
    return DataLost(
        f"messages to be read are not in {pull.of.key}: [{pull.at}, {pull.end}), but it ends at {most}. A "
        "failover may have lost them; wait for the broker, or set failOnDataLoss=false to continue without "
        "them"
    )


def _is_final(error: FlareError) -> bool:
    """Whether a system error would be the same at the next attempt."""
    return error.remark is not None and "not support" in error.remark
