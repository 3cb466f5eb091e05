"""Expected shares are those of Java's own strategies."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import UsageError
from flaremq.model.allocate import (
    STRATEGIES,
    Average,
    AverageByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    strategy_named,
)
from flaremq.model.message import MessageQueue

MEMBERS = st.lists(st.text("abc123", min_size=1), min_size=1, max_size=8, unique=True)
COUNTS = st.integers(0, 40)


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


def shares(strategy: Strategy, count: int, members: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in strategy.allocate(me, queues(count), members)] for me in members]


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (3, 5, [[0], [1], [2], [], []]),
        (6, 3, [[0, 1], [2, 3], [4, 5]]),
        (0, 2, [[], []]),
    ],
)
def test_average_gives_neighbours(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(Average(), count, [f"c{k}" for k in range(members)]) == expected


@given(COUNTS, MEMBERS)
def test_average_counts_exactly_as_java_counts(count: int, members: list[str]) -> None:
    members = sorted(members)
    for index, share in enumerate(shares(Average(), count, members)):
        mod = count % len(members)
        extra = mod > 0 and index < mod
        size = 1 if count <= len(members) else count // len(members) + (1 if extra else 0)
        start = index * size if extra else index * size + mod
        assert share == list(range(start, start + min(size, count - start)))


def test_circle_deals_them_out() -> None:
    assert shares(AverageByCircle(), 8, ["c1", "c2", "c3"]) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert shares(AverageByCircle(), 1, ["c1", "c2"]) == [[0], []]


def test_consistent_hash_finds_the_owners_that_java_finds() -> None:
    assert shares(ConsistentHash(), 8, ["c1", "c2", "c3"]) == [[0, 4], [1, 2, 5, 6, 7], [3]]


def test_consistent_hash_moves_only_what_it_must() -> None:
    members = ["c1", "c2", "c3"]
    before = {me: set(ConsistentHash().allocate(me, queues(64), members)) for me in members}
    after = {me: set(ConsistentHash().allocate(me, queues(64), members[:2])) for me in members[:2]}
    assert all(before[me] <= after[me] for me in members[:2])


def test_a_ring_without_nodes_owns_nothing() -> None:
    assert ConsistentHash(virtual_nodes=0).allocate("c1", queues(8), ["c1"]) == []


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=lambda strategy: strategy.name)
@given(count=COUNTS, members=MEMBERS, data=st.data())
def test_every_queue_goes_to_exactly_one_member_in_whatever_order_they_are_given(
    strategy: Strategy, count: int, members: list[str], data: st.DataObject
) -> None:
    shuffled = [data.draw(st.permutations(queues(count))) for _ in members]
    given_members = [data.draw(st.permutations(members)) for _ in members]
    got = [
        strategy.allocate(me, mine, everyone)
        for me, mine, everyone in zip(members, shuffled, given_members, strict=True)
    ]
    assert Counter(chain.from_iterable(got)) == Counter(queues(count))
    assert all(share == sorted(share) for share in got)


def test_queues_are_sorted_by_number_and_not_by_text() -> None:
    many = [MessageQueue("T", "b", number) for number in (10, 9, 2, 1)]
    assert [queue.queue_id for queue in Average().allocate("a", many, ["a", "b"])] == [1, 2]


def test_members_are_sorted_as_java_sorts_strings() -> None:
    astral, high = "\U0001f600", "\uff5e"  # By code point the second comes first, in Java the first.
    assert shares(Average(), 2, [astral, high]) == [[0], [1]]


def everything() -> list[Strategy]:
    rooms = MachineRoom(frozenset({"r1"}))
    nearby = MachineRoomNearby(Average(), lambda queue: queue.broker_name, lambda member: member)
    return [*STRATEGIES.values(), rooms, nearby]


@pytest.mark.parametrize("strategy", everything(), ids=lambda strategy: strategy.name)
def test_who_is_no_member_gets_nothing(strategy: Strategy) -> None:
    assert strategy.allocate("stranger", queues(4, "r1@a"), ["c1", "c2"]) == []
    assert strategy.allocate("stranger", queues(4, "r1@a"), []) == []


def test_machine_room_takes_only_its_rooms_and_deals_the_rest_singly() -> None:
    strategy = MachineRoom(frozenset({"r1", "r2"}))
    many = [
        *queues(5, "r1@a"),
        *queues(3, "r2@b"),
        *queues(2, "r3@c"),
        *queues(2, "plain"),
        *queues(1, "r1@x@y"),
    ]
    got = [strategy.allocate(me, many, ["c1", "c2", "c3"]) for me in ("c1", "c2", "c3")]
    assert [[(queue.broker_name, queue.queue_id) for queue in share] for share in got] == [
        [("r1@a", 0), ("r1@a", 1), ("r2@b", 1)],
        [("r1@a", 2), ("r1@a", 3), ("r2@b", 2)],
        [("r1@a", 4), ("r2@b", 0)],
    ]


@pytest.mark.parametrize(
    ("broker", "counts"), [("r1@b", True), ("r1@b@", True), ("r1@", False), ("r1", False), ("@r1", False)]
)
def test_a_broker_name_is_split_as_java_splits(broker: str, counts: bool) -> None:
    got = MachineRoom(frozenset({"r1"})).allocate("c", queues(1, broker), ["c"])
    assert bool(got) is counts


def nearby(inner: Strategy) -> MachineRoomNearby:
    return MachineRoomNearby(
        inner, lambda queue: queue.broker_name.split("@")[0], lambda member: member.split("-")[0]
    )


def test_nearby_keeps_queues_in_their_room_and_shares_the_orphans() -> None:
    many = [*queues(4, "r1@a"), *queues(2, "r2@b"), *queues(4, "r3@c")]
    members = ["r1-x", "r1-y", "r2-z"]
    got = {me: nearby(Average()).allocate(me, many, members) for me in members}
    assert {
        me: [(queue.broker_name[:2], queue.queue_id) for queue in share] for me, share in got.items()
    } == {
        "r1-x": [("r1", 0), ("r1", 1), ("r3", 0), ("r3", 1)],
        "r1-y": [("r1", 2), ("r1", 3), ("r3", 2)],
        "r2-z": [("r2", 0), ("r2", 1), ("r3", 3)],
    }


def test_nearby_works_without_a_queue_in_my_room() -> None:
    assert nearby(Average()).allocate("r9-x", queues(2, "r1@a"), ["r9-x"]) == queues(2, "r1@a")
    assert nearby(AverageByCircle()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


def test_nearby_refuses_what_is_in_no_room() -> None:
    with pytest.raises(UsageError, match="has no machine room"):
        nearby(Average()).allocate("r1-x", queues(1, ""), ["r1-x"])
    with pytest.raises(UsageError, match="has no machine room"):
        nearby(Average()).allocate("r1-x", queues(1, "r1@a"), ["r1-x", ""])


def test_config_gives_what_it_was_told() -> None:
    fixed = queues(2)
    assert ByConfig(tuple(fixed)).allocate("anybody", [], []) == fixed
    assert ByConfig(()).name == "CONFIG"


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_a_strategy_is_found_by_its_name(name: str) -> None:
    assert strategy_named(name).name == name


@pytest.mark.parametrize("name", ["", "avg", "CONFIG", "MACHINE_ROOM"])
def test_another_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match="AVG, AVG_BY_CIRCLE, CONSISTENT_HASH"):
        strategy_named(name)
