"""Where broadcasting consumers are, when they cannot keep it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.clients import Desk, FakePeer, a_member, desk, wants

from flaremq.broker.tables.broadcast import BroadcastOffsets, BroadcastPull, group_of_all
from flaremq.testing.fakes.builders import a_message

PULL = BroadcastPull(topic="TopicTest", group="g", client_id="c1", queue_id=0, offset=5)
ASKS = replace(PULL, offset=-1, from_proxy=True)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made, made.store:
        yield made


@pytest.fixture
def broadcast(made: Desk) -> BroadcastOffsets:
    return BroadcastOffsets(made.live, made.offsets, made.groups, made.store, made.clock)


def test_client_that_keeps_its_offsets_begins_where_it_says(broadcast: BroadcastOffsets) -> None:
    assert broadcast.first(PULL) is None
    broadcast.update(PULL)
    assert broadcast.first(replace(PULL, offset=2)) is None


def test_proxy_that_asks_is_told_where_its_client_was(broadcast: BroadcastOffsets) -> None:
    broadcast.update(replace(PULL, from_proxy=True))
    broadcast.update(replace(PULL, offset=3, from_proxy=True))  # Offsets only grow.
    assert broadcast.first(ASKS) == 5


def test_client_that_comes_another_way_goes_on_where_it_was(broadcast: BroadcastOffsets) -> None:
    broadcast.update(PULL)
    assert broadcast.first(replace(PULL, offset=0, from_proxy=True)) == 5
    broadcast.update(replace(PULL, offset=9, from_proxy=True))
    assert broadcast.first(PULL) == 9


def test_new_client_of_a_proxy_goes_on_where_the_group_was(made: Desk, broadcast: BroadcastOffsets) -> None:
    made.offsets.commit(group_of_all("g"), "TopicTest", 0, 7)
    assert broadcast.first(ASKS) == 7


def test_new_group_begins_with_a_young_queue(made: Desk, broadcast: BroadcastOffsets) -> None:
    assert broadcast.first(ASKS) == 0
    made.store.put(a_message())
    made.store.dispatch()
    assert broadcast.first(ASKS) == 0


def test_group_is_as_far_as_the_last_of_its_clients(made: Desk, broadcast: BroadcastOffsets) -> None:
    broadcast.update(PULL)
    broadcast.update(replace(PULL, client_id="c2", offset=3))
    broadcast.expire()
    assert made.offsets.get(group_of_all("g"), "TopicTest", 0) == 3


async def test_client_that_is_gone_is_forgotten_sooner_than_one_that_is_silent(
    made: Desk, broadcast: BroadcastOffsets
) -> None:
    made.groups.heartbeat(a_member("c1", FakePeer()), wants("g", "TopicTest"))
    broadcast.update(PULL)
    broadcast.update(replace(PULL, client_id="c2", offset=3))
    made.clock.advance_ms(120_000)
    broadcast.expire()
    assert made.offsets.get(group_of_all("g"), "TopicTest", 0) == 5  # The other one no longer counts.
    assert broadcast.first(replace(PULL, from_proxy=True)) == 5
    made.clock.advance_ms(180_000)
    broadcast.expire()
    assert broadcast.first(replace(PULL, from_proxy=True)) is None
