"""Buffers of Arrow columns out of walked records: the reference twin, in numpy.

Each function works on all rows at once. `_columns_c.pyx` agrees with it on any table that a walk filled.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from flaremq.arrow.columnspec import Number, Only, Pairs, TextColumn
from flaremq.model import layout, sysflag
from flaremq.model.columns import Bytes, Fact
from flaremq.model.host import Host

Longs: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

_TIME_MAX_MS: Final = ((1 << 63) - 1) // 1000
_FACTS: Final = {
    Number.QUEUE_ID: Fact.QUEUE_ID,
    Number.QUEUE_OFFSET: Fact.QUEUE_OFFSET,
    Number.STORE_TIME: Fact.STORE_TIMESTAMP,
    Number.SYS_FLAG: Fact.SYS_FLAG,
}
_HEAD: Final = {
    Number.PHYSICAL_OFFSET: layout.PHYSICAL_OFFSET_AT,
    Number.BORN_TIME: layout.BORN_TIMESTAMP_AT,
}
_BEHIND_HOSTS: Final = {Number.RECONSUME_TIMES: (0, 4), Number.PREPARED_OFFSET: (4, 8)}


def numbers(data: Bytes, facts: array[int], count: int, which: int) -> bytes:
    """One column of Number: 8 bytes a row, 4 if it is NARROW. Times are clipped to the range of int64 us."""
    table = _table(facts, count)
    if which in _FACTS:
        found = table[:, _FACTS[which]]
    elif which in _HEAD:
        found = _longs_at(data, _begins(table) + _HEAD[which], 8)
    else:
        # Not counted from the body, whose position changes when it is decompressed.
        further, width = _BEHIND_HOSTS[which]
        behind = [sum(_host_place(flag, store=True)) for flag in table[:, Fact.SYS_FLAG].tolist()]
        found = _longs_at(data, _begins(table) + np.array(behind, np.int64) + further, width)
    if which in (Number.BORN_TIME, Number.STORE_TIME):
        found = np.clip(found, -_TIME_MAX_MS, _TIME_MAX_MS) * 1000
    return found.astype("<i4" if which in Number.NARROW else "<i8").tobytes()


def gather(
    data: Bytes, extra: Bytes, places: array[int], width: int, column: int, count: int, nullable: bool
) -> TextColumn:
    """The bytes at the positions in two columns (position, length) of a table that is `width` columns wide.

    A position below zero is in `extra`, at -position - 1. If `nullable`, an empty value is null.
    """
    table = np.frombuffer(places, np.int64)[: count * width].reshape(count, width)
    at, size = table[:, column], table[:, column + 1]
    main, other = np.frombuffer(data, np.uint8), np.frombuffer(extra, np.uint8)
    text = _gathered(main, np.where(at < 0, 0, at), np.where(at < 0, 0, size))
    if (at < 0).any():
        joined = [
            bytes(other[-a - 1 : -a - 1 + s] if a < 0 else main[a : a + s])
            for a, s in zip(at.tolist(), size.tolist(), strict=True)
        ]
        text = TextColumn(None, _offsets(size), b"".join(joined))
    if not nullable or (size > 0).all():
        return text
    return text._replace(valid=np.packbits(size > 0, bitorder="little").tobytes())


def ids(data: Bytes, facts: array[int], count: int) -> TextColumn:
    """The producers' ids (UNIQ_KEY); without one, the offset id, made of store host and physical offset."""
    view = memoryview(data)
    table = _table(facts, count)
    places = table[:, Fact.UNIQUE_KEY_AT : Fact.UNIQUE_KEY_SIZE + 1].copy()
    extra = bytearray()
    for row in np.flatnonzero(places[:, 1] == 0).tolist():
        begin = int(_begins(table[row : row + 1])[0])
        at, size = _host_place(int(table[row, Fact.SYS_FLAG]), store=True)
        offset_at = begin + layout.PHYSICAL_OFFSET_AT
        raw = bytes(view[begin + at : begin + at + size]) + bytes(view[offset_at : offset_at + 8])
        places[row] = -len(extra) - 1, 2 * len(raw)
        extra += raw.hex().upper().encode()
    return gather(data, extra, array("q", places.tobytes()), 2, 0, count, False)


def hosts(data: Bytes, facts: array[int], count: int, store: bool) -> TextColumn:
    """Addresses with their ports, of the producer or of the broker, as text."""
    view = memoryview(data)
    table = _table(facts, count)
    texts: list[bytes] = []
    for begin, flag in zip(_begins(table).tolist(), table[:, Fact.SYS_FLAG].tolist(), strict=True):
        at, size = _host_place(flag, store=store)
        texts.append(str(Host.decode(bytes(view[begin + at : begin + at + size]))).encode())
    return TextColumn(None, _offsets(np.array([len(text) for text in texts], np.int64)), b"".join(texts))


def pairs(data: Bytes, facts: array[int], count: int) -> Pairs:
    """All properties. Pairs without a name or value are left out; of equal names in a row the last counts."""
    row, names_at, names_size, values_at, values_size = _split(data, _table(facts, count))
    octets = np.frombuffer(data, np.uint8)
    last = _last_of_each(data, row, names_at, names_size)
    row, names_at, names_size = row[last], names_at[last], names_size[last]
    begins = _offsets(np.bincount(row, minlength=count))
    return Pairs(
        begins,
        _gathered(octets, names_at, names_size),
        _gathered(octets, values_at[last], values_size[last]),
    )


def sift(data: Bytes, facts: array[int], count: int, only: Only) -> tuple[int, int]:
    """Move the wanted rows to the front of the table. Returns how many they are, and how many of them are not
    plain: compressed, or several messages in one record. The queue offsets inside the latter are not known
    yet, so these are kept if they begin before the end."""
    table = _table(facts, count)
    flags, offsets = table[:, Fact.SYS_FLAG], table[:, Fact.QUEUE_OFFSET]
    times = table[:, Fact.STORE_TIMESTAMP]
    both = sysflag.NEED_UNWRAP | sysflag.INNER_BATCH
    batch = flags & both == both
    right = ((offsets >= only.offset_begin) | batch) & (offsets < only.offset_end)
    right &= (times >= only.time_begin_ms) & (times < only.time_end_ms)
    if only.queue_id >= 0:
        right &= table[:, Fact.QUEUE_ID] == only.queue_id
    if only.topics:
        right &= _is_one_of(data, table[:, Fact.TOPIC_AT], table[:, Fact.TOPIC_SIZE], only.topics)
    if only.tags:
        right &= _is_one_of(data, table[:, Fact.TAGS_AT], table[:, Fact.TAGS_SIZE], only.tags) | batch
    wanted = table[right]
    facts[: wanted.size] = array("q", wanted.tobytes())
    odd = (batch | (flags & sysflag.COMPRESSED != 0))[right]
    return len(wanted), int(odd.sum())


def _table(facts: array[int], count: int) -> Longs:
    return np.frombuffer(facts, np.int64)[: count * Fact.WIDTH].reshape(count, Fact.WIDTH).copy()


def _begins(table: Longs) -> Longs:
    """Where the records begin: the properties are the last part of a record."""
    begins: Longs = table[:, Fact.PROPERTIES_AT] + table[:, Fact.PROPERTIES_SIZE] - table[:, Fact.SIZE]
    return begins


def _longs_at(data: Bytes, places: Longs, width: int) -> Longs:
    octets = np.frombuffer(data, np.uint8)
    found: Any = octets[places[:, None] + np.arange(width)]
    return found.view(f">i{width}")[:, 0].astype(np.int64)  # type: ignore[no-any-return]


def _offsets(sizes: npt.NDArray[Any]) -> bytes:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))).astype("<i4").tobytes()


def _gathered(octets: Octets, at: Longs, size: Longs) -> TextColumn:
    ends = np.cumsum(size)
    index = np.repeat(at - (ends - size), size) + np.arange(int(ends[-1]) if len(ends) else 0)
    return TextColumn(None, _offsets(size), octets[index].tobytes())


def _host_place(flag: int, *, store: bool) -> tuple[int, int]:
    """The position of a host in its record, and its length."""
    born = sysflag.born_host_size(flag)
    if not store:
        return layout.BORN_HOST_AT, born
    return layout.BORN_HOST_AT + born + 8, sysflag.store_host_size(flag)


def _split(data: Bytes, table: Longs) -> tuple[Longs, Longs, Longs, Longs, Longs]:
    """Row, name and value of each complete pair, in order: row numbers, then positions and lengths."""
    octets = np.frombuffer(data, np.uint8)
    at, size = table[:, Fact.PROPERTIES_AT], table[:, Fact.PROPERTIES_SIZE]
    text = np.frombuffer(_gathered(octets, at, size).values, np.uint8)
    ends = np.cumsum(size)
    begins = ends - size
    # A pair ends at its mark, or where its row ends.
    stops = np.union1d(np.flatnonzero(text == layout.PROPERTY_END), ends[size > 0] - 1)
    is_mark = text[stops] == layout.PROPERTY_END
    pair_end = np.where(is_mark, stops, stops + 1)
    row = np.searchsorted(ends, stops, side="right")
    pair_begin = np.maximum(
        np.concatenate((np.zeros(1, np.int64), stops[:-1] + 1))[: len(stops)], begins[row]
    )
    middles = np.append(np.flatnonzero(text == layout.NAME_END), len(text))
    middle = middles[np.searchsorted(middles, pair_begin)]
    right = (middle > pair_begin) & (middle + 1 < pair_end)
    row, pair_begin, middle, pair_end = row[right], pair_begin[right], middle[right], pair_end[right]
    shift = at[row] - begins[row]
    return row, pair_begin + shift, middle - pair_begin, middle + 1 + shift, pair_end - middle - 1


def _last_of_each(data: Bytes, row: Longs, at: Longs, size: Longs) -> npt.NDArray[np.bool_]:
    """Which pairs are the last with their name in their row."""
    view = memoryview(data)
    last = np.ones(len(row), np.bool_)
    seen: dict[tuple[int, bytes], int] = {}
    for i, (r, a, s) in enumerate(zip(row.tolist(), at.tolist(), size.tolist(), strict=True)):
        earlier = seen.get(key := (r, bytes(view[a : a + s])))
        if earlier is not None:
            last[earlier] = False
        seen[key] = i
    return last


def _is_one_of(data: Bytes, at: Longs, size: Longs, wanted: tuple[bytes, ...]) -> npt.NDArray[np.bool_]:
    view, known = memoryview(data), frozenset(wanted)
    found = [bytes(view[a : a + s]) in known for a, s in zip(at.tolist(), size.tolist(), strict=True)]
    return np.array(found, np.bool_)
