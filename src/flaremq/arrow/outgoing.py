"""Rows to send: the columns of a batch become bodies and property texts, a column at a time.

The texts and the checks are those of a Message with the same fields. That would take several microseconds per
row; here only Arrow touches rows, until the finished columns become Python lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flaremq.base.errors import MessageIllegal, PropertiesTooLong
from flaremq.model import properties as names
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.message import check_word

_NAME_END: Final = pa.scalar(names.NAME_END)
_PAIR_END: Final = pa.scalar(names.PAIR_END)
_NOTHING: Final = pa.scalar("")
_RESERVED: Final = pa.array(sorted(names.RESERVED), pa.string())
_SEPARATORS: Final = f"[{names.NAME_END}{names.PAIR_END}]"
_ID: Final = "^(?:[0-9A-F]{32}|[0-9A-F]{56})$"


class Outgoing(NamedTuple):
    """Messages ready to send, by columns. None: no row has a value."""

    topics: list[str]
    bodies: list[bytes]
    texts: list[str]
    """All properties as a request carries them, including the id."""
    ids: list[str]
    order_keys: list[str | None] | None = None
    queue_ids: list[int | None] | None = None
    broker_names: list[str | None] | None = None
    alone: list[bool] | None = None
    """Whether a message must be sent alone, not in a batch."""


def outgoing(batch: pa.RecordBatch, topic: str | None, make_ids: Callable[[int], Sequence[str]]) -> Outgoing:
    """All rows of a batch. Raises MessageIllegal for the first row that cannot be sent; then none is sent.

    `topic` is for rows without a topic; `make_ids` makes the ids of rows without an id.
    """
    count = batch.num_rows
    delays, delivers = _delays(batch), _delivers(batch)
    ids = _ids(batch, make_ids(count))
    sharding = _words(batch, "shardingKey")
    pieces = [
        _pair(names.SHARDING_KEY, sharding),
        _pair(names.DELAY, delays),
        _pair(names.TIMER_DELIVER_MS, delivers),
        _map(batch, sharding),
        _pair(names.KEYS, _keys(batch)),
        _pair(names.TAGS, _words(batch, "tags")),
        pa.scalar(f"{names.WAIT}\x01true\x02{names.UNIQ_KEY}\x01"),
        ids,
        _PAIR_END,
    ]
    text = pc.binary_join_element_wise(
        *[piece for piece in pieces if piece is not None], _NOTHING, null_handling="skip"
    )
    if count and (longest := pc.max(pc.binary_length(text)).as_py()) > PROPERTIES_SIZE_MAX:
        raise PropertiesTooLong(longest, PROPERTIES_SIZE_MAX)
    return Outgoing(
        _topics(batch, topic),
        _bodies(batch),
        _list(text),
        _list(ids),
        _list_or_none(_order_keys(batch, sharding)),
        _list_or_none(_column(batch, "queueId", pa.int32())),
        _list_or_none(_words(batch, "brokerName")),
        _alone(delays, delivers),
    )


# Columns of the batch.


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> Any | None:
    """A column, cast to a type; None if it is missing or holds only nulls."""
    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    column = batch.column(at)
    if column.null_count == len(column):
        return None
    return column if column.type.equals(kind) else column.cast(kind)


def _texts(batch: pa.RecordBatch, name: str) -> Any | None:
    """A column of texts. An empty text counts as null."""
    column = _column(batch, name, pa.string())
    if column is None:
        return None
    empty = pc.equal(pc.binary_length(column), 0)
    return pc.if_else(empty, pa.scalar(None, pa.string()), column) if pc.any(empty).as_py() else column


def _words(batch: pa.RecordBatch, name: str) -> Any | None:
    column = _texts(batch, name)
    if column is not None:
        _check(column, name)
    return column


def _check(column: Any, what: str) -> None:
    """Check each word as a Message does, but only the words that Arrow cannot rule out."""
    doubt = pc.utf8_is_space(column)
    if _has_separators(column):
        doubt = pc.or_(doubt, pc.match_substring_regex(column, _SEPARATORS))
    if pc.any(doubt).as_py():
        for word in pc.filter(column, doubt).to_pylist():
            check_word(what, word)


def _has_separators(column: Any) -> bool:
    """Whether there may be any: the buffer can hold bytes of rows that were sliced away."""
    data = column.buffers()[2]
    raw = b"" if data is None else data.to_pybytes()
    return b"\x01" in raw or b"\x02" in raw


def _list(column: Any) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise MessageIllegal(
            f"a property is not UTF-8 ({error.reason}): send binary data in the body"
        ) from None
    return found


def _list_or_none(column: Any | None) -> list[Any] | None:
    return None if column is None else _list(column)


# Parts of a message.


def _topics(batch: pa.RecordBatch, topic: str | None) -> list[str]:
    column = _texts(batch, "topic")
    if column is not None and topic is not None:
        column = pc.fill_null(column, topic)
    if column is None and topic is not None:
        return [topic] * batch.num_rows
    if batch.num_rows and (column is None or column.null_count):
        raise MessageIllegal("a row has no topic: fill the column, or set the option topic as a default")
    return [] if column is None else _list(column)


def _bodies(batch: pa.RecordBatch) -> list[bytes]:
    column = batch.column("body")
    if column.null_count:
        raise MessageIllegal("a row has a null body: filter such rows out, or give them a body")
    if not column.type.equals(pa.binary()):
        column = column.cast(pa.binary())
    if pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
        raise MessageIllegal(
            "a row has an empty body, which brokers reject: filter such rows out, or send at least a byte"
        )
    found: list[bytes] = column.to_pylist()
    return found


def _ids(batch: pa.RecordBatch, made: Sequence[str]) -> Any:
    fresh, own = pa.array(made, pa.string()), _texts(batch, "msgId")
    if own is None:
        return fresh
    wrong = pc.invert(pc.match_substring_regex(own, _ID))
    if pc.any(wrong).as_py():
        word = pc.filter(own, wrong)[0].as_py()
        raise MessageIllegal(
            f"msgId {word!r}: expected 32 or 56 upper-case hexadecimal digits, for example {made[0]}"
        )
    return pc.coalesce(own, fresh)


def _order_keys(batch: pa.RecordBatch, sharding: Any | None) -> Any | None:
    own = _texts(batch, "orderKey")
    if sharding is None or own is None:
        return own if sharding is None else sharding
    return pc.coalesce(sharding, own)


def _pair(name: str, values: Any | None) -> Any | None:
    """A property with its separators; null if there is no value."""
    if values is None:
        return None
    return pc.binary_join_element_wise(pa.scalar(name + names.NAME_END), values, _PAIR_END, _NOTHING)


def _keys(batch: pa.RecordBatch) -> Any | None:
    at = batch.schema.get_field_index("keys")
    if at >= 0 and pa.types.is_list(batch.column(at).type):
        return _key_lists(batch.column(at))
    column = _words(batch, "keys")
    if column is None:
        return None
    if pc.any(pc.match_substring_regex(column, r"^\s|\s\s|[^\S ]|\s$")).as_py():
        column = pc.utf8_trim_whitespace(pc.replace_substring_regex(column, r"\s+", names.KEY_SEPARATOR))
    return column


def _key_lists(column: Any) -> Any | None:
    if column.null_count == len(column):
        return None
    words = pc.list_flatten(column).cast(pa.string())
    if words.null_count:
        raise MessageIllegal("keys contain a null: leave it out of the array")
    # Few batches have such a key; for those, the error names it.
    doubt = pc.match_substring_regex(words, r"[\s\pZ]|^$")
    for word in pc.filter(words, doubt).to_pylist():
        check_word("keys", word)
        if any(char.isspace() for char in word):
            raise MessageIllegal(f"key {word!r} contains a space, which separates keys: replace it")
    _check(words, "keys")
    joined = pc.binary_join(column.cast(pa.list_(pa.string())), names.KEY_SEPARATOR)
    return pc.if_else(pc.equal(pc.binary_length(joined), 0), pa.scalar(None, pa.string()), joined)


def _map(batch: pa.RecordBatch, sharding: Any | None) -> Any | None:
    """The user's own properties. A null value is left out."""
    at = batch.schema.get_field_index("properties")
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return None
    column = batch.column(at)
    words, values = column.keys.cast(pa.string()), column.items.cast(pa.string())
    _check_map(words, values)
    if sharding is not None:
        _check_sharding(column, sharding)
    pairs = pc.binary_join_element_wise(words, _NAME_END, values, _PAIR_END, _NOTHING)
    if pairs.null_count:
        pairs = pc.fill_null(pairs, "")
    joined = pc.binary_join(pa.ListArray.from_arrays(column.offsets, pairs), _NOTHING)
    return pc.if_else(column.is_valid(), joined, _NOTHING) if column.null_count else joined


def _check_map(words: Any, values: Any) -> None:
    reserved = pc.is_in(words, value_set=_RESERVED)
    if pc.any(reserved).as_py():
        word = pc.filter(words, reserved)[0].as_py()
        raise MessageIllegal(
            f"property {word!r} is reserved: choose another name; to leave out those of a message that was "
            "read, use map_filter(properties, ...)"
        )
    for what, column in (("property name", words), ("value of a property", values)):
        if pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
            check_word(what, "")
        _check(column, what)


def _check_sharding(column: Any, sharding: Any) -> None:
    """The sharding key may be set in one place only, as in a Message."""
    if not pc.any(pc.equal(column.keys.cast(pa.string()), names.SHARDING_KEY)).as_py():
        return
    for key, pairs in zip(sharding.to_pylist(), column.to_pylist(), strict=True):
        if key is not None and any(name == names.SHARDING_KEY for name, _ in pairs or ()):
            raise MessageIllegal(
                f"shardingKey {key!r} and property {names.SHARDING_KEY} are both set: keep one of them"
            )


# Delivery times.


def _delays(batch: pa.RecordBatch) -> Any | None:
    column = _column(batch, "delayLevel", pa.int32())
    if column is None:
        return None
    if (least := pc.min(column).as_py()) < 0:
        raise MessageIllegal(f"delayLevel {least}: expected a level of at least 1, or 0 or null for none")
    return pc.if_else(pc.equal(column, 0), pa.scalar(None, pa.string()), column.cast(pa.string()))


def _delivers(batch: pa.RecordBatch) -> Any | None:
    at = batch.schema.get_field_index("deliverTimestamp")
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return None
    column = batch.column(at)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if (least := pc.min(column).as_py()) <= 0:
        raise MessageIllegal(f"deliverTimestamp {least}: expected a time after 1970, or null for none")
    return column.cast(pa.string())


def _alone(delays: Any | None, delivers: Any | None) -> list[bool] | None:
    if delays is None or delivers is None:
        column = delays if delays is not None else delivers
        return None if column is None else _list(column.is_valid())
    if pc.any(pc.and_(delays.is_valid(), delivers.is_valid())).as_py():
        raise MessageIllegal("a row has both delayLevel and deliverTimestamp: keep one of them")
    return _list(pc.or_(delays.is_valid(), delivers.is_valid()))
