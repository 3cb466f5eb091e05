# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _relocate_py: same names, same bytes. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

import array

from flaremq.model import layout
from flaremq.model.columns import Fact

# The constants live in layout and columns alone; these are their C copies.
cdef int F_WIDTH = Fact.WIDTH, F_SIZE = Fact.SIZE, F_TOPIC = Fact.TOPIC_AT, F_BODY = Fact.BODY_AT
cdef int F_PROPERTIES = Fact.PROPERTIES_AT
cdef int64_t HEAD = layout.DLEDGER_HEADER_SIZE, UNIT = layout.DLEDGER_UNIT_SIZE, BLANK = layout.BLANK_SIZE
cdef int64_t OFFSET_AT = layout.PHYSICAL_OFFSET_AT, TAIL = layout.CRC_TAIL_SIZE
cdef int32_t MAGIC = layout.DLEDGER_MAGIC
cdef int64_t PREPARED_BEFORE_BODY = 12


cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil
    void crc_fill_table() nogil
    uint32_t crc31_of(const uint8_t* p, int64_t size) nogil
    void put_crc_tail(const uint8_t* start, int64_t size, uint8_t* p) nogil


crc_fill_table()


def relocate(source not None, facts not None, int64_t first, int64_t count, target not None, int64_t at,
             int64_t base, moved not None, units=None, int64_t index=0, int64_t term=0):
    cdef Py_buffer out, ins, rows, places, unit_bytes
    cdef bint in_entries = units is not None
    PyObject_GetBuffer(source, &ins, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(facts, &rows, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(target, &out, PyBUF_WRITABLE)
            try:
                PyObject_GetBuffer(moved, &places, PyBUF_WRITABLE)
                try:
                    if in_entries:
                        PyObject_GetBuffer(units, &unit_bytes, PyBUF_WRITABLE)
                    try:
                        check_sizes(&rows, first, count, places.len, unit_bytes.len if in_entries else -1)
                        check_places(&rows, first, count, ins.len)
                        with nogil:
                            copy_all(<const uint8_t*>ins.buf, <const int64_t*>rows.buf, &first, count,
                                     <uint8_t*>out.buf, out.len, &at, base, <int64_t*>places.buf,
                                     <uint8_t*>unit_bytes.buf if in_entries else NULL, index, term)
                        return first, at
                    finally:
                        if in_entries:
                            PyBuffer_Release(&unit_bytes)
                finally:
                    PyBuffer_Release(&places)
            finally:
                PyBuffer_Release(&out)
        finally:
            PyBuffer_Release(&rows)
    finally:
        PyBuffer_Release(&ins)


cdef int check_sizes(Py_buffer* rows, int64_t first, int64_t count, int64_t places, int64_t units) except -1:
    if not 0 <= first <= count or rows.len < 8 * F_WIDTH * count or places < 8 * count:
        raise IndexError(f"rows {first}..{count}")
    if 0 <= units < UNIT * (count - first):
        raise IndexError(f"{units} bytes for {count - first} units")
    return 0


cdef int check_places(Py_buffer* rows, int64_t first, int64_t count, int64_t size) except -1:
    cdef const int64_t* f
    cdef int64_t row, end
    for row in range(first, count):
        f = <const int64_t*>rows.buf + row * F_WIDTH
        end = f[F_PROPERTIES] + f[F_PROPERTIES + 1]
        if f[F_SIZE] < layout.FIXED_SIZE or end > size or end < f[F_SIZE]:
            raise IndexError(f"row {row} of {size} bytes")
    return 0


cdef void copy_all(const uint8_t* data, const int64_t* rows, int64_t* first, int64_t count, uint8_t* target,
                   int64_t limit, int64_t* at, int64_t base, int64_t* moved, uint8_t* unit, int64_t index,
                   int64_t term) noexcept nogil:
    cdef int64_t head = HEAD if unit != NULL else 0, size
    cdef const int64_t* f
    cdef uint8_t* p
    while first[0] < count:
        f = rows + first[0] * F_WIDTH
        size = f[F_SIZE]
        if at[0] + head + size + BLANK > limit:
            return
        p = target + at[0]
        if unit != NULL:
            put_entry(p, unit, base + at[0], size, index, term)
            unit += UNIT
            index += 1
        at[0] += head
        p += head
        memcpy(p, data + f[F_PROPERTIES] + f[F_PROPERTIES + 1] - size, size)
        put64(p + OFFSET_AT, base + at[0])
        if has_crc(p, size):
            put_crc_tail(p, size - TAIL, p + size - TAIL)
        moved[first[0]] = base + at[0]
        at[0] += size
        first[0] += 1


cdef void put_entry(uint8_t* p, uint8_t* unit, int64_t position, int64_t size, int64_t index,
                    int64_t term) noexcept nogil:
    put32(p, MAGIC)
    put32(p + 4, <int32_t>(HEAD + size))
    put64(p + 8, index)
    put64(p + 16, term)
    put64(p + 24, position)
    put64(p + 32, 0)
    put32(p + 40, 0)
    put32(p + 44, <int32_t>size)
    put32(unit, MAGIC)
    put64(unit + 4, position)
    put32(unit + 12, <int32_t>(HEAD + size))
    put64(unit + 16, index)
    put64(unit + 24, term)


cdef bint has_crc(const uint8_t* p, int64_t size) noexcept nogil:
    return memcmp(p + size - TAIL, b"__CRC32#\x01", 9) == 0 and p[size - 1] == 2


def linked_rows(source not None, array.array facts not None, int64_t count, topics not None):
    cdef Py_buffer ins
    cdef array.array found = array.array("q")
    cdef const int64_t* f
    cdef const uint8_t* data
    cdef bytes topic
    cdef list names = list(topics)
    cdef int64_t row
    cdef bint is_linked
    PyObject_GetBuffer(source, &ins, PyBUF_SIMPLE)
    try:
        if count * F_WIDTH > len(facts):
            raise IndexError(f"{count} rows")
        data = <const uint8_t*>ins.buf
        for row in range(count):
            f = <const int64_t*>facts.data.as_longlongs + row * F_WIDTH
            if f[F_BODY] < PREPARED_BEFORE_BODY or f[F_TOPIC] + f[F_TOPIC + 1] > ins.len or f[F_BODY] > ins.len:
                raise IndexError(f"row {row} of {ins.len} bytes")
            is_linked = get64(data + f[F_BODY] - PREPARED_BEFORE_BODY) != 0
            for topic in names:
                if len(topic) == f[F_TOPIC + 1] and memcmp(data + f[F_TOPIC], <const char*>topic, len(topic)) == 0:
                    is_linked = True
            if is_linked:
                found.append(row)
        return found
    finally:
        PyBuffer_Release(&ins)


def differing_row(source not None, array.array facts not None, other not None, array.array others not None,
                  int64_t count):
    cdef Py_buffer ins, outs
    cdef int64_t row
    PyObject_GetBuffer(source, &ins, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(other, &outs, PyBUF_SIMPLE)
        try:
            if count * F_WIDTH > len(facts) or count * F_WIDTH > len(others):
                raise IndexError(f"{count} rows")
            for row in range(count):
                if not same(<const uint8_t*>ins.buf, ins.len, <const int64_t*>facts.data.as_longlongs + row * F_WIDTH,
                            <const uint8_t*>outs.buf, outs.len,
                            <const int64_t*>others.data.as_longlongs + row * F_WIDTH):
                    return row
            return count
        finally:
            PyBuffer_Release(&outs)
    finally:
        PyBuffer_Release(&ins)


cdef bint same(const uint8_t* data, int64_t limit, const int64_t* f, const uint8_t* other, int64_t other_limit,
               const int64_t* g) noexcept nogil:
    cdef int64_t size = f[F_SIZE], end = f[F_PROPERTIES] + f[F_PROPERTIES + 1]
    cdef int64_t other_end = g[F_PROPERTIES] + g[F_PROPERTIES + 1], prepared
    cdef const uint8_t* p
    cdef const uint8_t* q
    if g[F_SIZE] != size or end > limit or other_end > other_limit or end < size or other_end < size:
        return False
    p = data + end - size
    q = other + other_end - size
    prepared = f[F_BODY] - PREPARED_BEFORE_BODY - (end - size)
    if g[F_BODY] - (other_end - size) != f[F_BODY] - (end - size) or has_crc(p, size) != has_crc(q, size):
        return False
    if has_crc(p, size):
        size -= TAIL
    return (memcmp(p, q, OFFSET_AT) == 0
            and memcmp(p + OFFSET_AT + 8, q + OFFSET_AT + 8, prepared - OFFSET_AT - 8) == 0
            and memcmp(p + prepared + 8, q + prepared + 8, size - prepared - 8) == 0)
