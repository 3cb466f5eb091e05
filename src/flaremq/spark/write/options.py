"""The options of writing, and the columns that it takes: checked in the driver, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from flaremq.base.errors import ConfigError, UsageError
from flaremq.client.settings import ProducerSettings
from flaremq.model.names import check_group, check_topic
from flaremq.spark.options import BROKER_TIMEOUT_MS, DEFAULT_GROUP, Given, name_server_of, wrong

NAMES: Final = (
    *("nameServer", "topic", "producerGroup", "delivery", "writeId", "ordered"),
    *("window", "timeout", "brokerTimeout", "compressAbove", "maxMessageSize", "ratePerTask"),
)
"""All that there are, as the guide spells them."""
_OF_SPARK: Final = ("checkpointLocation", "queryName")
"""What Spark hands over with the options of a stream, and means for itself."""

AT_LEAST_ONCE: Final = "at-least-once"
IDEMPOTENT: Final = "idempotent"

_TIMEOUT_MS: Final = 10_000
_WINDOW: Final = 1024
_INTEGERS: Final = (IntegerType, ShortType, ByteType)
_TEXT: Final = (StringType,)

COLUMNS: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "body": ((BinaryType, StringType), "binary or string"),
    "topic": (_TEXT, "string"),
    "keys": ((StringType, ArrayType), "string with blanks between keys, or array<string>"),
    "tags": (_TEXT, "string"),
    "properties": ((MapType,), "map<string,string>"),
    "shardingKey": (_TEXT, "string"),
    "orderKey": (_TEXT, "string"),
    "queueId": (_INTEGERS, "int"),
    "brokerName": (_TEXT, "string"),
    "delayLevel": (_INTEGERS, "int"),
    "deliverTimestamp": ((TimestampType, LongType), "timestamp, or bigint in milliseconds"),
    "msgId": (_TEXT, "string"),
}
"""What can be written, each with the types that it may have, and how they are called."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    name_server: str
    topic: str | None = None
    """Of rows that name none."""
    group: str = DEFAULT_GROUP
    is_idempotent: bool = False
    write_id: str | None = None
    """What makes the ids of a batch its own; a stream has its query for that."""
    ordered: bool | None = None
    """None: rows that have a key are, others are not."""
    window: int = _WINDOW
    rate_per_task: int | None = None
    """Messages per second."""
    broker_timeout_s: float = BROKER_TIMEOUT_MS / 1000
    """For how long a message waits for brokers that cannot take it now."""
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Raises ConfigError or InvalidName."""
        if streaming:
            own = {name.casefold() for name in _OF_SPARK}
            options = {name: value for name, value in options.items() if name.casefold() not in own}
        given = Given(options, NAMES)
        topic, group = given.text("topic"), given.text("producerGroup") or DEFAULT_GROUP
        if topic is not None:
            check_topic(topic)
        check_group(group)
        is_idempotent = _is_idempotent(given)
        return cls(
            name_server=name_server_of(given),
            topic=topic,
            group=group,
            is_idempotent=is_idempotent,
            write_id=_write_id(given, is_idempotent, streaming),
            ordered=given.flag("ordered", True) if given.has("ordered") else None,
            window=given.number("window") or _WINDOW,
            rate_per_task=given.number("ratePerTask"),
            broker_timeout_s=(given.span_ms("brokerTimeout") or BROKER_TIMEOUT_MS) / 1000,
            producer=_producer(given),
        )


def _is_idempotent(given: Given) -> bool:
    said = given.text("delivery") or AT_LEAST_ONCE
    if said not in (AT_LEAST_ONCE, IDEMPOTENT):
        raise wrong("delivery", said, f"{AT_LEAST_ONCE} or {IDEMPOTENT}", IDEMPOTENT)
    return said == IDEMPOTENT


def _write_id(given: Given, is_idempotent: bool, streaming: bool) -> str | None:
    said = given.text("writeId")
    if said is not None and (streaming or not is_idempotent):
        because = "a stream has its query id for that" if streaming else f"only delivery={IDEMPOTENT} uses it"
        raise ConfigError(f"writeId={said!r} is set, but {because}: remove it")
    if said is None and is_idempotent and not streaming:
        raise ConfigError(
            f"delivery={IDEMPOTENT} wants a writeId in a batch: give a text that is the same when this write "
            "is repeated and is used for no other, as in writeId=orders-2026-05-01"
        )
    return said


def _producer(given: Given) -> ProducerSettings:
    usual = ProducerSettings()
    compress_above = given.size("compressAbove")
    return ProducerSettings(
        timeout_s=(given.span_ms("timeout") or _TIMEOUT_MS) / 1000,
        compress_over=usual.compress_over if compress_above is None else compress_above + 1,
        message_size_max=given.size("maxMessageSize") or usual.message_size_max,
    )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises UsageError for a frame that cannot be written with these options."""
    for column in schema.fields:
        if column.name not in COLUMNS:
            raise _unknown(column.name)
        _check_type(column.name, column.dataType)
    found = set(schema.fieldNames())
    if "body" not in found:
        raise UsageError("there is no column body: select one, as in to_json(struct('*')).alias('body')")
    if "topic" not in found and options.topic is None:
        raise ConfigError(
            "no topic is named: set the option topic, as in topic=Orders, or add a column topic to the frame"
        )
    if "brokerName" in found and "queueId" not in found:
        raise UsageError("column brokerName says nothing without queueId: add it, or drop brokerName")
    if "msgId" in found and not options.is_idempotent:
        raise UsageError(
            f"column msgId is only taken with delivery={IDEMPOTENT}: drop it, and messages get new ids"
        )


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name, COLUMNS, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COLUMNS)}."
    return UsageError(f"column {name!r} cannot be written: {hint} Use select to leave out what is not sent")


def _check_type(name: str, kind: DataType) -> None:
    kinds, wanted = COLUMNS[name]
    if (
        not isinstance(kind, kinds)
        or (isinstance(kind, ArrayType) and not isinstance(kind.elementType, StringType))
        or (
            isinstance(kind, MapType)
            and not (isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType))
        )
    ):
        raise UsageError(f"column {name} is {kind.simpleString()}, wanted is {wanted}: cast it")
