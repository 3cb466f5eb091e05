"""Who is in a group, what the group wants, and who hears of a change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.broker.clients import FakePeer, a_member, settings_of, wants

from flaremq.base.live import Live
from flaremq.broker.tables.consumers import Consumers, GroupHooks
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import (
    GetConsumerListByGroupResponseBody,
    MessageModel,
    SubscriptionData,
)
from flaremq.protocol.codes import RequestCode
from flaremq.testing.clock import ManualClock, settle

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def groups(clock: ManualClock) -> Consumers:
    return Consumers(Live(settings_of()), clock)


def told(peer: FakePeer) -> int:
    """How often it has heard of a change."""
    return peer.codes().count(NOTIFY)


def ids(groups: Consumers, name: str = "g") -> tuple[str, ...]:
    group = groups.get(name)
    assert group is not None
    return beans.decode(GetConsumerListByGroupResponseBody, group.ids_body()).consumer_id_list


async def test_member_is_there_after_its_first_heartbeat(groups: Consumers) -> None:
    assert groups.get("g") is None
    assert groups.heartbeat(a_member("c1"), wants("g", "T", "U"))
    assert ids(groups) == ("c1",)
    assert groups.subscription("g", "T") == SubscriptionData.of("T", sub_version=1)
    assert groups.subscription("g", "X") is None and groups.subscription("h", "T") is None
    assert groups.groups_of_topic("T") == {"g"}


async def test_same_heartbeat_again_changes_nothing(groups: Consumers) -> None:
    peer = FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T"))
    await settle()
    assert not groups.heartbeat(a_member("c1", peer, last_seen_ms=5), wants("g", "T"))
    await settle()
    assert told(peer) == 1
    group = groups.get("g")
    assert group is not None and group.members[peer].last_seen_ms == 5


async def test_all_members_hear_who_comes_and_goes(groups: Consumers) -> None:
    first, second = FakePeer(1), FakePeer(2)
    groups.heartbeat(a_member("c1", first), wants("g", "T"))
    await settle()
    groups.heartbeat(a_member("c2", second), wants("g", "T"))
    await settle()
    assert (told(first), told(second)) == (2, 1)
    assert first.sent[0].is_oneway and first.sent[0].fields == {"consumerGroup": "g"}
    groups.unregister("g", second)
    await settle()
    assert (told(first), told(second)) == (3, 1)
    assert ids(groups) == ("c1",)


async def test_changes_of_one_turn_are_told_together(groups: Consumers) -> None:
    peers = [FakePeer(port) for port in range(50)]
    for number, peer in enumerate(peers):
        groups.heartbeat(a_member(f"c{number}", peer), wants("g", "T"))
    for peer in peers[25:]:
        groups.closed(peer)
    await settle()
    assert [told(peer) for peer in peers] == [1] * 25 + [0] * 25


async def test_change_costs_its_own_group_only(groups: Consumers) -> None:
    other = FakePeer(1)
    groups.heartbeat(a_member("c1", other), wants("h", "T"))
    await settle()
    groups.heartbeat(a_member("c2", FakePeer(2)), wants("g", "T"))
    await settle()
    assert told(other) == 1


@pytest.mark.parametrize(
    ("settings", "notify", "model"),
    [
        ({}, True, MessageModel.BROADCASTING),
        ({}, False, MessageModel.CLUSTERING),
        ({"notify_ids_changed": False}, True, MessageModel.CLUSTERING),
    ],
)
async def test_nobody_is_told_where_nobody_needs_to_know(
    clock: ManualClock, settings: dict[str, bool], notify: bool, model: MessageModel
) -> None:
    groups, peer = Consumers(Live(settings_of(**settings)), clock), FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T", message_model=model), notify=notify)
    await settle()
    assert peer.sent == []


async def test_changes_wait_to_be_told_where_that_is_wished(clock: ManualClock) -> None:
    groups, peer = Consumers(Live(settings_of(notify_at_once=False)), clock), FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T"))
    await settle()
    assert told(peer) == 0
    groups.tell()
    groups.tell()
    assert told(peer) == 1


async def test_topics_that_a_heartbeat_leaves_out_are_dropped(groups: Consumers) -> None:
    peer = FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T", "U"))
    await settle()
    assert groups.heartbeat(a_member("c1", peer), wants("g", "T", "V"))
    await settle()
    assert told(peer) == 2
    assert groups.subscription("g", "U") is None
    assert groups.groups_of_topic("U") == set() and groups.groups_of_topic("V") == {"g"}


async def test_heartbeat_without_subscriptions_keeps_those_that_are_known(groups: Consumers) -> None:
    peer = FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T"))
    assert not groups.heartbeat(a_member("c1", peer), wants("g"), without_sub=True)
    assert groups.subscription("g", "T") is not None


async def test_only_a_newer_subscription_replaces_a_known_one(groups: Consumers, clock: ManualClock) -> None:
    def says(tags: str, version: int) -> None:
        wanted = SubscriptionData.of("T", tags, sub_version=version)
        said = wants("g")
        groups.heartbeat(member, type(said)(group_name="g", subscription_data_set=(wanted,)))

    member = a_member("c1")
    says("a", 2)
    clock.advance_ms(5)
    says("b", 2)
    says("c", 1)
    group, known = groups.get("g"), groups.subscription("g", "T")
    assert group is not None and known is not None
    assert known.sub_string == "a" and group.subscription_changed_ms == clock.now_ms() - 5
    says("d", 3)
    known = groups.subscription("g", "T")
    assert known is not None and known.sub_string == "d"
    assert group.subscription_changed_ms == clock.now_ms()


async def test_closed_connection_leaves_all_its_groups(groups: Consumers) -> None:
    peer = FakePeer()
    for name in ("g", "h"):
        groups.heartbeat(a_member("c1", peer), wants(name, "T"))
    groups.closed(peer)
    groups.closed(peer)
    groups.unregister("g", peer)
    assert groups.all_groups() == {}
    assert groups.groups_of_topic("T") == set()
    await settle()
    assert peer.sent == []  # Nobody is left to be told.


async def test_silent_member_is_let_go_and_its_connection_closed(
    groups: Consumers, clock: ManualClock
) -> None:
    silent, loud = FakePeer(1), FakePeer(2)
    groups.heartbeat(a_member("c1", silent, last_seen_ms=clock.now_ms()), wants("g", "T"))
    clock.advance_ms(100_000)
    groups.heartbeat(a_member("c2", loud, last_seen_ms=clock.now_ms()), wants("g", "T"))
    clock.advance_ms(20_000)
    groups.expire(clock.now_ms())
    assert ids(groups) == ("c1", "c2")
    clock.advance_ms(1)
    groups.expire(clock.now_ms())
    await settle()
    assert ids(groups) == ("c2",)
    assert not silent.is_open and loud.is_open
    assert told(loud) == 1  # Coming and going, in one turn.


async def test_client_on_two_connections_is_one_member_of_the_list(groups: Consumers) -> None:
    old, new = FakePeer(1), FakePeer(2)
    groups.heartbeat(a_member("c1", old), wants("g", "T"))
    groups.heartbeat(a_member("c1", new), wants("g", "T"))
    group = groups.get("g")
    assert group is not None
    assert ids(groups) == ("c1",)
    member = group.member("c1")
    assert member is not None and member.peer is new
    groups.closed(old)
    assert ids(groups) == ("c1",)


async def test_connection_that_changes_its_id_is_listed_under_the_new_one(groups: Consumers) -> None:
    peer = FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T"))
    assert ids(groups) == ("c1",)
    groups.heartbeat(a_member("c2", peer), wants("g", "T"))
    assert ids(groups) == ("c2",)


async def test_who_keeps_something_for_groups_is_told(clock: ManualClock) -> None:
    events: list[tuple[str, ...]] = []

    def registered(group: str, wanted: Iterable[SubscriptionData]) -> None:
        events.append((group, *(each.topic for each in wanted)))

    hooks = GroupHooks(registered, lambda group: events.append(("gone", group)))
    groups, peer = Consumers(Live(settings_of()), clock, hooks), FakePeer()
    groups.heartbeat(a_member("c1", peer), wants("g", "T"))
    groups.closed(peer)
    assert events == [("g", "T"), ("gone", "g")]
