"""Messages that wait in a broker until they are delivered: for their delay level, or for their moment.

runtime information > progress of each level   > its queue from there on
timer progress      > slots that are not read  > the wheel's topic, as far back as messages may wait
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from flaremq.admin.brokers import ask_runtime, ask_settings
from flaremq.admin.messages import scans
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.messages import FoundMessage, WaitingMessage
from flaremq.admin.values.outcome import Answers
from flaremq.base.errors import Refused
from flaremq.base.units import DAY_MS
from flaremq.model import layout, names, properties
from flaremq.model.delays import LEVELS, SCHEDULE_TOPIC, parse_levels
from flaremq.model.message import MessageQueue
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.protocol.codes import RequestCode

WAITING_MAX: Final = 100_000
"""How many records of each broker are read by default."""
_PROGRESS: Final = "scheduleMessageOffset_"  # Then the level. The value: next offset, end.
_ROLL_MAX_MS: Final = 7 * DAY_MS  # No message stays longer in the wheel without being put back.


async def waiting(
    servers: ServerCalls, topic: str | None = None, count_max: int = WAITING_MAX
) -> Answers[WaitingMessage]:
    """Messages that wait, retries included, by the time at which they are due; of one topic, or of all."""

    async def ask(server: ServerAddress) -> list[WaitingMessage]:
        found = await _delayed(servers, server, count_max)
        found += await _timers(servers, server, count_max)
        return found

    answers = await servers.each(await servers.masters(), ask, "waiting messages")
    every = (each for some in answers.found.values() for each in some)
    chosen = (each for each in every if topic is None or each.topic == topic)
    return Answers(tuple(sorted(chosen, key=lambda each: each.due_ms)), answers.failed)


# Delay levels.


async def _delayed(servers: ServerCalls, server: ServerAddress, count_max: int) -> list[WaitingMessage]:
    levels = _levels((await ask_runtime(servers, server)).table)
    if not any(begin < end for begin, end in levels.values()):
        return []
    spans_ms = parse_levels((await ask_settings(servers, server)).values.get("messageDelayLevel", LEVELS))
    found: list[WaitingMessage] = []
    for level, (begin, end) in sorted(levels.items()):
        queue = MessageQueue(SCHEDULE_TOPIC.decode(), server.name, level - 1)
        end = min(end, begin + count_max)
        async for message in scans.between(servers, server, queue, begin, end):
            due_ms = message.stored_ms + (spans_ms[level - 1] if level <= len(spans_ms) else 0)
            topic = message.get(properties.REAL_TOPIC) or ""
            why = f"retry {message.stored.reconsume_times}" if names.is_retry(topic) else f"level {level}"
            found.append(WaitingMessage(topic, due_ms, why, message))
    return found


def _levels(table: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """For each level, the queue offsets of the messages that wait."""
    found: dict[int, tuple[int, int]] = {}
    for name, value in table.items():
        level, (begin, _, end) = name.removeprefix(_PROGRESS), value.partition(",")
        if level != name and level.isdigit() and begin.isdigit() and end.isdigit():
            found[int(level)] = int(begin), int(end)
    return found


# Timers.


async def _timers(servers: ServerCalls, server: ServerAddress, count_max: int) -> list[WaitingMessage]:
    read_ms = await _read_ms(servers, server)
    queue, api = MessageQueue(WHEEL_TOPIC.decode(), server.name, 0), servers.api
    end = await api.max_offset(server.address, queue) if read_ms is not None else 0
    if read_ms is None or not end:
        return []
    begin = max(0, await api.offset_by_time(server.address, queue, max(0, read_ms - _ROLL_MAX_MS)))
    found: dict[str, WaitingMessage] = {}
    cancelled: set[str] = set()
    async for message in scans.between(servers, server, queue, begin, min(end, begin + count_max)):
        text, topic = message.get(properties.TIMER_OUT_MS) or "", message.get(properties.REAL_TOPIC) or ""
        marked = message.get(properties.TIMER_DEL_UNIQKEY)
        if marked is not None:
            cancelled.add(marked)
        elif text.isdigit() and int(text) >= read_ms:
            handle = Handle(topic, server.name, int(text) + 1, message.stored.unique_key or "")
            due_ms = _due_ms(message, int(text))
            # One that was put back on the way is found again: its last place counts.
            if names.is_retry(topic):  # By the policy of its group. To cancel it would lose the message.
                why = f"retry {message.stored.reconsume_times}"
                found[handle.marks] = WaitingMessage(topic, due_ms, why, message)
            else:
                found[handle.marks] = WaitingMessage(topic, due_ms, "timer", message, str(handle))
    return [each for marks, each in found.items() if marks not in cancelled]


def _due_ms(message: FoundMessage, slot_ms: int) -> int:
    """Its moment, to the millisecond where it says so."""
    text = message.get(properties.TIMER_DELIVER_MS) or ""
    return int(text) if text.isdigit() else slot_ms


async def _read_ms(servers: ServerCalls, server: ServerAddress) -> int | None:
    """The time up to which timers are delivered; None for a broker without them."""
    try:
        answer = await servers.api.ask(server.address, RequestCode.GET_TIMER_CHECK_POINT)
    except Refused:
        return None
    body = bytes(answer.body or b"")
    longs = struct.calcsize(layout.TIMER_CHECK_FORMAT)
    return struct.unpack(layout.TIMER_CHECK_FORMAT, body[:longs])[0] if len(body) >= longs else None
