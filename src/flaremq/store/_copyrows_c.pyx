# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _copyrows_py: same names, same rows. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import array

from flaremq.model import layout, sysflag
from flaremq.model.columns import Draft, Drafts

# The constants live in layout, sysflag and columns alone; these are their C copies.
cdef int D_WIDTH = Draft.WIDTH, D_PHYSICAL = Draft.PHYSICAL_OFFSET
cdef array.array EMPTY = array.array("q")


cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int64_t get64(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil


include "_glance.pxi"


cdef class Glance:
    cdef readonly object record
    cdef Py_buffer _held
    cdef Seen _seen

    def __dealloc__(self):
        if self.record is not None:
            PyBuffer_Release(&self._held)

    cdef bytes part(self, int64_t at, int64_t size):
        return PyBytes_FromStringAndSize(<const char*>self._seen.p + at, size)

    @property
    def body_crc(self):
        return get32(self._seen.p + 8)

    @property
    def queue_id(self):
        return get32(self._seen.p + 12)

    @property
    def flag(self):
        return self._seen.flag

    @property
    def queue_offset(self):
        return self._seen.queue_offset

    @property
    def physical_offset(self):
        return self._seen.physical_offset

    @property
    def sys_flag(self):
        return self._seen.sys_flag

    @property
    def born_timestamp_ms(self):
        return self._seen.born_ms

    @property
    def reconsume_times(self):
        return self._seen.times

    @property
    def prepared_offset(self):
        return self._seen.prepared

    @property
    def body_at(self):
        return self._seen.body_at

    @property
    def body_size(self):
        return self._seen.body_size

    @property
    def born_host(self):
        return self.part(G_HOST_AT, self._seen.host_size)

    @property
    def topic(self):
        return self.part(self._seen.topic_at, self._seen.topic_size)

    @property
    def properties(self):
        return self.part(self._seen.properties_at, self._seen.properties_size)

    @property
    def body(self):
        return self.record[self._seen.body_at:self._seen.body_at + self._seen.body_size]

    def property(self, bytes name not None):
        cdef const uint8_t* value = NULL
        cdef int64_t size = value_of(&self._seen, <const char*>name, len(name), &value)
        return PyBytes_FromStringAndSize(<const char*>value, size) if size else None


def glance(record not None):
    cdef Glance seen = Glance.__new__(Glance)
    PyObject_GetBuffer(record, &seen._held, PyBUF_SIMPLE)
    seen.record = record
    if look(&seen._seen, <const uint8_t*>seen._held.buf, seen._held.len) and seen._seen.size == seen._held.len:
        return seen
    return None


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
        cdef Seen* at = &seen._seen
        cdef int64_t* row = self.next_row(topic, queue_id, properties, at.p + G_HOST_AT, at.host_size,
                                          at.p + at.body_at, at.body_size)
        row[11] = together
        row[12] = at.flag
        row[13] = at.sys_flag if sys_flag is None else sys_flag
        row[14] = at.born_ms
        row[15] = at.times
        row[16] = at.prepared if prepared_offset is None else prepared_offset

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
