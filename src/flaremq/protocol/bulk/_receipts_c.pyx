# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _receipts_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import array

from flaremq.protocol import codes
from flaremq.protocol.bulk import _receipts_py
from flaremq.protocol.bulk.columns import Chunk, Frame, Pair, Stored
from flaremq.protocol.codes import ResponseCode

# The constants live in codes and columns alone; these are their C copies.
cdef int64_t SUCCESS = ResponseCode.SUCCESS
cdef int RESPONSE = codes.RESPONSE
cdef int C_WIDTH = Chunk.WIDTH
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_AT = Frame.AT, F_CODE = Frame.CODE, F_OPAQUE = Frame.OPAQUE
cdef int F_FLAG = Frame.FLAG, F_FIRST_PAIR = Frame.FIRST_PAIR, F_PAIRS = Frame.PAIRS, F_BODY = Frame.BODY_AT
cdef int F_PLAIN = Frame.PLAIN
cdef int P_WIDTH = Pair.WIDTH
cdef int S_WIDTH = Stored.WIDTH, S_FRAME = Stored.FRAME, S_CHUNK = Stored.CHUNK, S_OPAQUE = Stored.OPAQUE
cdef int S_QUEUE_ID = Stored.QUEUE_ID, S_QUEUE_OFFSET = Stored.QUEUE_OFFSET, S_ID = Stored.ID_AT
cdef int S_REGION = Stored.REGION_AT, TRACE_ON = Stored.WIDTH + 1

cdef enum:
    FIELDS = 11  # Columns of Stored, and two more: a field of no use, and TRACE_ON.
    NAMES = 6

cdef array.array EMPTY = array.array("q")


include "_fieldnames.pxi"
include "_framecheck.pxi"

fill_names(_receipts_py.NAMES)


def parse_receipts(data not None, chunks not None, frames not None, pairs not None):
    cdef Py_buffer[4] held
    cdef int taken = 0
    cdef int64_t row, count, found = 0, candidates = 0
    cdef const int64_t* f
    cdef array.array rows
    try:
        for source in (data, chunks, frames, pairs):
            PyObject_GetBuffer(source, &held[taken], PyBUF_SIMPLE)
            taken += 1
        count = held[2].len // (8 * F_WIDTH)
        check_frames(<const int64_t*>held[2].buf, count, held[0].len, held[1].len // (8 * C_WIDTH),
                     held[3].len // (8 * P_WIDTH))
        for row in range(count):
            candidates += is_candidate(<const int64_t*>held[2].buf + row * F_WIDTH)
        rows = array.clone(EMPTY, candidates * S_WIDTH, False)
        for row in range(count):
            f = <const int64_t*>held[2].buf + row * F_WIDTH
            if is_candidate(f) and read_stored(held, f, row, <int64_t*>rows.data.as_longlongs + found * S_WIDTH):
                found += 1
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    array.resize(rows, found * S_WIDTH)
    return rows


cdef inline bint is_candidate(const int64_t* f) noexcept:
    return not f[F_PLAIN] and f[F_CODE] == SUCCESS and f[F_FLAG] & RESPONSE and not f[F_BODY + 1]


cdef inline bint is_false(const uint8_t* data, const int64_t* p) noexcept:
    return p != NULL and p[3] == 5 and memcmp(data + p[2], b"false", 5) == 0


cdef bint read_stored(Py_buffer* held, const int64_t* f, int64_t row, int64_t* stored) except -1:
    cdef const uint8_t* data = <const uint8_t*>held[0].buf
    cdef int64_t* p
    cdef int64_t* found[FIELDS]
    cdef int64_t i
    cdef uint64_t at = f[F_AT]
    cdef int field
    memset(found, 0, sizeof(found))
    for i in range(f[F_FIRST_PAIR], f[F_FIRST_PAIR] + f[F_PAIRS]):
        p = <int64_t*>held[3].buf + i * P_WIDTH
        if not pair_within(p, &at, f[F_BODY]):
            raise ValueError(f"frame {row} speaks of what is not there")
        field = field_of(data + p[0], p[1])
        if field < 0:
            if p[3]:
                return False
        elif found[field] != NULL:
            return False
        else:
            found[field] = p
    if found[S_ID] == NULL or found[S_QUEUE_ID] == NULL or found[S_QUEUE_OFFSET] == NULL:
        return False
    p = found[S_ID]
    if not p[3] or (p[4] and (p[4] != KIND_WIDE or not utf8_valid(data + p[2], p[3]))):
        return False
    stored[S_ID] = p[2]
    stored[S_ID + 1] = p[3]
    p = found[S_QUEUE_ID]
    if not text_number(data + p[2], p[3], 32, &stored[S_QUEUE_ID]):
        return False
    p = found[S_QUEUE_OFFSET]
    if not text_number(data + p[2], p[3], 64, &stored[S_QUEUE_OFFSET]):
        return False
    stored[S_REGION] = stored[S_REGION + 1] = 0
    p = found[S_REGION]
    if p != NULL:
        if p[4] and (p[4] != KIND_WIDE or not utf8_valid(data + p[2], p[3])):
            return False
        if p[3] and not is_false(data, found[TRACE_ON]):
            stored[S_REGION] = p[2]
            stored[S_REGION + 1] = p[3]
    stored[S_FRAME] = row
    stored[S_CHUNK] = f[F_CHUNK]
    stored[S_OPAQUE] = f[F_OPAQUE]
    return True
