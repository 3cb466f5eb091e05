"""All tables of a broker: topics, groups, offsets, filters, connected clients."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flaremq.base.clock import Clock
from flaremq.base.errors import InvalidName
from flaremq.base.files import Files
from flaremq.base.lifecycle import Owned
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.broadcast import BroadcastOffsets
from flaremq.broker.tables.configfile import Autosave, ConfigFile, save_all
from flaremq.broker.tables.consumers import Consumers, GroupHooks
from flaremq.broker.tables.delayoffsets import DelayOffsets
from flaremq.broker.tables.deletedtopics import DeletedTopics
from flaremq.broker.tables.filters import Filters
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.producers import Producers
from flaremq.broker.tables.queuelocks import QueueLocks
from flaremq.broker.tables.requestmodes import RequestModes
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.broker.tasks import MINUTE_S, Task
from flaremq.model import names
from flaremq.model.topic import TopicConfig
from flaremq.remoting.router import Peer
from flaremq.store.store import MessageStore

log = logger("broker.tables")


def _is_own(topic: str) -> bool:
    """Whether brokers make this topic themselves, when they have a message for it."""
    own = (names.TRANS_CHECK_MAX_TIME_TOPIC, names.UNDELIVERED_TOPIC)
    return names.is_dlq(topic) or names.is_retry(topic) or topic in own


class Tables(Feature):
    """All tables. Those that are kept on disk are in the folder `config` of the store."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        folder: Path,
        offload: Offload,
        clock: Clock,
        files: Files | None = None,
    ) -> None:
        self._folder, self._files = folder, files
        file = self.file
        self._clock = clock
        self._saving = Owned()
        self.topics = TopicConfigs(settings, file("topics.json"), offload, clock)
        self.subscriptions = SubscriptionGroups(settings, file("subscriptionGroup.json"), offload, clock)
        self.offsets = Offsets(settings, file("consumerOffset.json"), offload, clock)
        self.deleted = DeletedTopics(file("deletedTopics.json"), offload)
        self.delays = DelayOffsets(file("delayOffset.json"), offload, clock)
        self.modes = RequestModes(file("messageRequestMode.json"), offload)
        self.filters = Filters(settings, file("consumerFilter.json"), offload, clock)
        self.groups = Consumers(
            settings, clock, GroupHooks(registered=self.filters.register, gone=self.filters.unregister)
        )
        self.producers = Producers(settings)
        self.locks = QueueLocks(clock)
        self._live = settings
        self._broadcast: BroadcastOffsets | None = None
        self._store: MessageStore | None = None
        self._saves: tuple[Autosave, ...] = ()

    def file(self, name: str) -> ConfigFile:
        """A file beside those of the tables."""
        return ConfigFile(self._folder / name, self._files)

    @property
    def broadcast(self) -> BroadcastOffsets:
        assert self._broadcast is not None, "attach() has not been called yet"
        return self._broadcast

    def attach(self, store: MessageStore) -> None:
        """Create what needs the tables and the store."""
        self._store = store
        self.offsets.attach(store)
        self._broadcast = BroadcastOffsets(self._live, self.offsets, self.groups, store, self._clock)

    async def start(self) -> None:
        """Save topics and groups soon after every change from now on."""
        self._saves = (
            Autosave("topics", self.topics, self._saving),
            Autosave("groups", self.subscriptions, self._saving),
        )
        topics, groups = self._saves
        self.topics.listeners.append(lambda _changed: topics.changed())
        self.subscriptions.listeners.append(groups.changed)
        self._restore_topics()

    def _restore_topics(self) -> None:
        """Make topics again that the broker made for itself just before a crash, and had not saved yet.

        Their messages are there, and without the topic no one could read them.
        """
        counts: dict[str, int] = {}
        for (name, queue_id), queue in self._store.queues.items() if self._store is not None else ():
            topic = name.decode("utf-8", "replace")
            if _is_own(topic) and self.topics.get(topic) is None and queue.max_offset > queue.min_offset:
                counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        for topic, queues in counts.items():
            log.warning("a topic that a crash has lost is made again", extra=fields(topic=topic))
            self.topics.ensure(topic, queues)

    def is_awaited(self, topic: str) -> bool:
        """Whether a message that has waited can be stored in this topic, which is there, or was lost."""
        try:
            return self.topics.get(topic) is not None or self._is_lost(topic)
        except InvalidName:
            return False

    def awaited(self, topic: str, queue_id: int) -> TopicConfig | None:
        """The topic of a message that has waited to be stored there; None if it was deleted meanwhile.

        It may be one that the send itself had made, and that a crash has lost: those are saved a moment
        later. Nothing is in its queues yet that would tell. Raises InvalidName.
        """
        found = self.topics.get(topic)
        if found is not None or not self._is_lost(topic):
            return found
        log.warning("a topic that a crash has lost is made again", extra=fields(topic=topic))
        queues = 1 if _is_own(topic) else self._live.now.default_topic_queues
        return self.topics.ensure(topic, max(queues, queue_id + 1))

    def _is_lost(self, topic: str) -> bool:
        """Whether a topic that is not there may have been, and was not deleted. Raises InvalidName."""
        if topic in self.deleted or not (_is_own(topic) or self._live.now.auto_create_topics):
            return False
        names.check_topic(topic)
        return True

    async def stop(self) -> None:
        for save in self._saves:
            save.stop()
        await self._saving.aclose(timeout_s=5)
        await self.save()

    def tasks(self) -> Iterable[Task]:
        yield Task("save-tables", 10, self._live.now.flush_offsets_ms / 1000, self.save)
        yield Task("expire-clients", 10, 10, self.expire)
        yield Task("notify-groups", 10, 10, self.groups.tell)
        yield Task("expire-filters", 10, MINUTE_S, lambda: self.filters.expire(self._clock.now_ms()))

    def load(self) -> None:
        kept = self.topics, self.subscriptions, self.offsets, self.filters, self.deleted, self.delays
        for table in (*kept, self.modes):
            table.load()

    async def save(self) -> None:
        """Save the tables that have changed since the last time."""
        kept = self.topics, self.subscriptions, self.offsets, self.filters, self.deleted, self.modes
        await save_all(kept)

    def closed(self, peer: Peer) -> None:
        """A connection is gone: forget its heartbeats."""
        self.groups.closed(peer)
        self.producers.closed(peer)

    def expire(self) -> None:
        now_ms = self._clock.now_ms()
        self.groups.expire(now_ms)
        self.producers.expire(now_ms)
        self.locks.expire()
        self.broadcast.expire()
