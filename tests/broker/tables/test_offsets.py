"""Offsets of groups: commits, resets, copies, and the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clients import Desk, desk
from tests.broker.desks import a_desk
from tests.protocol.samples import a_send

from flaremq.base.errors import FlushFailed
from flaremq.broker.tables.offsets import Offsets
from flaremq.model.topic import TopicConfig
from flaremq.protocol import fastjson


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path, offset_version_step=3) as made:
        yield made


@pytest.fixture
def offsets(made: Desk) -> Offsets:
    return made.offsets


def test_offset_that_nobody_has_committed_is_minus_one(offsets: Offsets) -> None:
    assert offsets.get("g", "T", 0) == -1
    offsets.commit("g", "T", 0, 5)
    assert offsets.get("g", "T", 1) == -1
    assert offsets.get("h", "T", 0) == -1


def test_last_commit_counts_even_if_it_is_less(offsets: Offsets) -> None:
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 0, 3)
    assert offsets.get("g", "T", 0) == 3


def test_negative_commit_is_none(offsets: Offsets) -> None:
    offsets.commit("g", "T", 0, -1)
    assert offsets.queues("g", "T") == {}


def test_version_grows_with_every_so_many_commits(offsets: Offsets) -> None:
    before = offsets.version.counter
    for offset in range(6):
        offsets.commit("g", "T", 0, offset)
    assert offsets.version.counter == before + 2


def test_reset_is_told_once_and_commits_are_dropped_until_then(offsets: Offsets) -> None:
    offsets.commit("g", "T", 0, 100)
    offsets.reset("g", "T", 0, 40)
    assert offsets.get("g", "T", 0) == 40
    assert offsets.has_reset("g", "T", 0)
    offsets.commit("g", "T", 0, 101)
    offsets.commit("g", "T", 1, 7)  # Another queue.
    assert offsets.get("g", "T", 0) == 40
    assert offsets.take_reset("g", "T", 1) is None
    assert offsets.take_reset("g", "T", 0) == 40
    assert offsets.take_reset("g", "T", 0) is None
    offsets.commit("g", "T", 0, 41)
    assert offsets.queues("g", "T") == {0: 41, 1: 7}


def test_topics_and_groups_are_found_by_each_other(offsets: Offsets) -> None:
    for group, topic in (("g", "A"), ("g", "B"), ("h", "A")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.groups_of_topic("A") == {"g", "h"}
    assert offsets.topics_of_group("g") == {"A", "B"}
    assert offsets.topics_by_group() == {"g": ["A", "B"], "h": ["A"]}


def test_removed_topic_and_group_leave_nothing_behind(offsets: Offsets) -> None:
    for group, topic in (("g", "A"), ("g", "B"), ("h", "A"), ("h", "B")):
        offsets.commit(group, topic, 0, 1)
        offsets.pulled(group, topic, 0, 2)
    offsets.reset("g", "A", 0, 1)
    offsets.remove_topic("A")
    assert offsets.get("g", "A", 0) == -1 and not offsets.has_reset("g", "A", 0)
    offsets.remove_group("g")
    assert offsets.topics_by_group() == {"h": ["B"]}
    assert offsets.pulled_to("g", "B") == {}
    assert offsets.pulled_to("h", "B") == {0: 2}


def test_cloned_group_stands_where_the_other_stood(offsets: Offsets) -> None:
    offsets.commit("g", "A", 0, 1)
    offsets.commit("h", "A", 1, 9)
    offsets.clone("g", "h", "A")
    offsets.clone("g", "h", "B")
    offsets.commit("g", "A", 0, 2)
    assert offsets.queues("h", "A") == {0: 1}
    assert offsets.topics_of_group("h") == {"A"}


async def test_offsets_outlive_the_broker(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        made.offsets.commit("g", "T", 0, 5)
        made.offsets.commit("g", "T", 3, 6)
        made.offsets.commit("g@broadcast", "T", 0, 7)
        await made.offsets.save()
        assert not made.offsets.dirty
    with desk(tmp_path) as made:
        made.offsets.load()
        assert made.offsets.queues("g", "T") == {0: 5, 3: 6}
        assert made.offsets.get("g@broadcast", "T", 0) == 7
        assert not made.offsets.dirty


async def test_file_is_as_java_writes_it(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        made.offsets.commit("g", "T", 0, 5)
        made.offsets.commit("g", "T", 1, 6)
        await made.offsets.save()
    text = (tmp_path / "config" / "consumerOffset.json").read_bytes()
    assert b'"T@g":{0:5,1:6}' in text
    data = fastjson.load_object(text)
    assert data.keys() == {"dataVersion", "offsetTable"}


async def test_no_offsets_at_all_are_a_file_too(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        made.offsets.remove_topic("T")
        await made.offsets.save()
        made.offsets.load()
        assert made.offsets.topics_by_group() == {}


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:6\n\t\t}\n\t}\n}',  # 4.9: no version.
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"groupTopicMap":{"g":["T"]},'
        '"offsetTable":{"T@g":{"0":5,"1":6}}}',
    ],
)
def test_file_of_javas_broker_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(text)
    with desk(tmp_path) as made:
        made.offsets.load()
        assert made.offsets.queues("g", "T") == {0: 5, 1: 6}


def test_all_offsets_are_given_by_topic_and_group(offsets: Offsets) -> None:
    offsets.commit("g", "T", 0, 5)
    assert offsets.wrapper().offset_table == {"T@g": {0: 5}}
    assert offsets.wrapper().data_version == offsets.version


async def test_offsets_on_the_disk_are_of_messages_on_the_disk(tmp_path: Path) -> None:
    """Else a group would skip what comes to the offsets of messages that a power failure has lost."""
    async with a_desk(tmp_path, flush_interval_ms=3_600_000) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 4, 4))
        await desk.ask(a_send(e="1"))
        end = desk.store.log.end
        desk.tables.offsets.commit("g", "TopicTest", 1, 1)
        assert desk.store.flushed.value < end
        await desk.tables.save()
        assert desk.store.flushed.value >= end
        assert saved_offsets(tmp_path) == {"TopicTest@g": {1: 1}}


async def test_after_a_failed_sync_no_newer_offsets_are_saved(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        desk.tables.offsets.commit("g", "T", 0, 1)
        await desk.tables.save()
        desk.store.flags.failed(FlushFailed("the disk failed"))
        desk.tables.offsets.commit("g", "T", 0, 2)
        await desk.tables.save()
        assert saved_offsets(tmp_path) == {"T@g": {0: 1}}


def saved_offsets(root: Path) -> object:
    return fastjson.load_object((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
