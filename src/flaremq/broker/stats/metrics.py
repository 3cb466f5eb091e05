"""The broker's Prometheus metrics, with the names and labels of RocketMQ 5.

    scrape > [look: tables copied in the event loop] > [write: lag, disks and text, in a thread] > answer

Nothing is kept between two scrapes except the counters that other parts keep anyway, so a deleted topic or
group is not shown for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.live import Live
from flaremq.base.metrics import CONTENT_TYPE, Registry
from flaremq.broker.features import Figure
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.runtime import END_TRANSACTION, Backlog
from flaremq.broker.stats.stats import Name, Stats
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import MESSAGE_TYPE, is_dlq, is_retry, is_system, is_system_group
from flaremq.protocol.bodies.group import ConsumeType
from flaremq.remoting.http import Answer
from flaremq.store import status
from flaremq.store.store import MessageStore

_GROUP_LABELS: Final = ("topic", "consumer_group", "is_retry", "is_system")
_PROCESSORS: Final = {
    "litePull": "lite_pull",
    "query": "query_message",
    "clientManager": "client_manager",
    "consumerManager": "consumer_manager",
    "adminBroker": "admin",
    END_TRANSACTION: "transaction",
}
"""Families for which RocketMQ's label differs from our name."""
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_FIRST_REGULAR_VERSION: Final = 213  # V4_0_0; from here on, two numbers per patch, ten patches per minor.
_HIGHER_VERSION: Final = 612


@dataclass(frozen=True, slots=True)
class _Place:
    """One queue of a group: the next message to be consumed, and to be pulled."""

    topic: str
    group: str
    queue_id: int
    committed: int
    pulled: int


@dataclass(frozen=True, slots=True)
class _Look:
    """A snapshot of everything that only the event loop may touch."""

    now_ms: int
    totals: Mapping[Name, Sequence[tuple[str, int]]]
    types: Mapping[str, str]
    """Message type by topic."""
    group_count: int
    producers: Mapping[tuple[str, str], int]
    consumers: Mapping[tuple[str, str, str, str], int]
    places: Sequence[_Place]
    waiting: Mapping[str, int]
    repeated: int
    """Messages that were sent again, and not stored again."""
    figures: Sequence[Figure]


class BrokerMetrics:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        *,
        store: MessageStore,
        stats: Stats,
        tables: Tables,
        families: Mapping[str, Backlog],
        offload: Offload,
        clock: Clock,
        parts: Sequence[Callable[[], Iterable[Figure]]] = (),
        displaced: Callable[[], str] = str,
        own: Registry | None = None,
    ) -> None:
        """`families`: backlogs by RocketMQ's names. `parts`: whoever else has figures to tell.
        `displaced`: why another master serves in our place. `own`: more metrics, shown last."""
        self._live = settings
        self._store = store
        self._stats = stats
        self._tables = tables
        self._families = families
        self._offload = offload
        self._clock = clock
        self._parts = parts
        self._displaced = displaced
        self._own = own
        self._scraping = asyncio.Lock()
        self._labels = {
            "cluster": settings.now.cluster_name,
            "node_type": "broker",
            "node_id": settings.now.broker_name,
            **extra_labels(settings.now.metrics_label),
        }

    async def page(self) -> Answer:
        """The metrics page. One scrape at a time: a second one waits, then takes a new snapshot."""
        async with self._scraping:
            look = self._look()
            return Answer(await self._offload.run(lambda: self._write(look)), CONTENT_TYPE)

    async def health(self) -> Answer:
        """Whether messages are accepted, and if not, why. Degraded: they are, but some part fails and
        retries."""
        if displaced := self._displaced():
            return Answer(f"serves no clients: {displaced}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            self._store.check_writable()
        except FlareError as error:
            return Answer(f"{error}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        degraded = self._store.flags.degraded
        return Answer(f"degraded: {degraded}\n" if degraded else "ok\n")

    def _look(self) -> _Look:
        tables = self._tables
        topics, groups = tables.topics.all(), tables.groups.all_groups()
        names = (
            *(Name.TOPIC_PUT_NUMS, Name.TOPIC_PUT_SIZE, Name.GROUP_GET_NUMS, Name.GROUP_GET_SIZE),
            Name.DLQ_PUT_NUMS,
        )
        return _Look(
            now_ms=self._clock.now_ms(),
            totals={name: list(self._stats.totals(name)) for name in names},
            types={
                name: config.attributes.get(MESSAGE_TYPE, "NORMAL").lower() for name, config in topics.items()
            },
            group_count=len(tables.subscriptions.all()),
            producers=Counter(
                _client_labels(each) for members in tables.producers.all().values() for each in members
            ),
            consumers=Counter(
                (name, _MODES[group.consume_type], *_client_labels(each))
                for name, group in groups.items()
                for each in group.members.values()
            ),
            places=list(_places(tables.offsets)),
            waiting={_PROCESSORS.get(name, name): family.waiting for name, family in self._families.items()},
            repeated=self._stats.rates.put_repeated,
            figures=[figure for part in self._parts for figure in part()],
        )

    def _write(self, look: _Look) -> str:
        page = _Sheet(self._labels, self._live.now.metrics_members_max)
        self._write_broker(page, look)
        self._write_messages(page, look)
        self._write_clients(page, look)
        self._write_lag(page, look)
        self._write_store(page, look)
        for each in look.figures:
            write = page.counters if each.is_counter else page.gauges
            write(each.name, each.text, each.labels, each.rows)
        return page.registry.exposition() + (self._own.exposition() if self._own is not None else "")

    def _write_broker(self, page: _Sheet, look: _Look) -> None:
        page.gauges(
            "rocketmq_processor_watermark",
            "Requests waiting to be served",
            ("processor",),
            (((name,), waiting) for name, waiting in look.waiting.items()),
        )
        page.gauge("rocketmq_broker_permission", "Permission bits of the broker", self._live.now.permission)
        page.gauge("rocketmq_topic_number", "Topics", len(look.types))
        page.gauge("rocketmq_consumer_group_number", "Consumer groups", look.group_count)

    def _write_messages(self, page: _Sheet, look: _Look) -> None:
        for name, total, text in (
            (Name.TOPIC_PUT_NUMS, "rocketmq_messages_in_total", "Messages stored"),
            (Name.TOPIC_PUT_SIZE, "rocketmq_throughput_in_total", "Bytes of messages stored"),
        ):
            rows = (
                ((topic, look.types.get(topic, "normal"), _boolean(is_system(topic))), value)
                for topic, value in look.totals[name]
            )
            page.counters(total, text, ("topic", "message_type", "is_system"), rows)
        text = "Messages that were sent again, and not stored again"
        page.counters("rocketmq_messages_repeated_total", text, (), [((), look.repeated)])
        for name, total, text in (
            (Name.GROUP_GET_NUMS, "rocketmq_messages_out_total", "Messages sent to consumers"),
            (Name.GROUP_GET_SIZE, "rocketmq_throughput_out_total", "Bytes sent to consumers"),
            (Name.DLQ_PUT_NUMS, "rocketmq_send_to_dlq_messages_total", "Messages sent to dead-letter topics"),
        ):
            keys = ((key.rpartition("@"), value) for key, value in look.totals[name])
            page.counters(
                total, text, _GROUP_LABELS, ((_group_labels(key[0], key[2]), value) for key, value in keys)
            )

    def _write_clients(self, page: _Sheet, look: _Look) -> None:
        page.gauges(
            "rocketmq_producer_connections",
            "Connected producers",
            ("language", "version", "protocol_type"),
            (((*labels, "remoting"), count) for labels, count in look.producers.items()),
        )
        page.gauges(
            "rocketmq_consumer_connections",
            "Connected consumers",
            ("consumer_group", "consume_mode", "language", "version", "protocol_type", "is_system"),
            (
                ((*labels, "remoting", _boolean(is_system_group(labels[0]))), count)
                for labels, count in look.consumers.items()
            ),
        )

    def _write_lag(self, page: _Sheet, look: _Look) -> None:
        lag, inflight, ready = (
            Counter[tuple[str, str]](),
            Counter[tuple[str, str]](),
            Counter[tuple[str, str]](),
        )
        lag_since: dict[tuple[str, str], int] = {}
        ready_since: dict[tuple[str, str], int] = {}
        for place in look.places:
            key, end = (place.topic, place.group), self._max_offset(place)
            committed, pulled = min(place.committed, end), min(max(place.pulled, place.committed), end)
            lag[key] += end - committed
            inflight[key] += pulled - committed
            ready[key] += end - pulled
            for since, offset in ((lag_since, committed), (ready_since, pulled)):
                if offset < end:
                    since[key] = min(since.get(key, look.now_ms), self._stored_ms(place, offset, look.now_ms))
        for name, text, counts in (
            ("rocketmq_consumer_lag_messages", "Messages not consumed yet", lag),
            ("rocketmq_consumer_inflight_messages", "Messages pulled but not consumed yet", inflight),
            ("rocketmq_consumer_ready_messages", "Messages not pulled yet", ready),
        ):
            page.gauges(name, text, _GROUP_LABELS, ((_group_labels(*key), n) for key, n in counts.items()))
        for name, text, since in (
            ("rocketmq_consumer_lag_latency", "Age in ms of the oldest message not consumed", lag_since),
            ("rocketmq_consumer_queueing_latency", "Age in ms of the oldest message not pulled", ready_since),
        ):
            rows = ((_group_labels(*key), look.now_ms - since.get(key, look.now_ms)) for key in lag)
            page.gauges(name, text, _GROUP_LABELS, rows)

    def _max_offset(self, place: _Place) -> int:
        return self._store.max_offset(place.topic.encode("utf-8", "replace"), place.queue_id)

    def _stored_ms(self, place: _Place, offset: int, now_ms: int) -> int:
        topic = place.topic.encode("utf-8", "replace")
        stored_ms = status.stored_ms(self._store, topic, place.queue_id, offset)
        return stored_ms if stored_ms > 0 else now_ms

    def _write_store(self, page: _Sheet, look: _Look) -> None:
        store = self._store
        disks, earliest_ms = status.disks(store), status.earliest_ms(store)
        labels = {"storage_type": "local", "storage_medium": "disk"}
        for name, text, value in (
            ("rocketmq_storage_size", "Bytes used on the disk", disks.total - disks.free),
            ("rocketmq_storage_flush_behind_bytes", "Bytes not synced yet", status.flush_behind(store)),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes not dispatched to queues yet",
                store.dispatcher.behind,
            ),
        ):
            page.gauges(name, text, tuple(labels), [(tuple(labels.values()), value)])
        if earliest_ms > 0:
            age = [(tuple(labels.values()), look.now_ms - earliest_ms)]
            page.gauges(
                "rocketmq_storage_message_reserve_time", "Age in ms of the oldest message", tuple(labels), age
            )


class _Sheet:
    """One exposition. Every metric has the broker's labels before its own."""

    def __init__(self, labels: Mapping[str, str], members_max: int) -> None:
        self.registry = Registry()
        self._labels = labels
        self._members_max = members_max

    def gauge(self, name: str, text: str, value: float) -> None:
        self.gauges(name, text, (), [((), value)])

    def gauges(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
    ) -> None:
        family = self.registry.gauges(name, text, *self._labels, *labels)
        for values, value in self._limited(labels, rows):
            family.labels(**values).set(value)

    def counters(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
    ) -> None:
        family = self.registry.counters(name, text, *self._labels, *labels)
        for values, value in self._limited(labels, rows):
            family.labels(**values).inc(value)

    def _limited(
        self, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
    ) -> Iterator[tuple[dict[str, str], float]]:
        for _, (given, value) in zip(range(self._members_max), rows, strict=False):
            yield {**self._labels, **dict(zip(labels, given, strict=True))}, value


def extra_labels(text: str) -> dict[str, str]:
    """The labels in metricsLabel, `name:value,name:value`. Raises ConfigError."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, colon, value = pair.partition(":")
        if not colon or not name.strip().isidentifier() or not name.isascii():
            raise ConfigError(
                f"metricsLabel={text!r}: {pair!r} is not a label; expected name:value,name:value"
            )
        found[name.strip()] = value.strip()
    return found


def version_name(number: int) -> str:
    """A client's version as Java names it; the bare number below V4_0_0."""
    if number >= _HIGHER_VERSION:
        return "higher_version"
    if number < _FIRST_REGULAR_VERSION:
        return str(number)
    patches, is_snapshot = (number - _FIRST_REGULAR_VERSION + 1) // 2, (number - _FIRST_REGULAR_VERSION) % 2
    major, rest = divmod(patches, 100)
    return f"v{4 + major}_{rest // 10}_{rest % 10}{'_snapshot' if is_snapshot else ''}"


def _places(offsets: Offsets) -> Iterator[_Place]:
    for group, topics in offsets.topics_by_group().items():
        for topic in topics:
            pulled = offsets.pulled_to(group, topic)
            for queue_id, committed in offsets.queues(group, topic).items():
                yield _Place(topic, group, queue_id, committed, pulled.get(queue_id, committed))


def _client_labels(client: ClientMember) -> tuple[str, str]:
    language = client.language.name.lower() if client.language is not None else "other"
    return language, version_name(client.version)


def _group_labels(topic: str, group: str) -> tuple[str, str, str, str]:
    retried, own = is_retry(topic) or is_dlq(topic), is_system(topic) or is_system_group(group)
    return topic, group, _boolean(retried), _boolean(own)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
