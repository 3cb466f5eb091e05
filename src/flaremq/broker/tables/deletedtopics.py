"""Topics that were deleted while the log still holds their messages, kept in deletedTopics.json.

A start walks the last part of the log again and gives every record its queue entry. Without a note of what
was deleted, and when, it would bring back the messages of a deleted topic: invisible at first, but there
again as soon as a topic of the same name is created. Java has no such file, and ignores ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.tables.configfile import ConfigFile, Saving, lines
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.protocol.configfiles import DELETED_TOPICS, parse_deleted_topics
from flaremq.store.store import MessageStore

log = logger("broker.deleted")


class DeletedTopics:
    """By name, where the log ended when the topic was deleted: its records below that are void."""

    def __init__(self, file: ConfigFile, offload: Offload) -> None:
        self._saving = Saving(file, offload, self._take)
        self._ends: dict[str, int] = {}

    def load(self) -> None:
        """Load the file. Blocks."""
        self._ends = dict(self._saving.file.load_as(parse_deleted_topics) or {})

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        await self._saving.save()

    def __contains__(self, topic: str) -> bool:
        return topic in self._ends

    def all(self) -> Mapping[str, int]:
        return dict(self._ends)

    def add(self, topic: str, log_end: int) -> None:
        """Note a deletion. Save it before the queues are removed, or a crash in between brings them back."""
        self._ends[topic] = log_end
        self._saving.changes += 1

    def apply(self, store: MessageStore, topics: TopicConfigs) -> None:
        """Remove what the store has brought back. Blocks; the store must be loaded and not started.

        A log that ends earlier than noted has lost its tail in a crash, or was deleted by hand: what will
        be written there is not what was deleted.
        """
        for topic, noted in list(self._ends.items()):
            name, end = topic.encode("utf-8", "replace"), min(noted, store.log.end)
            if end != noted:
                self.add(topic, end)
            if end <= store.log.begin:
                del self._ends[topic]  # All of it has left the log: nothing can come back.
                self._saving.changes += 1
            elif topics.get(topic) is None:
                if store.dispatcher.remove_topic(name):
                    log.info("a deleted topic stays deleted", extra=fields(topic=topic))
            else:
                for key, queue in store.queues.items():
                    if key[0] == name:
                        queue.correct_min(end)

    def _take(self) -> Callable[[], bytes]:
        ends = dict(self._ends)
        return lambda: lines([(DELETED_TOPICS, ends)])
