"""Options of a read: topics, bounds, limits, filters, columns.

Spark passes all options as text to every process of a query. Each process parses them here once, into checked
values that are sent along with the tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import ConfigError, UsageError
from flaremq.base.units import cores
from flaremq.model.message import MessageQueue
from flaremq.model.names import check_group, check_topic
from flaremq.model.queuekey import queue_of
from flaremq.spark.options import (
    BROKER_TIMEOUT_MS,
    DEFAULT_GROUP,
    OptionReader,
    name_server_of,
    wanted_columns,
    wrong,
)
from flaremq.spark.read.bounds import Bound, BoundKind, bound_of

_OF_STREAMS: Final = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
)
_OF_BATCHES: Final = ("endingOffsets", "endingTimestamp")
_WHAT: Final = ("topic", "topics", "topicPattern", "queues")
NAMES: Final = (
    "nameServer",
    *_WHAT,
    *("startingOffsets", "startingTimestamp", *_OF_BATCHES, "group"),
    *_OF_STREAMS,
    *("failOnDataLoss", "brokerTimeout", "tags", "sql", "columns", "includeProperties"),
    *("tasks", "minPartitions", "maxRowsPerPartition"),
)
"""All options, as the guide spells them."""

_HASTY_S: Final = 10.0
_TRIGGER_DELAY_MS: Final = 15 * 60_000
_QUEUES: Final = '{"Orders": {"broker-a": [0, 1]}} or ["Orders@broker-a:0"]'


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues to read: those of topics, of topics that match a pattern, or a list of queues."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] = ()

    def takes(self, queue: MessageQueue) -> bool:
        """Whether the selection includes a queue, by its name."""
        if self.queues:
            return queue in self.queues
        return queue.topic in self.topics or (
            self.pattern is not None and re.fullmatch(self.pattern, queue.topic) is not None
        )

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topicPattern {self.pattern}"
        if self.queues:
            return f"{len(self.queues)} queues of {', '.join(sorted({each.topic for each in self.queues}))}"
        return f"topics {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages a broker returns: by tags or by an SQL expression; all if neither is set."""

    tags: tuple[str, ...] = ()
    sql: str | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.tags) or self.sql is not None


NO_FILTER: Final = Filter()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that a micro-batch takes, and the least that it waits for."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int = 0
    delay_s: float = _TRIGGER_DELAY_MS / 1000


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How ranges of queues are divided into tasks."""

    tasks: int
    """The most tasks, unless one of the other two needs more."""
    partitions_min: int = 1
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    name_server: str
    selection: Selection
    starting: Bound
    ending: Bound
    filter: Filter
    limits: BatchLimits
    shape: Partitioning
    columns: tuple[str, ...] = COLUMNS
    group: str | None = None
    """Consumer group whose offsets are committed in the brokers; None: no offsets are committed."""
    fail_on_data_loss: bool = True
    broker_timeout_s: float = BROKER_TIMEOUT_MS / 1000

    @property
    def reading_group(self) -> str:
        """Consumer group used for pulls."""
        return self.group or DEFAULT_GROUP

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """Raises ConfigError. With `streaming=None`, options of batches and of streams are both accepted."""
        given = OptionReader(options, NAMES)
        _check_kind(given, streaming)
        timeout_ms = given.span_ms("brokerTimeout") or BROKER_TIMEOUT_MS
        usual = Bound(BoundKind.LATEST if streaming else BoundKind.EARLIEST)
        return cls(
            name_server=name_server_of(given),
            selection=_selection(given),
            starting=bound_of(given, "starting") or usual,
            ending=bound_of(given, "ending") or Bound(BoundKind.LATEST),
            filter=_filter(given),
            limits=_limits(given),
            shape=_shape(given),
            columns=wanted_columns(given),
            group=_group(given),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            broker_timeout_s=timeout_ms / 1000,
        )


def hasty(options: ReadOptions) -> ReadOptions:
    """The same with a short broker timeout, to check early whether the options can be right."""
    return replace(options, broker_timeout_s=min(options.broker_timeout_s, _HASTY_S))


def _check_kind(given: OptionReader, streaming: bool | None) -> None:
    if streaming is None:
        return
    found = given.first_of(_OF_BATCHES if streaming else _OF_STREAMS)
    if found is None:
        return
    if streaming:
        raise ConfigError(
            f"{found} is set, but a stream has no end: remove it, or read a batch with spark.read; "
            "trigger(availableNow=True) stops at the current end"
        )
    raise ConfigError(f"{found} is set, but applies only to streams: remove it, or use spark.readStream")


def _selection(given: OptionReader) -> Selection:
    name = given.one_of(*_WHAT)
    if name is None:
        raise ConfigError(f"no topic is set: set one of {', '.join(_WHAT)}, for example topic=Orders")
    if name == "topicPattern":
        return Selection(pattern=given.pattern(name))
    if name == "queues":
        return Selection(queues=_queues(given))
    topics = given.words(name)
    if name == "topic" and len(topics) > 1:
        raise ConfigError(f"topic={','.join(topics)} names {len(topics)} topics: use the option topics")
    if not topics:
        raise wrong(name, given.text(name), "names separated by commas", "Orders,Payments")
    for topic in topics:
        check_topic(topic)
    return Selection(topics=topics)


def _queues(given: OptionReader) -> tuple[MessageQueue, ...]:
    found = given.json("queues", _QUEUES)
    try:
        if isinstance(found, dict):
            queues = [
                MessageQueue(str(topic), str(broker), _queue_id(number))
                for topic, brokers in found.items()
                for broker, numbers in brokers.items()
                for number in numbers
            ]
        elif isinstance(found, list):
            queues = [queue_of(str(key)) for key in found]
        else:
            raise TypeError
    except (TypeError, AttributeError):
        raise wrong("queues", given.text("queues"), "an object or a list of queues", _QUEUES) from None
    except UsageError as error:
        raise ConfigError(f"queues: {error}") from None
    if not queues:
        raise wrong("queues", given.text("queues"), "at least one queue", _QUEUES)
    return tuple(sorted(set(queues)))


def _queue_id(number: object) -> int:
    if type(number) is not int or not 0 <= number < 1 << 31:
        raise TypeError
    return number


def _filter(given: OptionReader) -> Filter:
    name = given.one_of("tags", "sql")
    if name == "sql":
        return Filter(sql=given.text("sql"))
    text = given.text("tags")
    if text is None or text == "*":
        return Filter()
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    if not tags:
        raise wrong("tags", text, "tags separated by ||", "paid || refunded")
    return Filter(tags=tags)


def _limits(given: OptionReader) -> BatchLimits:
    if given.has("maxTriggerDelay") and not given.has("minOffsetsPerTrigger"):
        raise ConfigError(
            "maxTriggerDelay is set without minOffsetsPerTrigger, so there is nothing to wait for: "
            "set both or neither"
        )
    most, least = given.number("maxOffsetsPerTrigger"), given.number("minOffsetsPerTrigger") or 0
    if most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger={least} is greater than maxOffsetsPerTrigger={most}: lower it"
        )
    delay_ms = given.span_ms("maxTriggerDelay") or _TRIGGER_DELAY_MS
    return BatchLimits(most, given.size("maxBytesPerTrigger"), least, delay_ms / 1000)


def _shape(given: OptionReader) -> Partitioning:
    return Partitioning(
        given.number("tasks") or 2 * cores(),
        given.number("minPartitions") or 1,
        given.number("maxRowsPerPartition"),
    )


def _group(given: OptionReader) -> str | None:
    group = given.text("group")
    if group is not None:
        check_group(group)
    return group
