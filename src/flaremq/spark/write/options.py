"""Options and columns of a write, checked in the driver before anything is sent."""

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
from flaremq.spark.options import BROKER_TIMEOUT_MS, DEFAULT_GROUP, OptionReader, name_server_of, wrong

NAMES: Final = (
    *("nameServer", "topic", "producerGroup", "delivery", "writeId", "ordered"),
    *("window", "timeout", "brokerTimeout", "compressAbove", "maxMessageSize", "ratePerTask"),
)
"""All options, as the guide spells them."""
_OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options of Spark itself that it hands over with those of a stream."""

AT_LEAST_ONCE: Final = "at-least-once"
IDEMPOTENT: Final = "idempotent"

_TIMEOUT_MS: Final = 10_000
_WINDOW: Final = 1024
_INTEGERS: Final = (IntegerType, ShortType, ByteType)
_TEXT: Final = (StringType,)

COLUMNS: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "body": ((BinaryType, StringType), "binary or string"),
    "topic": (_TEXT, "string"),
    "keys": ((StringType, ArrayType), "string of keys separated by spaces, or array<string>"),
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
"""Columns that can be written, each with its types and their names."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    name_server: str
    topic: str | None = None
    """For rows without a topic."""
    group: str = DEFAULT_GROUP
    is_idempotent: bool = False
    write_id: str | None = None
    """Part of the message ids of a batch write; a stream uses its query id instead."""
    ordered: bool | None = None
    """None: rows with a key are sent in order, others are not."""
    window: int = _WINDOW
    rate_per_task: int | None = None
    """Messages per second."""
    broker_timeout_s: float = BROKER_TIMEOUT_MS / 1000
    """How long a message waits for brokers that are away."""
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Raises ConfigError or InvalidName."""
        if streaming:
            own = {name.casefold() for name in _OF_SPARK}
            options = {name: value for name, value in options.items() if name.casefold() not in own}
        given = OptionReader(options, NAMES)
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


def _is_idempotent(given: OptionReader) -> bool:
    said = given.text("delivery") or AT_LEAST_ONCE
    if said not in (AT_LEAST_ONCE, IDEMPOTENT):
        raise wrong("delivery", said, f"{AT_LEAST_ONCE} or {IDEMPOTENT}", IDEMPOTENT)
    return said == IDEMPOTENT


def _write_id(given: OptionReader, is_idempotent: bool, streaming: bool) -> str | None:
    said = given.text("writeId")
    if said is not None and (streaming or not is_idempotent):
        because = "a stream uses its query id" if streaming else f"only delivery={IDEMPOTENT} uses it"
        raise ConfigError(f"writeId={said!r} is set, but {because}: remove it")
    if said is None and is_idempotent and not streaming:
        raise ConfigError(
            f"delivery={IDEMPOTENT} needs a writeId in a batch: expected a text that stays the same when "
            "this write is repeated, and that no other write uses, for example writeId=orders-2026-05-01"
        )
    return said


def _producer(given: OptionReader) -> ProducerSettings:
    usual = ProducerSettings()
    compress_above = given.size("compressAbove")
    return ProducerSettings(
        timeout_s=(given.span_ms("timeout") or _TIMEOUT_MS) / 1000,
        compress_over=usual.compress_over if compress_above is None else compress_above + 1,
        message_size_max=given.size("maxMessageSize") or usual.message_size_max,
    )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises UsageError for a DataFrame that cannot be written with these options."""
    for column in schema.fields:
        if column.name not in COLUMNS:
            raise _unknown(column.name)
        _check_type(column.name, column.dataType)
    found = set(schema.fieldNames())
    if "body" not in found:
        raise UsageError(
            "the DataFrame has no column body: add one, for example to_json(struct('*')).alias('body')"
        )
    if "topic" not in found and options.topic is None:
        raise ConfigError(
            "topic is not set: set the option, for example topic=Orders, or add a column topic to the "
            "DataFrame"
        )
    if "brokerName" in found and "queueId" not in found:
        raise UsageError("column brokerName has no meaning without queueId: add queueId, or drop brokerName")
    if "msgId" in found and not options.is_idempotent:
        raise UsageError(
            f"column msgId is only allowed with delivery={IDEMPOTENT}: drop it to have new ids made"
        )


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name, COLUMNS, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(COLUMNS)}."
    return UsageError(
        f"column {name!r} cannot be written: {hint} Use select to leave out columns that are not sent"
    )


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
        raise UsageError(f"column {name} is {kind.simpleString()}: expected {wanted}; cast it")
