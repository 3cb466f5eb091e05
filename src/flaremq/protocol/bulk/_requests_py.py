"""Requests of one code, many at once: the reference twin. _requests_c.pyx agrees with it on any rows.

For lanes whose requests differ too much from each other to have columns for all that they say: a row tells
where each field lies, and the lane reads those that it needs.
"""

from __future__ import annotations

from array import array

from flaremq.model.columns import Bytes
from flaremq.protocol.bulk._burst_py import check_tables, fields_of
from flaremq.protocol.bulk.columns import Chunk, Frame, Plain, Request
from flaremq.protocol.codes import RESPONSE

NAMES_MAX = 32


def parse_requests(
    data: Bytes,
    chunks: array[int],
    frames: array[int],
    pairs: array[int],
    codes: tuple[int, ...],
    names: tuple[bytes, ...],
) -> array[int]:
    """Rows of Request for the requests with one of these codes that have fields of these names alone, each at
    most once. All others are marked in their frame (Plain.FIELDS) and have no row."""
    if len(names) > NAMES_MAX:
        raise ValueError(f"{len(names)} names, at most {NAMES_MAX} are possible")
    check_tables(len(data), len(chunks) // Chunk.WIDTH, frames, pairs)
    data, numbers = bytes(data), {name: number for number, name in enumerate(names)}
    rows: array[int] = array("q")
    for row in range(len(frames) // Frame.WIDTH):
        f = row * Frame.WIDTH
        is_other = frames[f + Frame.CODE] not in codes or frames[f + Frame.FLAG] & RESPONSE
        if is_other or frames[f + Frame.PLAIN]:
            continue
        found = fields_of(data, frames, pairs, f, numbers)
        if found is None:
            frames[f + Frame.PLAIN] = Plain.FIELDS
            continue
        rows.append(row)
        for number in range(len(names)):
            rows.extend(found.get(number, Request.MISSING))
    return rows
