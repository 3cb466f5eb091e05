"""Producers that are connected."""

from __future__ import annotations

from tests.broker.clients import FakePeer, a_member, settings_of

from flaremq.base.live import Live
from flaremq.broker.tables.producers import Producers


def test_producer_is_known_by_group_and_by_client() -> None:
    producers, member = Producers(Live(settings_of())), a_member("c1")
    producers.register("p", member)
    producers.register("q", member)
    assert producers.members("p") == [member]
    assert producers.by_client_id("c1") is member.peer
    assert set(producers.all()) == {"p", "q"}
    assert member.address == "10.0.0.9:5000"


def test_producer_that_says_good_bye_to_one_group_stays_in_the_other() -> None:
    producers, member = Producers(Live(settings_of())), a_member("c1")
    producers.register("p", member)
    producers.register("q", member)
    producers.unregister("p", member.peer)
    producers.unregister("p", member.peer)
    producers.unregister("q", FakePeer())
    assert set(producers.all()) == {"q"}
    assert producers.by_client_id("c1") is member.peer
    producers.unregister("q", member.peer)
    assert producers.by_client_id("c1") is None


def test_closed_connection_takes_all_its_groups_with_it() -> None:
    producers, member, other = Producers(Live(settings_of())), a_member("c1"), a_member("c2")
    for each in (member, other):
        producers.register("p", each)
    producers.register("q", member)
    producers.closed(member.peer)
    producers.closed(member.peer)
    assert producers.all() == {"p": [other]}


def test_client_that_has_come_back_is_found_on_its_new_connection() -> None:
    producers, old, new = Producers(Live(settings_of())), a_member("c1"), a_member("c1")
    producers.register("p", old)
    producers.register("p", new)
    producers.closed(old.peer)
    assert producers.by_client_id("c1") is new.peer


def test_silent_producer_is_let_go_and_its_connection_closed() -> None:
    producers, peer = Producers(Live(settings_of())), FakePeer()
    producers.register("p", a_member("c1", peer, last_seen_ms=1_000))
    producers.expire(1_000 + 120_000)
    assert producers.members("p")
    producers.register("p", a_member("c1", peer, last_seen_ms=2_000))  # It is heard of again.
    producers.expire(1_000 + 120_001)
    assert producers.members("p")
    producers.expire(2_000 + 120_001)
    assert not producers.members("p")
    assert not peer.is_open


def test_producers_are_not_noted_where_nobody_needs_them() -> None:
    producers = Producers(Live(settings_of(register_producers=False, reject_transactions=True)))
    producers.register("p", a_member())
    assert producers.all() == {}
