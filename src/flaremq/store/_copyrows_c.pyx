# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _copyrows_py: same names, same rows. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

import array

from flaremq.model import layout, sysflag
from flaremq.model.columns import Draft, Drafts

# The constants live in layout, sysflag and columns alone; these are their C copies.
cdef int FIXED = layout.FIXED_SIZE, V4 = layout.HOST_SIZE_V4, V6 = layout.HOST_SIZE_V6, BORN_HOST_AT = layout.BORN_HOST_AT
cdef int BORN_V6 = sysflag.BORN_HOST_V6, STORE_V6 = sysflag.STORE_HOST_V6
cdef int32_t V1 = layout.MAGIC_V1, V2 = layout.MAGIC_V2
cdef int D_WIDTH = Draft.WIDTH, D_PHYSICAL = Draft.PHYSICAL_OFFSET
cdef array.array EMPTY = array.array("q")


cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int64_t get64(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil


cdef class Glance:
    cdef readonly object record
    cdef Py_buffer _held
    cdef const uint8_t* _p
    cdef readonly int64_t body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp_ms
    cdef readonly int64_t reconsume_times, prepared_offset, body_at, body_size
    cdef int64_t _born_size, _topic_at, _topic_size, _properties_at, _properties_size

    def __dealloc__(self):
        if self._p != NULL:
            PyBuffer_Release(&self._held)

    @property
    def born_host(self):
        return PyBytes_FromStringAndSize(<const char*>self._p + BORN_HOST_AT, self._born_size)

    @property
    def topic(self):
        return PyBytes_FromStringAndSize(<const char*>self._p + self._topic_at, self._topic_size)

    @property
    def properties(self):
        return PyBytes_FromStringAndSize(<const char*>self._p + self._properties_at, self._properties_size)

    @property
    def body(self):
        return self.record[self.body_at:self.body_at + self.body_size]

    def property(self, bytes name not None):
        cdef const uint8_t* p = self._p + self._properties_at
        cdef const uint8_t* end = p + self._properties_size
        cdef const uint8_t* stop
        cdef const uint8_t* found = NULL  # The last of equal names counts; an empty value does not.
        cdef int64_t size = len(name), found_size = 0
        cdef const char* text = name
        while p < end:
            stop = <const uint8_t*>memchr(p, 2, end - p)
            if stop == NULL:
                stop = end
            if stop - p > size + 1 and p[size] == 1 and memcmp(p, text, size) == 0:
                found = p + size + 1
                found_size = stop - found
            p = stop + 1
        return None if found == NULL else PyBytes_FromStringAndSize(<const char*>found, found_size)


def glance(record not None):
    cdef Glance seen = Glance.__new__(Glance)
    PyObject_GetBuffer(record, &seen._held, PyBUF_SIMPLE)
    seen._p = <const uint8_t*>seen._held.buf
    seen.record = record
    return seen if read(seen, seen._p, seen._held.len) else None


cdef bint read(Glance seen, const uint8_t* p, int64_t size) noexcept:
    cdef int64_t middle, at, wide
    cdef int32_t magic
    if size < FIXED or get32(p) != size:
        return False
    magic = get32(p + 4)
    if magic != V1 and magic != V2:
        return False
    seen.body_crc = get32(p + 8)
    seen.queue_id = get32(p + 12)
    seen.flag = get32(p + 16)
    seen.queue_offset = get64(p + 20)
    seen.physical_offset = get64(p + 28)
    seen.sys_flag = get32(p + 36)
    seen.born_timestamp_ms = get64(p + 40)
    seen._born_size = V6 if seen.sys_flag & BORN_V6 else V4
    middle = BORN_HOST_AT + seen._born_size + 8 + (V6 if seen.sys_flag & STORE_V6 else V4)
    if middle + 16 > size:
        return False
    seen.reconsume_times = get32(p + middle)
    seen.prepared_offset = get64(p + middle + 4)
    seen.body_size = get32(p + middle + 12)
    seen.body_at = middle + 16
    at = seen.body_at + seen.body_size
    wide = 1 if magic == V2 else 0
    if seen.body_size < 0 or at + 1 + wide > size:
        return False
    seen._topic_size = get16(p + at) if wide else p[at]
    seen._topic_at = at + 1 + wide
    seen._properties_at = seen._topic_at + seen._topic_size + 2
    if seen._topic_size < 0 or seen._properties_at > size:
        return False
    seen._properties_size = get16(p + seen._properties_at - 2)
    return seen._properties_at + seen._properties_size == size


cdef class CopyRows:
    cdef readonly array.array rows
    cdef object _offsets
    cdef bytearray _heads, _bodies

    def __init__(self, offsets not None):
        self._offsets = offsets
        self.rows = array.clone(EMPTY, 0, False)
        self._heads = bytearray()
        self._bodies = bytearray()

    def __len__(self):
        return len(self.rows) // D_WIDTH

    def add(self, Glance seen not None, bytes topic not None, int64_t queue_id, bytes properties not None, *,
            sys_flag=None, prepared_offset=None, int64_t together=1):
        cdef int64_t* row = self.next_row(topic, queue_id, properties, seen._p + BORN_HOST_AT, seen._born_size,
                                          seen._p + seen.body_at, seen.body_size)
        row[11] = together
        row[12] = seen.flag
        row[13] = seen.sys_flag if sys_flag is None else sys_flag
        row[14] = seen.born_timestamp_ms
        row[15] = seen.reconsume_times
        row[16] = seen.prepared_offset if prepared_offset is None else prepared_offset

    def add_new(self, message not None, bytes body=None):
        cdef bytes topic = message.topic, properties = message.properties, host = message.born_host
        cdef int64_t* row
        if body is None:
            body = message.body
        row = self.next_row(topic, message.queue_id, properties, <const uint8_t*><const char*>host, len(host),
                            <const uint8_t*><const char*>body, len(body))
        row[11] = 1
        row[12] = message.flag
        row[13] = message.sys_flag
        row[14] = message.born_timestamp_ms
        row[15] = message.reconsume_times
        row[16] = message.prepared_transaction_offset

    cdef int64_t* next_row(self, bytes topic, int64_t queue_id, bytes properties, const uint8_t* host, int64_t host_size,
                           const uint8_t* body, int64_t body_size) except NULL:
        """Fill the columns that say where its parts are; the places of those that follow are zero."""
        cdef int64_t at = PyByteArray_GET_SIZE(self._heads), body_at = PyByteArray_GET_SIZE(self._bodies)
        cdef int64_t topic_size = len(topic), properties_size = len(properties), first = len(self.rows), i
        cdef int64_t queue = self._offsets.number(topic, queue_id)
        cdef char* out
        cdef int64_t* row
        PyByteArray_Resize(self._heads, at + topic_size + properties_size + host_size)
        out = PyByteArray_AS_STRING(self._heads) + at
        memcpy(out, <const char*>topic, topic_size)
        memcpy(out + topic_size, <const char*>properties, properties_size)
        memcpy(out + topic_size + properties_size, host, host_size)
        PyByteArray_Resize(self._bodies, body_at + body_size)
        memcpy(PyByteArray_AS_STRING(self._bodies) + body_at, body, body_size)
        array.resize_smart(self.rows, first + D_WIDTH)
        row = <int64_t*>self.rows.data.as_longlongs + first
        for i in range(D_WIDTH):
            row[i] = 0
        row[0] = at
        row[1] = topic_size
        row[2] = at + topic_size
        row[3] = properties_size
        row[4] = body_at
        row[5] = body_size
        row[6] = at + topic_size + properties_size
        row[7] = host_size
        row[8] = queue_id
        row[9] = queue
        row[10] = 1
        return row

    def drafts(self):
        return Drafts(self.rows, self._heads, self._bodies)

    def place(self, int64_t row):
        cdef const int64_t* at
        if not 0 <= row < len(self.rows) // D_WIDTH:
            raise IndexError(row)
        at = <const int64_t*>self.rows.data.as_longlongs + row * D_WIDTH + D_PHYSICAL
        return at[0], at[1], at[2]


assert (Draft.TOGETHER, Draft.FLAG, Draft.PREPARED_OFFSET, Draft.WIDTH) == (11, 12, 16, 20)
