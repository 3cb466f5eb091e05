"""Deleted topics stay deleted, whatever the log still holds of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.clients import Desk, desk

from flaremq.base.errors import ConfigError
from flaremq.broker.handlers.admin_topic import AdminTopicHandlers
from flaremq.broker.tables.configfile import ConfigFile
from flaremq.broker.tables.deletedtopics import DeletedTopics
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode
from flaremq.testing.fakes.builders import a_message


@contextmanager
def broker(root: Path) -> Iterator[tuple[Desk, DeletedTopics]]:
    """One life of a broker: all is loaded, what was deleted is taken away, and requests are served."""
    with desk(root) as made:
        deleted = DeletedTopics(ConfigFile(root / "config" / "deletedTopics.json"), made.offload)
        deleted.load()
        made.store.load()
        deleted.apply(made.store, made.topics)
        made.store.start()
        made.serve(AdminTopicHandlers(made.tables, made.store, made.stats, made.offload).table())
        yield made, deleted


def put(made: Desk, topic: str, count: int) -> None:
    for _ in range(count):
        made.store.put(a_message(topic=topic.encode()))
    made.store.dispatch()


async def delete(made: Desk, topic: str) -> None:
    assert (await made.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0


async def test_deleted_topic_does_not_come_back_with_a_new_start(tmp_path: Path) -> None:
    with broker(tmp_path) as (made, _):
        for topic in ("A", "B"):
            made.topics.put(TopicConfig(topic))
            put(made, topic, 10)
        await delete(made, "A")
    for _ in range(2):
        with broker(tmp_path) as (made, _):
            assert made.store.max_offset(b"A", 0) == 0
            assert made.store.max_offset(b"B", 0) == 10


async def test_topic_that_was_made_again_has_only_what_came_since(tmp_path: Path) -> None:
    with broker(tmp_path) as (made, _):
        made.topics.put(TopicConfig("A"))
        put(made, "A", 10)
        await delete(made, "A")
        made.topics.put(TopicConfig("A"))
        await made.topics.save()
    with broker(tmp_path) as (made, _):
        assert made.store.min_offset(b"A", 0) == made.store.max_offset(b"A", 0) == 10
        put(made, "A", 2)
        assert made.store.get(b"A", 0, 10).count == 2
    with broker(tmp_path) as (made, _):
        assert (made.store.min_offset(b"A", 0), made.store.max_offset(b"A", 0)) == (10, 12)


def test_topic_that_has_left_the_log_is_forgotten(tmp_path: Path) -> None:
    with broker(tmp_path) as (made, deleted):
        put(made, "Other", 1)
        deleted.add("A", made.store.log.begin)
        deleted.add("B", made.store.log.begin + 1)
        deleted.apply(made.store, made.topics)
        assert set(deleted.all()) == {"B"}


def test_log_that_ends_earlier_hides_nothing_that_is_written_later(tmp_path: Path) -> None:
    with broker(tmp_path) as (made, deleted):
        deleted.add("A", 1 << 40)
        deleted.apply(made.store, made.topics)
        assert deleted.all() == {}  # Nothing is there at all.
        put(made, "Other", 1)
        deleted.add("A", 1 << 40)
        deleted.apply(made.store, made.topics)
        assert deleted.all() == {"A": made.store.log.end}
        assert deleted.dirty


@pytest.mark.parametrize("text", ["{}", '{"deletedTopics":5}', '{"deletedTopics":{"A":"x"}}', "{"])
def test_file_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "deletedTopics.json").write_text(text)
    with pytest.raises(ConfigError, match=r"deletedTopics\.json"), broker(tmp_path):
        pass
