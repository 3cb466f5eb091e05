"""Programs of users while servers fail, return and come: they go on by themselves, and say what happened."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.programs import Program, Programs

from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.wireclient import WireClient

TOPICS = ["Orders", "Payments"]
QUEUES = 4
CLUSTERING, BROADCASTING = "G-clustering", "G-broadcasting"
LINE = re.compile(r"(INFO|WARNING) flaremq\.[\w.]+: \S")


class Site:
    """Servers, and the programs that use them."""

    def __init__(self, cluster: Cluster, programs: Programs) -> None:
        self._cluster = cluster
        self._programs = programs
        self.namesrvs: list[Process] = []
        self.brokers: dict[str, Process] = {}

    async def open(self) -> None:
        starts = [asyncio.to_thread(self._cluster.namesrv, f"namesrv-{n}") for n in (1, 2)]
        self.namesrvs = list(await asyncio.gather(*starts))
        await asyncio.gather(self.add_broker("broker-a"), self.add_broker("broker-b"))
        wish = {"namesrv": self.namesrv, "topics": TOPICS}
        self.producer = self._programs.start("produce", **wish)
        self.sharing = [
            self._programs.start("consume", **wish, group=CLUSTERING, consumers=count, logs=count == 2)
            for count in (2, 1)
        ]
        self.listening = [
            self._programs.start("consume", **wish, group=BROADCASTING, broadcasting=True, logs=logs)
            for logs in (True, False)
        ]
        for each in self.programs:
            await each.ready()

    @property
    def namesrv(self) -> str:
        return ";".join(each.address for each in self.namesrvs)

    @property
    def programs(self) -> list[Program]:
        return [self.producer, *self.sharing, *self.listening]

    async def add_broker(self, name: str) -> None:
        broker = await asyncio.to_thread(
            self._cluster.broker, name, self.namesrv, registerNameServerPeriod=10_000
        )
        self.brokers[name] = broker
        async with WireClient() as wire:
            for topic in TOPICS:
                await wire.create_topic(broker.address, topic, QUEUES)

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self.brokers[name].kill)

    async def again(self, name: str) -> None:
        self.brokers[name] = await asyncio.to_thread(self._cluster.again, self.brokers[name])

    async def name_server_again(self, number: int) -> None:
        self.namesrvs[number] = await asyncio.to_thread(self._cluster.again, self.namesrvs[number])

    async def more(self, count: int, broker: str | None = None) -> None:
        """So many more are sent, and come to all who want them."""
        before = len(self.producer.messages)

        def fresh() -> set[str]:
            sent = self.producer.messages[before:]
            return {each["body"] for each in sent if broker in (None, each["broker"])}

        async def are_sent() -> bool:
            return len(fresh()) >= count

        await eventually(f"{count} more are sent to {broker or 'anybody'}", are_sent)
        await self.all_came(fresh())

    async def all_came(self, wanted: set[str]) -> None:
        async def so() -> bool:
            shared = set[str]().union(*(each.bodies for each in self.sharing))
            return wanted <= shared and all(wanted <= each.bodies for each in self.listening)

        try:
            await eventually("all who want them have them", so)
        except TimeoutError as error:
            error.add_note(self._missing(wanted))
            raise

    def _missing(self, wanted: set[str]) -> str:
        """What has not come, where it lies, and what those who want it say."""
        shared = set[str]().union(*(each.bodies for each in self.sharing))
        lines = []
        for name, got in (("sharing", shared), *((each.folder.name, each.bodies) for each in self.listening)):
            left = [each for each in self.producer.messages if each["body"] in wanted - got]
            lines.append(f"{name}: {len(left)} of {len(wanted)} are missing: {left[:20]}")
        said = [f"{each.folder.name}:\n{each.errors[-2000:]}" for each in self.programs]
        return "\n".join(lines + said)

    async def close(self) -> None:
        """Sends end, everything comes, all programs end in order."""
        assert await asyncio.to_thread(self.producer.stop) == 0
        await self.all_came(self.producer.bodies)
        for each in (*self.sharing, *self.listening):
            assert await asyncio.to_thread(each.stop) == 0
        assert all(each.said[-1] == {"ended": True} for each in self.programs)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with Cluster(tmp_path / "servers") as cluster, Programs(tmp_path / "programs") as programs:
        made = Site(cluster, programs)
        await made.open()
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_programs_go_on_while_servers_are_killed_and_return_and_join(site: Site) -> None:
    await site.more(100)
    await asyncio.to_thread(site.namesrvs[0].kill)
    await site.more(100)
    await site.name_server_again(0)
    await site.kill("broker-a")
    await site.more(100, "broker-b")
    await site.again("broker-a")
    await site.more(50, "broker-a")
    await site.add_broker("broker-c")
    await site.more(50, "broker-c")
    await asyncio.to_thread(site.namesrvs[1].kill)
    await site.more(100)
    await site.close()
    check_what_programs_print(site)
    check_shares(site)


def check_what_programs_print(site: Site) -> None:
    """One line for each thing that happened, no trace of where in our code that was noticed."""
    address = site.brokers["broker-a"].address
    for program in site.programs:
        errors = program.errors
        assert "Traceback" not in errors and 'File "' not in errors, errors
        assert not [line for line in errors.splitlines() if not line or line[0].isspace()], errors
        assert ": None" not in errors, errors
        assert address in errors, "it says nothing of the broker that was away"
    for program in (site.sharing[0], site.listening[0]):
        lines = program.errors.splitlines()
        assert not [line for line in lines if not LINE.match(line)], lines
        assert [line for line in lines if f"lost the connection to broker {address}" in line]
        assert len(lines) < 150, "a failure is told once, not at every attempt"


def check_shares(site: Site) -> None:
    """Three consumers in two processes had shares of their own."""
    by = {(number, each["by"]) for number, program in enumerate(site.sharing) for each in program.messages}
    assert by == {(0, 0), (0, 1), (1, 0)}
