"""Messages that wait, through an admin: all of them, or it says what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flaremq.admin.admin import Admin
from flaremq.admin.messages import waiting as room
from flaremq.admin.values.messages import WaitingMessages
from flaremq.admin.values.topics import TopicSettings
from flaremq.broker.delay.timers import Timers
from flaremq.model.properties import encode_properties
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.protocol.codes import ResponseCode
from flaremq.store.drafts import NewMessage
from flaremq.testing.clock import MovableClock
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient, send_request

TOPIC = "later"
HOUR_S = 3600


class Wheel:
    """One broker whose time is moved by hand, and a client of it."""

    def __init__(self, admin: Admin, servers: Embedded, wire: WireClient, clock: MovableClock) -> None:
        self.admin = admin
        self.servers = servers
        self._wire = wire
        self._clock = clock

    async def send(self, *names: str, delay_s: int = HOUR_S, **more: object) -> list[str]:
        """Returns recall handles."""
        handles = []
        for name in names:
            known = {"UNIQ_KEY": name, "TIMER_DELAY_SEC": delay_s, **more}
            text = "".join(f"{key}\x01{value}\x02" for key, value in known.items())
            request = send_request(TOPIC, 0, name.encode(), properties=text)
            answer = await self._wire.caller.call(self.servers.addresses[0], request, 30)
            assert answer.code == ResponseCode.SUCCESS
            handles.append(answer.fields.get("recallHandle", ""))
        return handles

    async def run(self, by_s: int = 0) -> None:
        """Let time pass, and bring all progress to the disk."""
        self._clock.advance(by_s)
        (broker,) = self.servers.brokers
        broker.store.dispatch()
        assert broker.composition is not None
        (timers,) = (each for each in broker.composition.inner if isinstance(each, Timers))
        await timers.run()
        broker.store.workers.log_flusher.flush(0)
        await timers.save()

    def mark(self, handle: str, marks: str) -> None:
        """Cancel as some version of RocketMQ does."""
        parsed = Handle.parse(handle)
        known = {
            "UNIQ_KEY": parsed.unique_key,
            "TIMER_DEL_UNIQKEY": marks,
            "TIMER_OUT_MS": str(parsed.moment_ms - 1),
            "REAL_TOPIC": TOPIC,
            "REAL_QID": "0",
        }
        (broker,) = self.servers.brokers
        broker.store.put(NewMessage(topic=WHEEL_TOPIC, body=b"0", properties=encode_properties(known)))
        broker.store.dispatch()

    async def waiting(self, count_max: int = room.WAITING_MAX) -> WaitingMessages:
        return await self.admin.messages.waiting(TOPIC, count_max)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def servers(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, clock=clock) as found:
        yield found


@pytest.fixture
async def wheel(admin: Admin, servers: Embedded, wire: WireClient, clock: MovableClock) -> Wheel:
    await admin.topics.create(TOPIC, TopicSettings(read_queues=1, write_queues=1))
    return Wheel(admin, servers, wire, clock)


def bodies(found: WaitingMessages) -> set[bytes]:
    return {each.message.body for each in found}


async def test_what_waits_is_found_behind_much_that_was_delivered(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest records of the wheel were read, up to a number, and what was sent later was missing."""
    monkeypatch.setattr(room, "_AT_ONCE", 3)
    await wheel.send("old", delay_s=9 * HOUR_S)
    await wheel.send(*(f"gone{n}" for n in range(20)), delay_s=60)
    await wheel.run(120)
    await wheel.send("new")
    await wheel.run()
    found = await wheel.waiting(count_max=5)
    assert (bodies(found), found.partial) == ({b"old", b"new"}, {})


async def test_nothing_older_is_read_once_all_are_found(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_AT_ONCE", 3)
    monkeypatch.setattr(room, "_RECORDS_MAX", 6)
    await wheel.send(*(f"gone{n}" for n in range(20)), delay_s=60)
    await wheel.run(120)
    await wheel.send("a", "b", "c", "d")
    await wheel.run()
    found = await wheel.waiting()
    assert (bodies(found), found.partial) == ({b"a", b"b", b"c", b"d"}, {})


@pytest.mark.parametrize("limit", ["records", "messages"])
async def test_a_list_that_is_partial_says_so_and_of_how_many(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(room, "_AT_ONCE", 3)
    if limit == "records":
        monkeypatch.setattr(room, "_RECORDS_MAX", 6)
    await wheel.send(*(f"m{n}" for n in range(20)))
    await wheel.run()
    found = await wheel.waiting(*([5] if limit == "messages" else []))
    assert bodies(found) == {b"m%d" % n for n in range(14, 20)}
    (why,) = found.partial.values()
    assert "newest 6 of 20 records" in why
    assert "6 of 20 messages that wait are among them" in why


async def test_a_delay_level_that_is_listed_in_part_says_so(wheel: Wheel) -> None:
    for n in range(5):
        await wheel.send(f"m{n}", DELAY=18)
    await wheel.run()
    found = await wheel.waiting(count_max=3)
    assert bodies(found) == {b"m0", b"m1", b"m2"}
    (why,) = found.partial.values()
    assert why == "the first 3 of 5 messages of level 18 were read"
    assert (await wheel.waiting()).partial == {}


@pytest.mark.parametrize("by", ["topic and key", "the key alone"])
async def test_what_was_cancelled_does_not_wait_whichever_version_did_it(wheel: Wheel, by: str) -> None:
    first, _ = await wheel.send("a", "b")
    wheel.mark(first, "a" if by == "the key alone" else f"{TOPIC}+a")
    assert bodies(await wheel.waiting()) == {b"b"}


async def test_a_marker_for_another_moment_hides_nothing(wheel: Wheel) -> None:
    """Brokers look for it in its own slot only."""
    (handle,) = await wheel.send("a")
    parsed = Handle.parse(handle)
    wheel.mark(str(parsed._replace(moment_ms=parsed.moment_ms + 60_000)), f"{TOPIC}+a")
    assert bodies(await wheel.waiting()) == {b"a"}


async def test_a_message_that_was_sent_twice_waits_twice(wheel: Wheel) -> None:
    """A client that had no answer sends again, and asks for a span from then on."""
    await wheel.send("a")
    await wheel.run(5)
    await wheel.send("a")
    assert len(await wheel.waiting()) == 2
