"""The topics of this broker, kept in topics.json.

A topic is created by an administrator, by a first send (with the settings of a template topic, usually
TBW102), or by the broker itself, for retries and its own needs. Listeners are called in the loop, at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.errors import InvalidParameter
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.configfile import ConfigFile, Saving, lines
from flaremq.model import names
from flaremq.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion, TopicConfig, check_topic
from flaremq.protocol import beans
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper

log = logger("broker.topics")

Listener: TypeAlias = Callable[[Sequence[TopicConfig]], None]

QUEUES_MAX: Final = 65_536
"""Per topic. Every client of a topic makes an object for each of its queues."""

_BENCHMARK_QUEUES: Final = 1024
_DELAY_LEVELS: Final = 18
_READ_WRITE: Final = PERM_READ | PERM_WRITE
_UNIT: Final = 0x1  # Bit of a topic's sys flag.


def check_config(config: TopicConfig) -> None:
    """Raises InvalidName or InvalidParameter if a topic cannot have this config."""
    check_topic(config.topic_name)
    for name, count in (
        ("readQueueNums", config.read_queue_nums),
        ("writeQueueNums", config.write_queue_nums),
    ):
        if not 0 <= count <= QUEUES_MAX:
            raise InvalidParameter(
                f"topic {config.topic_name}: {name} is {count}, expected 0 to {QUEUES_MAX}"
            )
    if not 0 <= config.perm <= _READ_WRITE | PERM_INHERIT:
        raise InvalidParameter(
            f"topic {config.topic_name}: perm is {config.perm}, expected a sum of 4 (read), 2 (write), "
            "1 (inherit)"
        )


class TopicConfigs:
    """All topics by name. `version` grows with every change, so that slaves and NameServers notice."""

    def __init__(
        self, settings: Live[BrokerSettings], file: ConfigFile, offload: Offload, clock: Clock
    ) -> None:
        self._live = settings
        self._clock = clock
        self._saving = Saving(file, offload, self._take)
        self._topics: dict[str, TopicConfig] = {}
        self._view = MappingProxyType(self._topics)
        self._own = _own_names(settings.now)
        self.version = DataVersion()
        self.listeners: list[Listener] = []
        """Called in the loop after every change. A removed topic is not among the arguments."""

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    def load(self) -> None:
        """Load the file, and add the topics that a broker always has. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(TopicConfigSerializeWrapper, text))
        if kept is not None:
            self._topics.update(kept.topic_config_table)
            self.version = kept.data_version
        for preset in presets(self._live.now):
            # A preset that an administrator has changed stays changed.
            if self._topics.setdefault(preset.topic_name, preset) is preset:
                self._saving.changes += 1
        log.info("topics are loaded", extra=fields(count=len(self._topics), file=self._saving.file.path))

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    @property
    def changes(self) -> int:
        """How many there were. Who waits for something can tell by it whether the table is still the same."""
        return self._saving.changes

    async def save(self) -> None:
        await self._saving.save()

    async def settle(self) -> None:
        """See Saving.settle."""
        await self._saving.settle()

    def share(self, shared: Callable[[], Awaitable[None]], term: int) -> None:
        """This table is a leader's from now on: see Saving.shared. Its version differs from all of others."""
        self._saving.shared = shared
        self.version = DataVersion(term, self.version.counter + 1, self._clock.now_ms())
        self._saving.changes += 1

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def all(self) -> Mapping[str, TopicConfig]:
        """A read-only view of the current state."""
        return self._view

    def is_system(self, name: str) -> bool:
        """Whether a topic is the broker's own; those named after the cluster and the broker are too."""
        return names.is_system(name) or name in self._own

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic. An equal one changes nothing."""
        self.put_many([config])

    def put_many(self, configs: Sequence[TopicConfig]) -> None:
        changed = [config for config in configs if self._topics.get(config.topic_name) != config]
        if not changed:
            return
        for config in changed:
            self._topics[config.topic_name] = config
            log.info("a topic was created or changed", extra=fields(**config.to_dict()))
        self._changed(changed)

    def remove(self, name: str) -> TopicConfig | None:
        found = self._topics.pop(name, None)
        if found is not None:
            log.info("a topic was removed", extra=fields(topic=name))
            self._changed([])
        return found

    def replace_all(self, configs: Mapping[str, TopicConfig], version: DataVersion) -> list[str]:
        """Take over the table of a slave's master, and its version. Returns the names that are gone."""
        gone = [name for name in self._topics if name not in configs]
        self.adopt(configs, gone, version)
        return gone

    def adopt(self, configs: Mapping[str, TopicConfig], gone: Collection[str], version: DataVersion) -> None:
        """Take over what is new and what is gone in the table of a slave's master, and its version."""
        changed = [config for name, config in configs.items() if self._topics.get(name) != config]
        for name in gone:
            self._topics.pop(name, None)
        self._topics.update({config.topic_name: config for config in changed})
        log.info("topics are taken over from the master", extra=fields(changed=len(changed), gone=list(gone)))
        self._saving.changes += 1
        self.version = version
        for listener in self.listeners:
            listener(changed)

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit: bool = False
    ) -> TopicConfig | None:
        """Create the topic of a first send from the template that the sender names; None if not allowed."""
        found = self._topics.get(topic)
        if found is not None:
            return found
        pattern = self._topics.get(default_topic)
        forbidden = default_topic == names.AUTO_CREATE_TOPIC and not self._live.now.auto_create_topics
        if pattern is None or forbidden or not pattern.inherited:
            return None
        check_topic(topic)
        if queue_nums < 1:
            raise InvalidParameter(
                f"topic {topic} cannot be created with {queue_nums} queues: expected 1 or more"
            )
        queues = min(queue_nums, pattern.write_queue_nums)
        made = TopicConfig(
            topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=pattern.perm & ~PERM_INHERIT,
            topic_filter_type=pattern.topic_filter_type,
            topic_sys_flag=_UNIT if unit else 0,
        )
        self.put(made)
        return made

    def settings_changed(self, changed: frozenset[str]) -> None:
        """Apply a new defaultTopicQueueNums to the template, for topics created from now on."""
        if "defaultTopicQueueNums" not in changed:
            return
        pattern, count = self._topics.get(names.AUTO_CREATE_TOPIC), self._live.now.default_topic_queues
        if pattern is not None:
            self.put(replace(pattern, read_queue_nums=count, write_queue_nums=count))

    def ensure(
        self,
        topic: str,
        queue_nums: int,
        perm: int = _READ_WRITE,
        *,
        sys_flag: int = 0,
        order: bool | None = None,
    ) -> TopicConfig:
        """Create a topic that the broker needs, for retries or dead letters.

        An existing one stays as it is, except for `order` if that is given.
        """
        found = self._topics.get(topic)
        if found is not None:
            if order is not None and found.order != order:
                found = replace(found, order=order)
                self.put(found)
            return found
        made = TopicConfig(
            topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=sys_flag,
            order=bool(order),
        )
        check_config(made)
        self.put(made)
        return made

    def _changed(self, changed: Sequence[TopicConfig]) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self._saving.changes += 1
        for listener in self.listeners:
            listener(changed)

    def _take(self) -> Callable[[], bytes]:
        version, topics = self.version, dict(self._topics)

        def text() -> bytes:
            table = {name: config.to_dict() for name, config in topics.items()}
            return lines([("dataVersion", version.to_dict()), ("topicConfigTable", table)])

        return text


def presets(settings: BrokerSettings) -> Iterator[TopicConfig]:
    """The topics that a Java broker has from its first start on."""

    def topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
        return TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    cluster, broker = settings.cluster_name, settings.broker_name
    yield topic(names.SELF_TEST_TOPIC, 1)
    if settings.auto_create_topics:
        yield topic(names.AUTO_CREATE_TOPIC, settings.default_topic_queues, _READ_WRITE | PERM_INHERIT)
    yield topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES)
    yield topic(cluster, 16, PERM_INHERIT | (_READ_WRITE if settings.cluster_topic else 0))
    yield topic(broker, 1, PERM_INHERIT | (_READ_WRITE if settings.broker_topic else 0))
    yield topic(names.OFFSET_MOVED_EVENT_TOPIC, 1)
    yield topic(names.SCHEDULE_TOPIC, _DELAY_LEVELS)
    if settings.trace_topic:
        yield topic(settings.trace_topic_name, 1)
    yield topic(names.reply_topic(cluster), 1)
    yield topic(names.revive_topic(cluster), settings.revive_queues)
    yield topic(names.sync_member_topic(broker), 1, PERM_INHERIT)
    yield topic(names.TRANS_HALF_TOPIC, 1)
    yield topic(names.TRANS_OP_HALF_TOPIC, 1)
    yield topic(names.TIMER_TOPIC, 1)


def _own_names(settings: BrokerSettings) -> frozenset[str]:
    cluster, broker = settings.cluster_name, settings.broker_name
    trace = {settings.trace_topic_name} if settings.trace_topic else set()
    return frozenset({cluster, broker, names.reply_topic(cluster)} | trace)
