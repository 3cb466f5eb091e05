"""Messages that wait in a broker until they are delivered: for their delay level, or for their moment.

runtime information > progress of each level   > its queue from there on
timer progress      > slots that are not read  > the wheel's topic, as far back as messages may wait

The wheel's topic also holds what was delivered in these days, and may be long. It is read from its end, until
as many messages are found as the broker says that wait. Where that is too much, the answer says so.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from flaremq.admin.brokers import ask_runtime, ask_settings
from flaremq.admin.messages import scans
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.messages import FoundMessage, WaitingMessage, WaitingMessages
from flaremq.base.errors import Malformed, Refused
from flaremq.base.units import DAY_MS, SECOND_MS
from flaremq.model import layout, names, properties
from flaremq.model.delays import LEVELS, SCHEDULE_TOPIC, parse_levels
from flaremq.model.message import MessageQueue
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.protocol import beans
from flaremq.protocol.bodies.timer import TimerMetrics
from flaremq.protocol.codes import RequestCode

WAITING_MAX: Final = 100_000
"""How many messages of each broker, and of each delay level, are listed by default."""
_RECORDS_MAX: Final = 1_000_000
_AT_ONCE: Final = 50_000
"""Records of the wheel that are read before what was found is compared with what there is."""
_STALE_MS: Final = 5_000
"""Brokers tell progress that is on the disk: what is due within this time may be delivered already."""
_PROGRESS: Final = "scheduleMessageOffset_"  # Then the level. The value: next offset, end.
_ROLL_MAX_MS: Final = 7 * DAY_MS  # No message stays longer in the wheel without being put back.


async def waiting(
    servers: ServerCalls, topic: str | None = None, count_max: int = WAITING_MAX
) -> WaitingMessages:
    """Messages that wait, retries included, by the time at which they are due; of one topic, or of all."""
    partial: dict[str, str] = {}

    async def ask(server: ServerAddress) -> list[WaitingMessage]:
        found, missing = await _delayed(servers, server, count_max)
        wheel = await _timers(servers, server, count_max)
        if wheel is not None:
            found += wheel.waiting()
            missing += wheel.missing
        if missing:
            partial[server.title] = "; ".join(missing)
        return found

    answers = await servers.each(await servers.masters(), ask, "waiting messages")
    every = (each for some in answers.found.values() for each in some)
    chosen = (each for each in every if topic is None or each.topic == topic)
    return WaitingMessages(
        tuple(sorted(chosen, key=lambda each: each.due_ms)), answers.failed, partial=partial
    )


# Delay levels.


async def _delayed(
    servers: ServerCalls, server: ServerAddress, count_max: int
) -> tuple[list[WaitingMessage], list[str]]:
    """What waits, and of which levels not all is there."""
    levels = _levels((await ask_runtime(servers, server)).table)
    found: list[WaitingMessage] = []
    missing: list[str] = []
    if not any(begin < end for begin, end in levels.values()):
        return found, missing
    spans_ms = parse_levels((await ask_settings(servers, server)).values.get("messageDelayLevel", LEVELS))
    for level, (begin, end) in sorted(levels.items()):
        queue = MessageQueue(SCHEDULE_TOPIC.decode(), server.name, level - 1)
        if end - begin > count_max:
            missing.append(f"the first {count_max:,} of {end - begin:,} messages of level {level} were read")
            end = begin + count_max
        async for message in scans.between(servers, server, queue, begin, end):
            due_ms = message.stored_ms + (spans_ms[level - 1] if level <= len(spans_ms) else 0)
            topic = message.get(properties.REAL_TOPIC) or ""
            why = f"retry {message.stored.reconsume_times}" if names.is_retry(topic) else f"level {level}"
            found.append(WaitingMessage(topic, due_ms, why, message))
    return found, missing


def _levels(table: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """For each level, the queue offsets of the messages that wait."""
    found: dict[int, tuple[int, int]] = {}
    for name, value in table.items():
        level, (begin, _, end) = name.removeprefix(_PROGRESS), value.partition(",")
        if level != name and level.isdigit() and begin.isdigit() and end.isdigit():
            found[int(level)] = int(begin), int(end)
    return found


# Timers.


class _Progress(NamedTuple):
    read_ms: int
    """The slot to read next: all before it are delivered."""
    entered: int
    """The next queue offset to enter in the wheel: what waits before it is counted."""


_Place: TypeAlias = tuple[str, int]
"""What a marker names, and the slot."""


class WheelScan:
    """What waits in the wheel of one broker, by its records: in runs, the newest run first."""

    def __init__(self, server: ServerAddress, progress: _Progress) -> None:
        self.missing: list[str] = []
        self.records = 0
        """How many were read."""
        self._server = server
        self._read_ms, self._entered = progress
        self._found: dict[_Place, WaitingMessage] = {}
        self._run: dict[_Place, WaitingMessage] = {}
        self._cancelled: set[_Place] = set()

    def __len__(self) -> int:
        return len(self._found)

    def take(self, message: FoundMessage) -> None:
        """The next record of a run. The last place counts of a message that was put back on the way."""
        text = message.get(properties.TIMER_OUT_MS) or ""
        slot_ms = int(text) if text.isascii() and text.isdigit() else -1
        marked = message.get(properties.TIMER_DEL_UNIQKEY)
        if marked is not None:
            self._cancelled.add((marked, slot_ms))
        elif slot_ms >= self._read_ms:
            handle = self._handle(message, slot_ms)
            self._run[handle.marks, slot_ms] = _waiting(message, slot_ms, handle)

    def turn(self, records: int) -> None:
        """The run is over, and so many records were read by now."""
        self.records, self._found, self._run = records, {**self._run, **self._found}, {}

    def _handle(self, message: FoundMessage, slot_ms: int) -> Handle:
        topic = message.get(properties.REAL_TOPIC) or ""
        return Handle(topic, self._server.name, slot_ms + 1, message.stored.unique_key or "")

    def waiting(self) -> list[WaitingMessage]:
        return [each for place, each in self._found.items() if not self._is_cancelled(*place)]

    def _is_cancelled(self, marks: str, slot_ms: int) -> bool:
        """RocketMQ 5.1, and versions from 5.4 on, write the key of a marker without the topic."""
        key = marks.partition("+")[2]
        return (marks, slot_ms) in self._cancelled or (key, slot_ms) in self._cancelled

    def counted(self) -> int:
        """How many of those that were found the broker counts for certain as waiting, cancelled ones too."""
        sure_ms = self._read_ms + _STALE_MS
        return sum(
            slot_ms >= sure_ms and each.message.queue_offset < self._entered
            for (_, slot_ms), each in self._found.items()
        )


async def _timers(servers: ServerCalls, server: ServerAddress, count_max: int) -> WheelScan | None:
    progress = await _progress(servers, server)
    queue, api = MessageQueue(WHEEL_TOPIC.decode(), server.name, 0), servers.api
    end = await api.max_offset(server.address, queue) if progress is not None else 0
    if progress is None or not end:
        return None
    total = await _total(servers, server)
    values = (await ask_settings(servers, server)).values
    wait_max_ms = _ROLL_MAX_MS * max(1, int(values.get("timerPrecisionMs", SECOND_MS)) // SECOND_MS)
    since_ms = max(0, progress.read_ms - wait_max_ms)
    begin = max(0, await api.offset_by_time(server.address, queue, since_ms))
    wheel, at = WheelScan(server, progress), end
    while at > begin:
        first = max(begin, at - _AT_ONCE)
        async for message in scans.between(servers, server, queue, first, at):
            wheel.take(message)
        wheel.turn(end - first)
        at = first
        if total is not None and wheel.counted() >= total:
            break
        if at > begin and (len(wheel) >= count_max or wheel.records >= _RECORDS_MAX):
            there = "messages that wait" if total is None else f"{total:,} messages that wait"
            wheel.missing.append(
                f"the newest {wheel.records:,} of {end - begin:,} records of timers were read, "
                f"and {len(wheel):,} of {there} are among them"
            )
            break
    return wheel


def _waiting(message: FoundMessage, slot_ms: int, handle: Handle) -> WaitingMessage:
    due_ms = _due_ms(message, slot_ms)
    if names.is_retry(handle.topic):  # By the policy of its group. To cancel it would lose the message.
        why = f"retry {message.stored.reconsume_times}"
        return WaitingMessage(handle.topic, due_ms, why, message)
    return WaitingMessage(handle.topic, due_ms, "timer", message, str(handle))


def _due_ms(message: FoundMessage, slot_ms: int) -> int:
    """Its moment, to the millisecond where it says so."""
    text = message.get(properties.TIMER_DELIVER_MS) or ""
    return int(text) if text.isdigit() else slot_ms


async def _progress(servers: ServerCalls, server: ServerAddress) -> _Progress | None:
    """How far timers are delivered; None for a broker without them."""
    try:
        answer = await servers.api.ask(server.address, RequestCode.GET_TIMER_CHECK_POINT)
    except Refused:
        return None
    body, wanted = bytes(answer.body or b""), struct.calcsize(layout.TIMER_CHECK_FORMAT)
    if len(body) < wanted:
        return None
    longs = struct.unpack(layout.TIMER_CHECK_FORMAT, body[:wanted])
    return _Progress(longs[0], longs[2])


async def _total(servers: ServerCalls, server: ServerAddress) -> int | None:
    """How many timers wait, as the broker counts them; None if it does not."""
    try:
        answer = await servers.api.ask(server.address, RequestCode.GET_TIMER_METRICS)
        counts = beans.decode(TimerMetrics, bytes(answer.body or b"")).timing_count
    except (Refused, Malformed):
        return None
    return sum(each.count for each in counts.values())
