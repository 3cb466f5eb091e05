# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _pulls_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import array

from flaremq.protocol import codes
from flaremq.protocol.bulk import _pulls_py
from flaremq.protocol.bulk.columns import Chunk, Frame, Pair, Plain, Pull
from flaremq.protocol.codes import RequestCode

# The constants live in codes and columns alone; these are their C copies.
cdef int64_t PULL = RequestCode.PULL_MESSAGE, LITE_PULL = RequestCode.LITE_PULL_MESSAGE
cdef int RESPONSE = codes.RESPONSE
cdef int C_WIDTH = Chunk.WIDTH
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_AT = Frame.AT, F_SERIALIZE = Frame.SERIALIZE, F_CODE = Frame.CODE
cdef int F_OPAQUE = Frame.OPAQUE, F_FLAG = Frame.FLAG, F_FIRST_PAIR = Frame.FIRST_PAIR, F_PAIRS = Frame.PAIRS
cdef int F_BODY = Frame.BODY_AT, F_PLAIN = Frame.PLAIN, PLAIN_FIELDS = Plain.FIELDS
cdef int P_WIDTH = Pair.WIDTH
cdef int L_WIDTH = Pull.WIDTH, L_FRAME = Pull.FRAME, L_CHUNK = Pull.CHUNK, L_SERIALIZE = Pull.SERIALIZE
cdef int L_OPAQUE = Pull.OPAQUE, L_MAX_MSG_BYTES = Pull.MAX_MSG_BYTES

cdef enum:
    FIELDS = 22  # Columns of Pull, and two more for fields that are known and of no use.
    NAMES = 14
    TEXTS = 4
    NUMBERS = 8

cdef int[TEXTS] texts = [Pull.GROUP_AT, Pull.TOPIC_AT, Pull.SUBSCRIPTION_AT, Pull.EXPRESSION_TYPE_AT]
cdef int NEEDED_TEXTS = 2
cdef int[NUMBERS] numbers = [
    Pull.QUEUE_ID, Pull.MAX_MSG_NUMS, Pull.SYS_FLAG, Pull.MAX_MSG_BYTES,
    Pull.QUEUE_OFFSET, Pull.COMMIT_OFFSET, Pull.SUSPEND_TIMEOUT_MILLIS, Pull.SUB_VERSION]
cdef int INTS = 4  # The others are of 64 bits.
cdef array.array EMPTY = array.array("q")


include "_fieldnames.pxi"
include "_framecheck.pxi"

fill_names(_pulls_py.NAMES)


def parse_pulls(data not None, chunks not None, frames not None, pairs not None):
    cdef Py_buffer[4] held
    cdef int taken = 0
    cdef int64_t row, count, found = 0, candidates = 0
    cdef int64_t* f
    cdef array.array pulls
    try:
        for source in (data, chunks, frames, pairs):
            PyObject_GetBuffer(source, &held[taken], PyBUF_WRITABLE if taken == 2 else PyBUF_SIMPLE)
            taken += 1
        count = held[2].len // (8 * F_WIDTH)
        check_frames(<const int64_t*>held[2].buf, count, held[0].len, held[1].len // (8 * C_WIDTH),
                     held[3].len // (8 * P_WIDTH))
        for row in range(count):
            candidates += is_candidate(<int64_t*>held[2].buf + row * F_WIDTH)
        pulls = array.clone(EMPTY, candidates * L_WIDTH, False)
        for row in range(count):
            f = <int64_t*>held[2].buf + row * F_WIDTH
            if is_candidate(f):
                if read_pull(held, f, row, <int64_t*>pulls.data.as_longlongs + found * L_WIDTH):
                    found += 1
                else:
                    f[F_PLAIN] = PLAIN_FIELDS
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    array.resize(pulls, found * L_WIDTH)
    return pulls


cdef inline bint is_candidate(const int64_t* f) noexcept:
    return not f[F_PLAIN] and not f[F_FLAG] & RESPONSE and (f[F_CODE] == PULL or f[F_CODE] == LITE_PULL)


cdef bint read_pull(Py_buffer* held, const int64_t* f, int64_t row, int64_t* pull) except -1:
    cdef const uint8_t* data = <const uint8_t*>held[0].buf
    cdef int64_t* p
    cdef int64_t* found[FIELDS]
    cdef int64_t i
    cdef uint64_t at = f[F_AT]
    cdef int field, column
    memset(found, 0, sizeof(found))
    memset(pull, 0, 8 * L_WIDTH)
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
    pull[L_MAX_MSG_BYTES] = -1
    for i in range(TEXTS):
        column = texts[i]
        p = found[column]
        if p == NULL or not p[3]:
            if i < NEEDED_TEXTS:
                return False
        elif p[4] and (p[4] != KIND_WIDE or not utf8_valid(data + p[2], p[3])):
            return False
        else:
            pull[column] = p[2]
            pull[column + 1] = p[3]
    for i in range(NUMBERS):
        column = numbers[i]
        p = found[column]
        if p != NULL:
            if not text_number(data + p[2], p[3], 32 if i < INTS else 64, &pull[column]):
                return False
        elif column != L_MAX_MSG_BYTES:
            return False
    pull[L_FRAME] = row
    pull[L_CHUNK] = f[F_CHUNK]
    pull[L_SERIALIZE] = f[F_SERIALIZE]
    pull[L_OPAQUE] = f[F_OPAQUE]
    return True
