# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _entries_py: same names, same bytes. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

import array

from flaremq.model import layout
from flaremq.model.columns import Draft, Stop

# The constants live in layout and columns alone; these are their C copies.
cdef int D_WIDTH = Draft.WIDTH, D_PHYSICAL = Draft.PHYSICAL_OFFSET, D_SIZE = Draft.SIZE
cdef int64_t HEAD = layout.DLEDGER_HEADER_SIZE, UNIT = layout.DLEDGER_UNIT_SIZE, BLANK = layout.BLANK_SIZE
cdef int32_t MAGIC = layout.DLEDGER_MAGIC, BLANK_MAGIC = layout.DLEDGER_BLANK_MAGIC
cdef int LIMIT = Stop.LIMIT, AT_BLANK = Stop.BLANK, INVALID = Stop.INVALID


cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil
    void publish32(uint8_t* p, int32_t value) nogil
    void crc_fill_table() nogil
    uint32_t crc31_of(const uint8_t* p, int64_t size) nogil


crc_fill_table()


def seal(out not None, array.array rows not None, int64_t first, int64_t count, int64_t base, int64_t index,
         int64_t term, int32_t channel, units not None):
    cdef Py_buffer target, places
    PyObject_GetBuffer(out, &target, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(units, &places, PyBUF_WRITABLE)
        try:
            if not 0 <= first <= first + count <= len(rows) // D_WIDTH or places.len < count * UNIT:
                raise IndexError(f"rows {first}+{count}")
            seal_all(&target, rows.data.as_longlongs, first, count, base, index, term, channel,
                     <uint8_t*>places.buf)
        finally:
            PyBuffer_Release(&places)
    finally:
        PyBuffer_Release(&target)


cdef int seal_all(Py_buffer* target, const long long* rows, int64_t first, int64_t count, int64_t base,
                  int64_t index, int64_t term, int32_t channel, uint8_t* unit) except -1:
    cdef uint8_t* p
    cdef const long long* r
    cdef int64_t number, at, size
    for number in range(count):
        r = rows + (first + number) * D_WIDTH
        size = r[D_SIZE]
        at = r[D_PHYSICAL] - base - HEAD
        if at < 0 or size < 0 or at + HEAD + size > target.len:
            raise IndexError(f"row {first + number}: bytes {at + HEAD}+{size} of {target.len}")
        p = <uint8_t*>target.buf + at
        put32(p + 4, <int32_t>(HEAD + size))
        put64(p + 8, index + number)
        put64(p + 16, term)
        put64(p + 24, base + at)
        put32(p + 32, channel)
        put32(p + 36, 0)
        put32(p + 40, <int32_t>crc31_of(p + HEAD, size))
        put32(p + 44, <int32_t>size)
        publish32(p, MAGIC)
        put_unit(unit + number * UNIT, base + at, HEAD + size, index + number, term)
    return 0


cdef inline void put_unit(uint8_t* p, int64_t position, int64_t size, int64_t index, int64_t term) noexcept:
    put32(p, MAGIC)
    put64(p + 4, position)
    put32(p + 12, <int32_t>size)
    put64(p + 16, index)
    put64(p + 24, term)


def examine(data not None, int64_t at, int64_t end, int64_t base, int64_t index, int64_t term, units not None,
            spans not None, marked not None):
    cdef Py_buffer given, places
    PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= given.len:
            raise ValueError(f"range {at}..{end} of {given.len} bytes")
        PyObject_GetBuffer(units, &places, PyBUF_WRITABLE)
        try:
            return examine_all(<const uint8_t*>given.buf, at, end, base, index, term, &places, spans, marked)
        finally:
            PyBuffer_Release(&places)
    finally:
        PyBuffer_Release(&given)


cdef examine_all(const uint8_t* data, int64_t at, int64_t end, int64_t base, int64_t index, int64_t term,
                 Py_buffer* units, object spans, object marked):
    cdef int64_t rows = units.len // UNIT, count = 0, in_span = 0, size, own_term
    cdef const uint8_t* p
    cdef int stop = LIMIT
    while count < rows and at < end:
        p = data + at
        if end - at >= BLANK and get32(p) == BLANK_MAGIC:
            stop = AT_BLANK
            break
        size = sound_size(p, end - at, base + at, index + count, term)
        if size < 0:
            stop = INVALID
            break
        own_term = get64(p + 16)
        if in_span and own_term != term:
            spans.extend((term, in_span))
            in_span = 0
        in_span += 1
        if get32(p + 32) != 0:
            marked.extend((index + count, at + HEAD))
        put_unit(<uint8_t*>units.buf + count * UNIT, base + at, size, index + count, own_term)
        at += size
        term = own_term
        count += 1
    if in_span:
        spans.extend((term, in_span))
    return count, at, stop


cdef inline int64_t sound_size(const uint8_t* p, int64_t room, int64_t position, int64_t index,
                               int64_t term) noexcept:
    # Of the entry that begins here; -1 if it is not sound.
    cdef int64_t size, body
    cdef int32_t crc
    if room < HEAD or get32(p) != MAGIC or get64(p + 8) != index or get64(p + 16) < term:
        return -1
    size = get32(p + 4)
    body = get32(p + 44)
    if get64(p + 24) != position or body < 0 or size != HEAD + body or size > room:
        return -1
    crc = get32(p + 40)
    if crc != 0 and crc != <int32_t>crc31_of(p + HEAD, body):
        return -1
    return size
