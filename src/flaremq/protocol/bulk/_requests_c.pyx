# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _requests_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

import array

from flaremq.protocol import codes as protocol_codes
from flaremq.protocol.bulk import _requests_py
from flaremq.protocol.bulk.columns import Chunk, Frame, Pair, Plain, Request

# The constants live in codes and columns alone; these are their C copies.
cdef int RESPONSE = protocol_codes.RESPONSE, C_WIDTH = Chunk.WIDTH, P_WIDTH = Pair.WIDTH, FIELD = Request.FIELD
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_AT = Frame.AT, F_CODE = Frame.CODE, F_FLAG = Frame.FLAG
cdef int F_FIRST_PAIR = Frame.FIRST_PAIR, F_PAIRS = Frame.PAIRS, F_BODY = Frame.BODY_AT, F_PLAIN = Frame.PLAIN
cdef int PLAIN_FIELDS = Plain.FIELDS

cdef enum:
    NAMES = 32
    CODES = 8

assert NAMES == _requests_py.NAMES_MAX
assert Request.MISSING == (-1, 0, 0)
cdef array.array EMPTY = array.array("q")


cdef extern from "protocol/bulk/_scan.h":
    bint pair_within(const int64_t* pair, uint64_t* last, uint64_t end) nogil


cdef struct Wanted:
    int64_t[CODES] codes
    int code_count
    const char* names[NAMES]
    int64_t[NAMES] sizes
    int name_count


include "_framecheck.pxi"


def parse_requests(data not None, chunks not None, frames not None, pairs not None, tuple codes not None,
                   tuple names not None):
    cdef Py_buffer[4] held
    cdef int taken = 0, width = 1 + FIELD * len(names)
    cdef int64_t row, count, found = 0, candidates = 0
    cdef int64_t* f
    cdef array.array rows
    cdef Wanted wanted
    if len(names) > NAMES:
        raise ValueError(f"{len(names)} names, at most {NAMES} are possible")
    fill(&wanted, codes, names)
    try:
        for source in (data, chunks, frames, pairs):
            PyObject_GetBuffer(source, &held[taken], PyBUF_WRITABLE if taken == 2 else PyBUF_SIMPLE)
            taken += 1
        count = held[2].len // (8 * F_WIDTH)
        check_frames(<const int64_t*>held[2].buf, count, held[0].len, held[1].len // (8 * C_WIDTH),
                     held[3].len // (8 * P_WIDTH))
        for row in range(count):
            candidates += is_candidate(&wanted, <int64_t*>held[2].buf + row * F_WIDTH)
        rows = array.clone(EMPTY, candidates * width, False)
        for row in range(count):
            f = <int64_t*>held[2].buf + row * F_WIDTH
            if is_candidate(&wanted, f):
                if read_request(&wanted, held, f, row, <int64_t*>rows.data.as_longlongs + found * width):
                    found += 1
                else:
                    f[F_PLAIN] = PLAIN_FIELDS
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    array.resize(rows, found * width)
    return rows


cdef int fill(Wanted* wanted, tuple codes, tuple names) except -1:
    """The names stay where they are: their tuple outlives the call."""
    cdef bytes name
    cdef int i
    if len(codes) > CODES:
        raise ValueError(f"{len(codes)} codes, at most {CODES} are possible")
    wanted.code_count = len(codes)
    for i in range(wanted.code_count):
        wanted.codes[i] = codes[i]
    wanted.name_count = len(names)
    for i in range(wanted.name_count):
        name = names[i]
        wanted.names[i] = <const char*>name
        wanted.sizes[i] = len(name)
    return 0


cdef inline bint is_candidate(const Wanted* wanted, const int64_t* f) noexcept:
    cdef int i
    if f[F_PLAIN] or f[F_FLAG] & RESPONSE:
        return False
    for i in range(wanted.code_count):
        if f[F_CODE] == wanted.codes[i]:
            return True
    return False


cdef bint read_request(const Wanted* wanted, Py_buffer* held, const int64_t* f, int64_t row, int64_t* out) except -1:
    cdef const uint8_t* data = <const uint8_t*>held[0].buf
    cdef const int64_t* p
    cdef int64_t i
    cdef uint64_t at = f[F_AT]
    cdef int number
    out[0] = row
    for number in range(wanted.name_count):
        out[1 + number * FIELD] = -1
        out[2 + number * FIELD] = out[3 + number * FIELD] = 0
    for i in range(f[F_FIRST_PAIR], f[F_FIRST_PAIR] + f[F_PAIRS]):
        p = <const int64_t*>held[3].buf + i * P_WIDTH
        if not pair_within(p, &at, f[F_BODY]):
            raise ValueError(f"frame {row} speaks of what is not there")
        for number in range(wanted.name_count):
            if wanted.sizes[number] == p[1] and memcmp(wanted.names[number], data + p[0], p[1]) == 0:
                if out[1 + number * FIELD] >= 0:
                    return False
                out[1 + number * FIELD] = p[2]
                out[2 + number * FIELD] = p[3]
                out[3 + number * FIELD] = p[4]
                break
        else:
            if p[3]:
                return False
    return True
