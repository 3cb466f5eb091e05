# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _batch_py: same names, same errors, same bytes and rows. Read that one first."""

from array import array

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from flaremq.base.errors import PropertiesTooLong
from flaremq.model import _batch_py, layout
from flaremq.model.columns import Draft

cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil
    void put32(uint8_t* p, int32_t value) nogil
    void put16(uint8_t* p, int16_t value) nogil

cdef extern from "model/_pairs.h":
    ctypedef struct Pair:
        int64_t name
        int64_t name_size
        int64_t value
        int64_t value_size
    int next_pair(const uint8_t* data, int64_t* at, int64_t end, Pair* pair) nogil

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef int64_t FIXED_SIZE = _batch_py.FIXED_SIZE, HEAD_SIZE = _batch_py.FIXED_SIZE - 2
cdef int64_t PROPERTIES_MAX = layout.PROPERTIES_SIZE_MAX
cdef int D_WIDTH = Draft.WIDTH, D_TOGETHER = Draft.TOGETHER, D_FLAG = Draft.FLAG
cdef int D_BODY = Draft.BODY_AT, D_PROPERTIES = Draft.PROPERTIES_AT


cdef const char* raw_of(object text, Py_ssize_t* size) except NULL:
    if isinstance(text, bytes):
        size[0] = PyBytes_GET_SIZE(text)
        return PyBytes_AS_STRING(text)
    return PyUnicode_AsUTF8AndSize(text, size)


def join_batch(bodies, texts, flags=()):
    cdef Py_ssize_t count = len(bodies), size = 0, raw_size = 0, i
    cdef bytes body, made
    cdef const char* raw
    cdef uint8_t* out
    bodies, texts = list(bodies), list(texts)  # Looked at twice: nobody may change them meanwhile.
    if len(texts) != count or (flags and len(flags) != count):
        raise ValueError(f"columns of {count}, {len(texts)} and {len(flags)} rows: they must be as long")
    for i in range(count):
        body = bodies[i]
        if body is None:
            raise TypeError("a message without a body in a batch")
        raw_of(texts[i], &raw_size)
        if raw_size > PROPERTIES_MAX:
            raise PropertiesTooLong(raw_size, PROPERTIES_MAX)
        size += FIXED_SIZE + PyBytes_GET_SIZE(body) + raw_size
    made = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t*>PyBytes_AS_STRING(made)
    for i in range(count):
        body = bodies[i]
        raw = raw_of(texts[i], &raw_size)
        put32(out, <int32_t>(FIXED_SIZE + PyBytes_GET_SIZE(body) + raw_size))
        put32(out + 4, 0)
        put32(out + 8, 0)
        put32(out + 12, <int32_t>flags[i] if flags else 0)
        put32(out + 16, <int32_t>PyBytes_GET_SIZE(body))
        out += HEAD_SIZE
        memcpy(out, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        out += PyBytes_GET_SIZE(body)
        put16(out, <int16_t>raw_size)
        memcpy(out + 2, raw, raw_size)
        out += 2 + raw_size
    return made


cdef bint may_wait(const uint8_t* name, int64_t size) noexcept:
    # Names of the reference twin's check_stays, which looks closer.
    if size == 5:
        return memcmp(name, b"DELAY", 5) == 0
    if size == 8:
        return memcmp(name, b"TRAN_MSG", 8) == 0
    if size < 14 or memcmp(name, b"TIMER_DEL", 9) != 0:
        return False
    return (
        (size == 14 and memcmp(name, b"TIMER_DELAY_MS", 14) == 0)
        or (size == 15 and memcmp(name, b"TIMER_DELAY_SEC", 15) == 0)
        or (size == 16 and memcmp(name, b"TIMER_DELIVER_MS", 16) == 0)
    )


cdef int64_t counted(const uint8_t* data, int64_t at, int64_t end) noexcept:
    # Elements between two places; -1 if one of them is broken, or may have to wait somewhere else.
    cdef int64_t count = 0, size, body_size, properties, next_at
    cdef Pair pair
    while at < end:
        if end - at < FIXED_SIZE:
            return -1
        size, body_size = get32(data + at), get32(data + at + 16)
        if not FIXED_SIZE <= size <= end - at or not 0 <= body_size <= size - FIXED_SIZE:
            return -1
        properties = at + FIXED_SIZE + body_size
        next_at = at + size
        if properties + get16(data + properties - 2) != next_at:
            return -1
        while next_pair(data, &properties, next_at, &pair):
            if may_wait(data + pair.name, pair.name_size):
                return -1
        at = next_at
        count += 1
    return count


def batch_rows(bytes buffer not None, Py_ssize_t lead, base):
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(buffer)
    cdef int64_t end = PyBytes_GET_SIZE(buffer), at = lead, body_size
    cdef int64_t count = counted(data, at, end)
    cdef int64_t* row
    cdef Py_buffer held
    if count < 0:
        return _batch_py.batch_rows(buffer, lead, base)  # Says what is wrong.
    rows = array("q", base) * count
    if not count:
        return rows
    PyObject_GetBuffer(rows, &held, PyBUF_WRITABLE)
    row = <int64_t*>held.buf
    row[D_TOGETHER] = count
    while at < end:
        body_size = get32(data + at + 16)
        row[D_BODY], row[D_BODY + 1] = at + HEAD_SIZE, body_size
        row[D_FLAG] = get32(data + at + 12)
        row[D_PROPERTIES] = at + FIXED_SIZE + body_size
        at += get32(data + at)
        row[D_PROPERTIES + 1] = at - row[D_PROPERTIES]
        row += D_WIDTH
    PyBuffer_Release(&held)
    return rows
