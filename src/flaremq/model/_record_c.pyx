# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _record_py: same names, same errors, same columns. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from flaremq.model import layout
from flaremq.model._tags_py import java_hash
from flaremq.model.columns import Check, Fact, Odd, Stop

# The constants live in layout and columns alone; these are their C copies.
cdef int32_t MAGIC_V1 = layout.MAGIC_V1, MAGIC_V2 = layout.MAGIC_V2, BLANK_MAGIC = layout.BLANK_MAGIC
cdef int64_t FIXED_SIZE = layout.FIXED_SIZE, BLANK_SIZE = layout.BLANK_SIZE
cdef int64_t BODY_AT_LEAST = layout.BODY_AT_LEAST, BORN_HOST_AT = layout.BORN_HOST_AT
cdef int64_t V4 = layout.HOST_SIZE_V4, V6 = layout.HOST_SIZE_V6
cdef int64_t CRC_TAIL_SIZE = layout.CRC_TAIL_SIZE, PHYSICAL_OFFSET_AT = layout.PHYSICAL_OFFSET_AT
cdef int32_t ENTRY_MAGIC = layout.DLEDGER_MAGIC, ENTRY_BLANK = layout.DLEDGER_BLANK_MAGIC
cdef int64_t ENTRY_HEAD = layout.DLEDGER_HEADER_SIZE
cdef int BORN_V6 = 0x10, STORE_V6 = 0x20

cdef int F_WIDTH = Fact.WIDTH, F_OFFSET = Fact.OFFSET, F_SIZE = Fact.SIZE, F_QUEUE_ID = Fact.QUEUE_ID
cdef int F_QUEUE_OFFSET = Fact.QUEUE_OFFSET, F_SYS_FLAG = Fact.SYS_FLAG
cdef int F_STORE_TIMESTAMP = Fact.STORE_TIMESTAMP, F_TAGS_CODE = Fact.TAGS_CODE, F_TOPIC = Fact.TOPIC_AT
cdef int F_PROPERTIES = Fact.PROPERTIES_AT, F_KEYS = Fact.KEYS_AT, F_UNIQUE_KEY = Fact.UNIQUE_KEY_AT
cdef int F_BODY = Fact.BODY_AT, F_ODD = Fact.ODD, F_TAGS = Fact.TAGS_AT

cdef int STOP_LIMIT = Stop.LIMIT, STOP_BLANK = Stop.BLANK, STOP_INVALID = Stop.INVALID, STOP_HALF = Stop.HALF
cdef int CHECK_BODY = Check.BODY_CRC, CHECK_RECORD = Check.RECORD_CRC, CHECK_OFFSET = Check.OFFSET
cdef int ODD_DELAY = Odd.DELAY, ODD_INNER = Odd.INNER_BATCH, ODD_MULTI = Odd.MULTI_DISPATCH

cdef int64_t GIL_FREE_FROM = 1 << 16  # Bytes of a walk from which other threads may run beside it.


cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil
    void crc_fill_table() nogil
    uint32_t crc31_of(const uint8_t* p, int64_t size) nogil
    bint crc_tail_agrees(const uint8_t* start, int64_t size) nogil
    int64_t hash_ascii(const uint8_t* p, int64_t size, uint32_t* h) nogil


cdef extern from "model/_pairs.h":
    ctypedef struct Pair:
        int64_t name, name_size, value, value_size
    bint next_pair(const uint8_t* data, int64_t* at, int64_t end, Pair* pair) nogil


crc_fill_table()


def crc31(data not None):
    cdef Py_buffer source
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        return crc31_of(<const uint8_t*>source.buf, source.len)
    finally:
        PyBuffer_Release(&source)


def walk(data not None, int64_t at, int64_t end, int64_t base, facts not None, int check):
    return walk_any(data, at, end, base, facts, check, note_many)


def walk_entries(data not None, int64_t at, int64_t end, int64_t base, facts not None, int check):
    return walk_any(data, at, end, base, facts, check, note_entries)


ctypedef int (*Note)(Py_buffer*, int64_t*, int64_t, int64_t, Py_buffer*, int, int64_t*) noexcept nogil


cdef tuple walk_any(data, int64_t at, int64_t end, int64_t base, facts, int check, Note note_all):
    cdef Py_buffer source, table
    cdef int64_t count = 0
    cdef int stop = STOP_LIMIT
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= source.len:
            raise ValueError(f"range {at}..{end} of {source.len} bytes")
        PyObject_GetBuffer(facts, &table, PyBUF_WRITABLE)
        try:
            if end - at >= GIL_FREE_FROM:
                with nogil:
                    stop = note_all(&source, &at, end, base, &table, check, &count)
            else:
                stop = note_all(&source, &at, end, base, &table, check, &count)
            return count, at, stop
        finally:
            PyBuffer_Release(&table)
    finally:
        PyBuffer_Release(&source)


cdef int note_entries(Py_buffer* source, int64_t* at, int64_t end, int64_t base, Py_buffer* table, int check,
                      int64_t* count) noexcept nogil:
    cdef const uint8_t* data = <const uint8_t*>source.buf
    cdef const uint8_t* p
    cdef int64_t* row = <int64_t*>table.buf
    cdef int64_t rows = table.len // (8 * F_WIDTH), size, body_size, noted = 0, index = 0, term = 0
    while count[0] < rows and at[0] < end:
        p = data + at[0]
        if end - at[0] < BLANK_SIZE:
            return STOP_INVALID
        if get32(p) == ENTRY_BLANK:
            return STOP_BLANK
        if end - at[0] < ENTRY_HEAD:
            return STOP_INVALID
        size, body_size = get32(p + 4), get32(p + 44)
        if get32(p) != ENTRY_MAGIC or size != ENTRY_HEAD + body_size:
            return STOP_INVALID
        if get64(p + 24) != base + at[0] or body_size < 0 or size > end - at[0]:
            return STOP_INVALID
        if count[0] and (get64(p + 8) != index + 1 or get64(p + 16) < term):
            return STOP_INVALID
        if check & CHECK_BODY and get32(p + 40) != 0:
            if get32(p + 40) != <int32_t>crc31_of(p + ENTRY_HEAD, body_size):
                return STOP_HALF
        if note(data, at[0] + ENTRY_HEAD, at[0] + size, base, row, check, &noted) != STOP_LIMIT or noted != body_size:
            return STOP_HALF
        index, term = get64(p + 8), get64(p + 16)
        at[0] += size
        row += F_WIDTH
        count[0] += 1
    return STOP_LIMIT


def leap(data not None, int64_t at, int64_t end, int64_t base, int64_t size):
    cdef Py_buffer source
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= source.len:
            raise ValueError(f"range {at}..{end} of {source.len} bytes")
        with nogil:
            at = leap_over(<const uint8_t*>source.buf, at, end, base, at + size)
        return at
    finally:
        PyBuffer_Release(&source)


cdef int64_t leap_over(const uint8_t* data, int64_t at, int64_t end, int64_t base, int64_t goal) noexcept nogil:
    cdef int64_t size
    cdef int32_t magic
    while end - at >= FIXED_SIZE:
        size = get32(data + at)
        magic = get32(data + at + 4)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or not FIXED_SIZE <= size <= end - at:
            return -1
        if get64(data + at + PHYSICAL_OFFSET_AT) != base + at:
            return -1
        if at >= goal:
            return at
        at += size
    return -1


cdef int note_many(Py_buffer* source, int64_t* at, int64_t end, int64_t base, Py_buffer* table, int check,
                   int64_t* count) noexcept nogil:
    cdef const uint8_t* data = <const uint8_t*>source.buf
    cdef int64_t* row = <int64_t*>table.buf
    cdef int64_t rows = table.len // (8 * F_WIDTH), size = 0
    cdef int stop
    while count[0] < rows and at[0] < end:
        stop = note(data, at[0], end, base, row, check, &size)
        if stop != STOP_LIMIT:
            return stop
        at[0] += size
        row += F_WIDTH
        count[0] += 1
    return STOP_LIMIT


cdef int note(const uint8_t* data, int64_t at, int64_t end, int64_t base, int64_t* f, int check,
              int64_t* size_out) noexcept nogil:
    cdef const uint8_t* p = data + at
    cdef int64_t size, born, store, record_end, body_at, body_size, topic_at, topic_size
    cdef int64_t properties_at, properties_size
    cdef int32_t magic, flag
    cdef int topic_width
    if end - at < BLANK_SIZE:
        return STOP_INVALID
    size = get32(p)
    magic = get32(p + 4)
    if magic == BLANK_MAGIC:
        return STOP_BLANK
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or not FIXED_SIZE <= size <= end - at:
        return STOP_INVALID
    if check & CHECK_OFFSET and get64(p + PHYSICAL_OFFSET_AT) != base + at:
        return STOP_INVALID
    size_out[0] = size
    flag = get32(p + 36)
    born = V6 if flag & BORN_V6 else V4
    store = V6 if flag & STORE_V6 else V4
    record_end = at + size
    body_at = at + BODY_AT_LEAST + born + store - 2 * V4
    topic_width = 2 if magic == MAGIC_V2 else 1
    if body_at + topic_width + 2 > record_end:
        return STOP_HALF
    body_size = get32(data + body_at - 4)
    if body_size < 0 or body_at + body_size + topic_width + 2 > record_end:
        return STOP_HALF
    topic_at = body_at + body_size + topic_width
    topic_size = get16(data + topic_at - 2) if topic_width == 2 else <int8_t>data[topic_at - 1]
    if topic_size < 0 or topic_at + topic_size + 2 > record_end:
        return STOP_HALF
    properties_at = topic_at + topic_size + 2
    properties_size = get16(data + properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != record_end:
        return STOP_HALF
    if check & CHECK_BODY and <int32_t>crc31_of(data + body_at, body_size) != get32(p + 8):
        return STOP_INVALID
    if check & CHECK_RECORD and (properties_size < CRC_TAIL_SIZE or not crc_tail_agrees(p, size)):
        return STOP_INVALID
    f[F_OFFSET] = base + at
    f[F_SIZE] = size
    f[F_QUEUE_ID] = get32(p + 12)
    f[F_QUEUE_OFFSET] = get64(p + 20)
    f[F_SYS_FLAG] = flag
    f[F_STORE_TIMESTAMP] = get64(p + BORN_HOST_AT + born)
    f[F_TOPIC] = topic_at
    f[F_TOPIC + 1] = topic_size
    f[F_PROPERTIES] = properties_at
    f[F_PROPERTIES + 1] = properties_size
    f[F_BODY] = body_at
    f[F_BODY + 1] = body_size
    note_properties(data, properties_at, record_end, f)
    return STOP_LIMIT


cdef void note_properties(const uint8_t* data, int64_t at, int64_t end, int64_t* f) noexcept nogil:
    cdef const uint8_t* name
    cdef Pair pair
    cdef int odd = 0, inner = 0
    f[F_KEYS] = f[F_KEYS + 1] = f[F_UNIQUE_KEY] = f[F_UNIQUE_KEY + 1] = f[F_TAGS] = f[F_TAGS + 1] = 0
    while next_pair(data, &at, end, &pair):
        name = data + pair.name
        if pair.name_size == 4:
            if memcmp(name, b"TAGS", 4) == 0:
                f[F_TAGS] = pair.value
                f[F_TAGS + 1] = pair.value_size
            elif memcmp(name, b"KEYS", 4) == 0:
                f[F_KEYS] = pair.value
                f[F_KEYS + 1] = pair.value_size
        elif pair.name_size == 8:
            if memcmp(name, b"UNIQ_KEY", 8) == 0:
                f[F_UNIQUE_KEY] = pair.value
                f[F_UNIQUE_KEY + 1] = pair.value_size
        elif pair.name_size == 5 and memcmp(name, b"DELAY", 5) == 0:
            odd |= ODD_DELAY
        elif pair.name_size == 20 and memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0:
            odd |= ODD_MULTI
        elif pair.name_size == 9 and memcmp(name, b"INNER_NUM", 9) == 0:
            inner |= 1
        elif pair.name_size == 10 and memcmp(name, b"INNER_BASE", 10) == 0:
            inner |= 2
    f[F_ODD] = odd | (ODD_INNER if inner == 3 else 0)
    f[F_TAGS_CODE] = hash_of(data + f[F_TAGS], f[F_TAGS + 1])


cdef int64_t hash_of(const uint8_t* p, int64_t size) noexcept nogil:
    """Java's hash of UTF-8 text; what is not ASCII goes the long way, through Python's decoder."""
    cdef uint32_t h = 0
    if hash_ascii(p, size, &h) < size:
        with gil:
            return java_hash((<const char*>p)[:size].decode("utf-8", "replace"))
    return <int32_t>h
