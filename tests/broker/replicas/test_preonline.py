"""What a member does before anyone can find it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.broker.replicas.wires import OWN, MemberBench

from flaremq.base.errors import FlareError
from flaremq.broker.features import Feature
from flaremq.broker.replicas.preonline import PreOnline
from flaremq.broker.tasks import Task
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.testing.clock import settle

MASTER, FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
EXCHANGE = RequestCode.EXCHANGE_BROKER_HA_INFO


class Registration(Feature):
    """Notes when it is started, and whether deliveries had begun by then."""

    step = "registration"

    def __init__(self, bench: MemberBench) -> None:
        self._bench = bench
        self.started: list[bool] = []
        self.stopped = 0

    async def start(self) -> None:
        self.started.append(not self._bench.duty.isolated)

    async def stop(self) -> None:
        self.stopped += 1

    def tasks(self) -> Iterable[Task]:
        yield Task("refresh", 1, 1, lambda: None)


class Start:
    """The start of one member."""

    def __init__(self, broker_id: int, **other: Any) -> None:
        self.bench = MemberBench(broker_id, **other)
        self.registration = Registration(self.bench)
        self.copied: list[str] = []
        self.it = PreOnline(
            self.bench.live,
            self.bench.duty,
            self.bench.members,
            self.bench.calls,
            registration=self.registration,
            replicas=self.bench.replicas,
            own=lambda: OWN,
            copy_back=self._copy_back,
            clock=self.bench.clock,
            sleep=self.bench.naps.sleep,
        )

    async def _copy_back(self, slave: str) -> None:
        if slave in self.copied:
            raise AssertionError(f"{slave} twice")
        self.copied.append(slave)

    @property
    def is_online(self) -> bool:
        return self.registration.started == [True]

    async def until_online(self) -> None:
        async with asyncio.timeout(10):
            while not self.is_online:
                await asyncio.sleep(0)

    async def rounds(self, count: int) -> None:
        """Let it try so many times."""
        for _ in range(count * 120):
            await asyncio.sleep(0)

    def takes(self, *slaves: str) -> list[tuple[str, dict[str, str]]]:
        """These follow as soon as they are asked to."""
        told: list[tuple[str, dict[str, str]]] = []

        def reply_of(slave: str) -> Any:
            def reply(request: Command) -> Command:
                told.append((slave, dict(request.fields)))
                self.bench.replicas.followed_by.add(slave.rpartition(":")[0])
                return response_to(request)

            return reply

        for slave in slaves:
            self.bench.wires.peers[slave] = {EXCHANGE: reply_of(slave)}
        return told


async def test_who_belongs_to_no_group_registers_at_once() -> None:
    start = Start(0, acting_master=False)
    await start.it.start()
    assert start.is_online and not start.bench.wires.asked
    assert [task.name for task in start.it.tasks()] == ["refresh"]
    await start.it.stop()
    assert start.registration.stopped == 1


async def test_who_skips_the_exchange_registers_at_once() -> None:
    start = Start(0, skip_pre_online=True)
    await start.it.start()
    assert start.is_online
    await start.it.stop()


async def test_the_first_member_of_a_group_starts() -> None:
    for broker_id in (0, 1):
        start = Start(broker_id)
        start.bench.wires.knows_group("n:1", {})
        await start.it.start()
        await start.until_online()
        await start.it.stop()


async def test_without_any_name_server_there_is_nobody_to_ask() -> None:
    start = Start(0, namesrvs="")
    await start.it.start()
    await start.until_online()
    await start.it.stop()


async def test_a_member_waits_until_a_name_server_answers() -> None:
    start = Start(0)
    await start.it.start()
    await start.rounds(2)
    assert not start.registration.started and set(start.bench.naps.slept) == {1.0}
    start.bench.wires.knows_group("n:1", {})
    await start.until_online()
    await start.it.stop()


async def test_who_is_stopped_while_it_waits_never_registers() -> None:
    start = Start(0)
    await start.it.start()
    await start.rounds(1)
    await start.it.stop()
    assert not start.registration.started and not start.registration.stopped


async def test_a_slave_without_a_master_starts() -> None:
    start = Start(2)
    start.bench.wires.knows_group("n:1", {1: FIRST, 2: "10.0.0.7:10911"})
    await start.it.start()
    await start.until_online()
    assert not start.bench.replicas.masters
    await start.it.stop()


async def test_a_slave_starts_when_the_log_of_its_master_comes() -> None:
    start = Start(1)
    start.bench.wires.knows_group("n:1", {0: MASTER})
    start.bench.takes_slaves(MASTER, "10.0.0.1:10912")
    await start.it.start()
    await start.rounds(3)
    assert start.bench.replicas.masters[0] == (MASTER, "10.0.0.1:10912")
    assert start.bench.clock.monotonic_s() > 10 and not start.registration.started
    start.bench.replicas.following = True
    await start.until_online()
    await start.it.stop()


async def test_a_slave_of_a_master_that_takes_none_starts_alone() -> None:
    start = Start(1)
    start.bench.wires.knows_group("n:1", {0: MASTER})
    start.bench.takes_slaves(MASTER, None)
    await start.it.start()
    await start.until_online()
    assert not start.bench.replicas.masters
    await start.it.stop()


async def test_a_master_that_returns_is_followed_by_each_slave_and_takes_over_what_it_has_done() -> None:
    start = Start(0)
    told = start.takes(SECOND, FIRST)
    start.bench.wires.knows_group("n:1", {2: SECOND, 1: FIRST, 0: MASTER})
    await start.it.start()
    await start.until_online()
    own = {
        "masterHaAddress": "10.0.0.1:10912", "masterFlushOffset": "4096", "masterAddress": "10.0.0.1:10911"
    }  # fmt: skip
    assert told == [(FIRST, own), (SECOND, own)]
    assert start.copied == [FIRST, SECOND]
    await start.it.stop()


async def test_a_master_waits_for_a_slave_that_does_not_follow_and_begins_nothing_twice() -> None:
    start = Start(0)
    start.takes(FIRST)
    start.bench.wires.knows_group("n:1", {1: FIRST, 2: SECOND})
    await start.it.start()
    await start.rounds(3)
    assert start.copied == [FIRST] and not start.registration.started
    start.takes(SECOND)
    await start.until_online()
    assert start.copied == [FIRST, SECOND]
    await start.it.stop()


async def test_a_slave_that_is_gone_is_not_waited_for() -> None:
    start = Start(0)
    start.bench.wires.knows_group("n:1", {1: FIRST})
    await start.it.start()
    await start.rounds(2)
    assert not start.registration.started
    start.bench.wires.knows_group("n:1", {})
    await start.until_online()
    await start.it.stop()


async def test_a_master_whose_slave_could_not_be_asked_tries_again() -> None:
    start = Start(0)
    start.takes(FIRST)
    start.bench.wires.knows_group("n:1", {1: FIRST})
    tries = list[str]()

    async def fails_twice(slave: str) -> None:
        tries.append(slave)
        if len(tries) == 1:
            raise FlareError("no answer")
        if len(tries) == 2:
            raise ZeroDivisionError("of all things")

    start.it._copy_back = fails_twice
    await start.it.start()
    await start.until_online()
    assert tries == [FIRST] * 3
    await settle()
    await start.it.stop()
