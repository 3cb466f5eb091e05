"""Topics that were deleted while the log still holds their messages, kept in deletedTopics.json.

A start looks at the last part of the log again and gives every record its queue entry. Without a note
of what was deleted, and when, it would bring back a topic's messages from before: unseen while nobody
knows the topic, and there again for whoever makes one of the same name. Java has no such file, and
passes over ours.
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
    """By name, where the log ended when the topic was deleted: its records below that are nobody's."""

    def __init__(self, file: ConfigFile, aside: Offload) -> None:
        self._saving = Saving(file, aside, self._take)
        self._ends: dict[str, int] = {}

    def load(self) -> None:
        """Read what was kept. Blocks."""
        self._ends = dict(self._saving.file.load_as(parse_deleted_topics) or {})

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        await self._saving.save()

    def all(self) -> Mapping[str, int]:
        return dict(self._ends)

    def add(self, topic: str, log_end: int) -> None:
        """Save it before the queues go: what is forgotten in between would come back."""
        self._ends[topic] = log_end
        self._saving.changes += 1

    def apply(self, store: MessageStore, topics: TopicConfigs) -> None:
        """Take away again what the store has brought back. Blocks; the store is loaded and not started.

        A log that ends earlier has lost its tail in a crash, or everything by hand: what will be written
        there is not what was deleted.
        """
        for topic, noted in list(self._ends.items()):
            name, end = topic.encode("utf-8", "replace"), min(noted, store.log.end)
            if end != noted:
                self.add(topic, end)
            if end <= store.log.begin:
                del self._ends[topic]  # The log has lost all of it: nothing can come back.
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
