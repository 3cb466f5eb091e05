"""Java's consumers and ours in one group, at Apache's broker and at ours, also when one of them is killed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.client.consumer.tools import Seen, a_topic, joined, numbered, owned, send
from tests.cluster.load import pause
from tests.cluster.programs import Programs
from tests.java import clients
from tests.java.clients import JavaClients
from tests.java.jvm import QUICK
from tests.java.peers import Apache, Flare, Kind, Peers
from tests.java.toolchain import Toolchain

from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import WireClient

pytestmark = pytest.mark.java

QUEUES = 8
KEYS = [f"k{number}" for number in range(24)]
JAVA = "5.3.3"
BOTH = pytest.mark.parametrize("place", ["apache", "flaremq"], indirect=True)
LOCK_LIFE_S = {"apache": 10.0, "flaremq": 60.0}
"""Apache's broker can be told to forget sooner than after RocketMQ's minute."""
SLACK_S = 20.0
"""By which those who try again may find a free lock later, and a busy machine may be late."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the servers are, and for how long their locks live."""

    namesrv: str
    addresses: list[str]
    lock_life_s: float


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    life_s = LOCK_LIFE_S[request.param]
    machine = replace(
        QUICK, properties={"rocketmq.broker.rebalance.lockMaxLiveTime": str(round(life_s * 1000))}
    )
    kind: Kind = Flare() if request.param == "flaremq" else Apache(java_toolchain, machine)
    with Peers(tmp_path_factory.mktemp("servers")) as peers:
        namesrv = peers.namesrv(kind)
        yield Place(namesrv.address, [peers.broker(kind, namesrv.address).address], life_s)


def java_at(place: Place, toolchain: Toolchain) -> JavaClients:
    java = JavaClients(toolchain, JAVA)
    java.namesrv = place.namesrv
    return java


async def java_joins(java: JavaClients, topic: str, group: str, *, orderly: bool) -> clients.PushConsumer:
    how = {"orderly": True} if orderly else {}
    return await asyncio.to_thread(lambda: java.push(topic, group, how=how))


async def java_has(consumer: clients.PushConsumer, topic: str, count: int) -> set[int]:
    """The numbers of its queues, once they are so many."""
    limit_s = asyncio.get_running_loop().time() + 90
    while True:
        found = await asyncio.to_thread(consumer.assigned, topic, count)
        if len(found) == count:
            return {queue.queue_id for queue in found}
        assert asyncio.get_running_loop().time() < limit_s, f"{len(found)} of {count}: {found}"


async def java_got(consumer: clients.PushConsumer) -> list[clients.Received]:
    return await asyncio.to_thread(consumer.received, 0, 0)


# In parallel.


@BOTH
async def test_java_and_ours_share_each_message_once_and_take_over_from_each_other(
    place: Place, java_toolchain: Toolchain
) -> None:
    topic, group, seen = "Shared", "G-shared", Seen()
    with java_at(place, java_toolchain) as java:
        async with a_topic(place, topic, QUEUES) as producer:
            async with joined(place, group, topic, seen) as ours:
                theirs = await java_joins(java, topic, group, orderly=False)
                await owned(ours, topic, 4)
                numbers = await java_has(theirs, topic, 4)
                mine = {each.queue_id for each in ours.assignment if each.topic == topic}
                assert mine | numbers == set(range(QUEUES))
                await steady(producer, topic, seen, theirs)
                async with flow(producer, topic) as sent:
                    await sent.more(100)
                    await asyncio.to_thread(theirs.stop)
                    await owned(ours, topic, 8)
                    await sent.more(100)
                    other = await java_joins(java, topic, group, orderly=False)
                    await owned(ours, topic, 4)
                    await java_has(other, topic, 4)
                    await sent.more(100)
                    await ours.stop()
                    await java_has(other, topic, 8)
                    await sent.more(100)
            await all_came(sent.bodies, seen, theirs, other)


async def steady(producer: Producer, topic: str, seen: Seen, theirs: clients.PushConsumer) -> None:
    """Nobody comes or goes: each message is consumed, by one of both, once."""
    bodies = numbered(400, "steady")
    await send(producer, topic, bodies)
    await all_came({body.decode() for body in bodies}, seen, theirs)
    there = [each.body for each in await java_got(theirs)]
    assert Counter(seen.bodies + there) == Counter(bodies)
    assert len(seen.bodies) == len(there) == 200


async def all_came(bodies: set[str], seen: Seen, *theirs: clients.PushConsumer) -> None:
    async def so() -> bool:
        there = [each.body for consumer in theirs for each in await java_got(consumer)]
        return bodies <= {body.decode() for body in (*seen.bodies, *there)}

    await eventually("all that was sent is consumed", so, 60)


@dataclass
class Sent:
    """What was acknowledged, and where it lies."""

    places: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def bodies(self) -> set[str]:
        return set(self.places.values())

    async def more(self, count: int) -> None:
        before = len(self.places)

        async def so() -> bool:
            return len(self.places) >= before + count

        await eventually(f"{count} more are sent", so)


@asynccontextmanager
async def flow(producer: Producer, topic: str) -> AsyncIterator[Sent]:
    """Messages with sharding keys, one after the other, until this is left."""
    sent, stop = Sent(), asyncio.Event()

    async def produce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = KEYS[number % len(KEYS)]
            body = f"{key}-{number}"
            receipt = await producer.send(Message(topic, body.encode(), sharding_key=key))
            sent.places[receipt.queue.queue_id, receipt.queue_offset] = body
            await pause(stop, 0.005)

    task = asyncio.create_task(produce())
    try:
        yield sent
    finally:
        stop.set()
        await task


# In order, with one of them killed.


@pytest.mark.parametrize("place", ["apache", pytest.param("flaremq", marks=pytest.mark.slow)], indirect=True)
async def test_order_is_kept_when_one_of_an_orderly_group_is_killed_and_the_other_takes_over(
    place: Place, java_toolchain: Toolchain, tmp_path: Path
) -> None:
    """Both ways at once, each in a topic and a group of its own: locks take their time to die."""
    with Programs(tmp_path) as programs:
        await asyncio.gather(
            ours_is_killed(place, java_toolchain, programs), java_is_killed(place, java_toolchain, programs)
        )


async def ours_is_killed(place: Place, toolchain: Toolchain, programs: Programs) -> None:
    topic, group = "OursDies", "G-ours-dies"
    with java_at(place, toolchain) as java:
        async with a_topic(place, topic, QUEUES) as producer, flow(producer, topic) as sent:
            ours = programs.start("consume", namesrv=place.namesrv, topics=[topic], group=group, orderly=True)
            await ours.ready()
            await sent.more(100)
            theirs = await java_joins(java, topic, group, orderly=True)
            given = await java_has(theirs, topic, 4)
            await sent.more(200)
            await asyncio.to_thread(ours.kill)
            killed_s = asyncio.get_running_loop().time()
            await java_has(theirs, topic, 8)
            took_s = asyncio.get_running_loop().time() - killed_s
            await sent.more(100)
        mine = [(each["queue"][2], each["offset"], each["body"]) for each in ours.messages]

        async def all_there() -> bool:
            return sent.bodies <= ours.bodies | {each.body.decode() for each in await java_got(theirs)}

        await eventually("all is consumed", all_there, 60)
        got = await java_got(theirs)
        there = [(each.queue.queue_id, each.queue_offset, each.body.decode()) for each in got]
    assert took_s < place.lock_life_s + SLACK_S
    check_order(mine, there, sent)
    # A queue that is given away in order is gone on with where it was left, without a message twice.
    twice = Counter(at for at, _, body in (*mine, *there)) - Counter(
        at for at, _ in {(at, body) for at, _, body in (*mine, *there)}
    )
    assert not twice.keys() & given


async def java_is_killed(place: Place, toolchain: Toolchain, programs: Programs) -> None:
    topic, group = "JavaDies", "G-java-dies"
    with java_at(place, toolchain) as java:
        async with a_topic(place, topic, QUEUES) as producer, flow(producer, topic) as sent:
            theirs = await java_joins(java, topic, group, orderly=True)
            await java_has(theirs, topic, 8)
            await sent.more(100)
            ours = programs.start("consume", namesrv=place.namesrv, topics=[topic], group=group, orderly=True)
            await ours.ready()
            kept = await java_has(theirs, topic, 4)
            await sent.more(200)
            got = await java_got(theirs)
            await asyncio.to_thread(java.__exit__)
            killed_s = asyncio.get_running_loop().time()
            starts = await committed(place, topic, group, kept)

            async def taken() -> bool:
                return kept <= {each["queue"][2] for each in ours.messages}

            await eventually("ours has what the other had", taken, place.lock_life_s + SLACK_S)
            took_s = asyncio.get_running_loop().time() - killed_s
            await sent.more(100)

        def known() -> set[tuple[int, int]]:
            """Places that are consumed: what the dead one did last, only its commits tell."""
            by_commits = {place for place in sent.places if place[1] < starts.get(place[0], 0)}
            there = {(each.queue.queue_id, each.queue_offset) for each in got}
            return by_commits | there | {(each["queue"][2], each["offset"]) for each in ours.messages}

        async def all_there() -> bool:
            return sent.places.keys() <= known()

        await eventually("all is consumed", all_there, 60)
    assert took_s < place.lock_life_s + SLACK_S
    mine = [(each["queue"][2], each["offset"], each["body"]) for each in ours.messages]
    first: dict[int, int] = {}
    for number, offset, _ in mine:
        first.setdefault(number, offset)
    assert {number: first[number] for number in kept} == starts
    there = [(each.queue.queue_id, each.queue_offset, each.body.decode()) for each in got]
    check_order(there, mine, sent, starts)


async def committed(place: Place, topic: str, group: str, numbers: Iterable[int]) -> dict[int, int]:
    """As the broker has it while nobody can have the queues."""
    async with WireClient() as wire:
        address = place.addresses[0]
        return {number: await wire.committed(address, group, topic, number) or 0 for number in numbers}


Delivered = tuple[int, int, str]


def check_order(
    before: list[Delivered], after: list[Delivered], sent: Sent, starts: Mapping[int, int] | None = None
) -> None:
    """Queues went from one to the other and never back: no message came before all those in front of it.

    `starts` is how far the first was at least, where that is known better than by its own word.
    """
    reached: defaultdict[int, int] = defaultdict(lambda: -1)

    def check(delivered: list[Delivered]) -> None:
        for number, offset, body in delivered:
            assert sent.places.get((number, offset), body) == body
            assert offset <= reached[number] + 1, f"queue {number} goes from {reached[number]} to {offset}"
            reached[number] = max(reached[number], offset)

    check(before)
    for number, start in (starts or {}).items():
        reached[number] = max(reached[number], start - 1)
    check(after)
    keys: dict[str, int] = {}
    for _, body in sorted(sent.places.items()):
        key, _, count = body.partition("-")
        assert keys.get(key, 0) < int(count)
        keys[key] = int(count)
