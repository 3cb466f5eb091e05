"""Fault 22 in groups: messages that name their moment come by the clock of whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest
from tests.testing.sim.groups import TOPIC, Group, play

from flaremq import Message, Producer
from flaremq.base.errors import FlareError
from flaremq.client.message import Recall
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many
from flaremq.store.api import GetStatus
from flaremq.testing.sim.wires import LinkQuality
from flaremq.testing.sim.world import Machine

HOUR_MS = 3_600_000
TIMERS = {"timerWheelEnable": True}
SLOT_S = 1.0
LOOK_S, SLACK_S = 0.05, 0.2  # What is due is put into its queue, decided on and shown.
MOMENTS_S = range(4, 24, 2)


class Timed:
    """Messages that name their moment, and when they came."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._moments_ms: dict[str, int] = {}
        self._due_s: dict[str, float] = {}
        """Since when each has been due by the clock of whoever leads."""
        self._leader: Machine | None = None
        self.came: dict[str, int] = {}
        """By the clock of whoever let each go."""

    async def send(self, seconds: Sequence[int]) -> None:
        """They come so many seconds after now."""
        begin_ms = wall_ms(await self._group.led())
        moments_ms = {f"at {begin_ms + each * 1000}": begin_ms + each * 1000 for each in seconds}
        self._moments_ms |= moments_ms
        await self._group.client.do(self._send(moments_ms))

    async def _send(self, moments_ms: Mapping[str, int]) -> None:
        sim = self._group.sim
        async with sim.client(self._group.client) as client, Producer("p", client=client) as producer:
            for body, moment_ms in moments_ms.items():
                await producer.send(Message(TOPIC, body.encode(), deliver_at=moment_ms / 1000))

    async def look(self, for_s: float) -> None:
        sim = self._group.sim
        ends_s = sim.loop.now_s + for_s
        while sim.loop.now_s < ends_s:
            self._look_once()
            await sim.passes(LOOK_S)

    def _look_once(self) -> None:
        leader, now_s = self._group.leader, self._group.sim.loop.now_s
        if leader is not self._leader:
            self._leader, self._due_s = leader, {}
        if leader is None:
            return
        for message in shown(self._group, leader):
            body = message.body.decode()
            assert message.store_timestamp_ms >= self._moments_ms[body], f"{body} came early"
            self.came.setdefault(body, message.store_timestamp_ms)
        for body, moment_ms in self._moments_ms.items():
            if body not in self.came and wall_ms(leader) >= moment_ms:
                late_s = now_s - self._due_s.setdefault(body, now_s)
                assert late_s <= SLOT_S + SLACK_S, f"{body} is {late_s:.2f} s late"

    @property
    def left(self) -> int:
        return len(self._moments_ms) - len(self.came)


def wall_ms(machine: Machine) -> int:
    return machine.clock.now_ms()


def shown(group: Group, machine: Machine) -> list[StoredMessage]:
    store, found = group.of(machine).store, list[StoredMessage]()
    store.show()
    for queue_id in range(16):
        at = 0
        while (result := store.get(TOPIC.encode(), queue_id, at, 32)).status is GetStatus.FOUND:
            found += decode_many(result.gathered())
            at = result.next_offset
    return found


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_fault_22_clocks_of_followers_that_jump_make_no_message_early_or_late(step_ms: int) -> None:
    async def scenario(group: Group) -> None:
        timed = Timed(group)
        await timed.send(MOMENTS_S)
        for at, each in enumerate(group.others(await group.led())):
            each.step_clock(step_ms * (-1) ** at)
        await timed.look(30.0)
        assert not timed.left

    play(scenario, options=TIMERS)


def test_fault_22_when_the_clock_of_a_leader_is_set_ahead_all_that_is_due_by_it_comes_at_once() -> None:
    async def scenario(group: Group) -> None:
        timed = Timed(group)
        await timed.send(MOMENTS_S)
        await timed.look(7.0)
        leader = await group.led()
        leader.step_clock(HOUR_MS)
        await timed.look(SLOT_S + SLACK_S)
        assert not timed.left
        assert await group.led() is leader

    play(scenario, options=TIMERS)


def test_fault_22_when_the_clock_of_a_leader_is_set_back_messages_come_by_that() -> None:
    """Those of before wait until it is as late again, and new ones do not."""

    async def scenario(group: Group) -> None:
        timed = Timed(group)
        await timed.send(MOMENTS_S)
        await timed.look(7.0)
        leader, left = await group.led(), timed.left
        leader.step_clock(-HOUR_MS)
        await timed.send([2, 4])
        await timed.look(10.0)
        assert timed.left == left > 0
        leader.step_clock(HOUR_MS)
        await timed.look(20.0)
        assert not timed.left
        assert await group.led() is leader

    play(scenario, options=TIMERS)


@pytest.mark.parametrize("step_ms", [-5000, 5000, HOUR_MS])
def test_fault_22_messages_come_by_the_clock_of_the_next_leader_when_that_is_another(step_ms: int) -> None:
    async def scenario(group: Group) -> None:
        timed = Timed(group)
        await timed.send(MOMENTS_S)
        await timed.look(7.0)
        old = await group.led()
        for each in group.others(old):
            each.step_clock(step_ms)
        old.kill()
        await timed.look(10.0)
        await old.start()
        await timed.look(20.0)
        assert not timed.left

    play(scenario, options=TIMERS)


def test_a_message_whose_cancel_is_acknowledged_in_the_last_moment_does_not_come() -> None:
    """The group takes longer to decide on the cancel than the message has to wait."""
    handles, cancelled = dict[str, str](), set[str]()

    async def scenario(group: Group) -> set[str]:
        leader = await group.led()
        moment_ms = (wall_ms(leader) // 1000 + 8) * 1000
        await group.client.do(program(group, leader, moment_ms))
        await group.sim.passes(5.0)
        return {message.body.decode() for message in shown(group, leader)}

    async def program(group: Group, leader: Machine, moment_ms: int) -> None:
        async with group.sim.client(group.client) as client, Producer("p", client=client) as producer:
            for body in map(str, range(20)):
                receipt = await producer.send(Message(TOPIC, body.encode(), deliver_at=moment_ms / 1000))
                assert receipt.recall_handle is not None
                handles[body] = receipt.recall_handle
            await group.sim.passes((moment_ms - wall_ms(leader)) / 1000 - 0.6)
            await asyncio.gather(*(cancel(group, producer, int(body)) for body in handles))

    async def cancel(group: Group, producer: Producer, number: int) -> None:
        await group.sim.passes(0.1 * number)
        with suppress(FlareError):
            if await producer.recall(handles[str(number)]) is Recall.CANCELLED:
                cancelled.add(str(number))

    came = play(scenario, options=TIMERS, quality=LinkQuality(latency_s=0.05))
    assert cancelled and came
    assert not cancelled & came
