# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _encode_py: same names, same errors, same bytes. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from flaremq.model import layout
from flaremq.model.columns import Draft

# The constants live in layout and columns alone; these are their C copies.
cdef int32_t MAGIC_V1 = layout.MAGIC_V1, MAGIC_V2 = layout.MAGIC_V2
cdef int64_t FIXED_SIZE = layout.FIXED_SIZE, BLANK_SIZE = layout.BLANK_SIZE, BORN_HOST_AT = layout.BORN_HOST_AT
cdef int64_t V4 = layout.HOST_SIZE_V4, V6 = layout.HOST_SIZE_V6
cdef int64_t TOPIC_V1_MAX = layout.TOPIC_SIZE_MAX_V1, TOPIC_V2_MAX = layout.TOPIC_SIZE_MAX_V2
cdef int64_t PROPERTIES_MAX = layout.PROPERTIES_SIZE_MAX, CRC_TAIL_SIZE = layout.CRC_TAIL_SIZE
cdef uint8_t PROPERTY_END = layout.PROPERTY_END
cdef int BORN_V6 = 0x10, STORE_V6 = 0x20

cdef int D_WIDTH = Draft.WIDTH, D_TOPIC = Draft.TOPIC_AT, D_PROPERTIES = Draft.PROPERTIES_AT
cdef int D_BODY = Draft.BODY_AT, D_BORN_HOST = Draft.BORN_HOST_AT, D_QUEUE_ID = Draft.QUEUE_ID
cdef int D_QUEUE = Draft.QUEUE, D_STEP = Draft.STEP, D_TOGETHER = Draft.TOGETHER, D_FLAG = Draft.FLAG
cdef int D_SYS_FLAG = Draft.SYS_FLAG, D_BORN_TIMESTAMP = Draft.BORN_TIMESTAMP
cdef int D_RECONSUME_TIMES = Draft.RECONSUME_TIMES, D_PREPARED_OFFSET = Draft.PREPARED_OFFSET
cdef int D_PHYSICAL_OFFSET = Draft.PHYSICAL_OFFSET, D_SIZE = Draft.SIZE, D_QUEUE_OFFSET = Draft.QUEUE_OFFSET


cdef extern from "model/_bytes.h":
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil
    void put16(uint8_t* p, int16_t value) nogil
    void publish32(uint8_t* p, int32_t value) nogil
    void crc_fill_table() nogil
    uint32_t crc31_of(const uint8_t* p, int64_t size) nogil
    void put_crc_tail(const uint8_t* start, int64_t size, uint8_t* p) nogil


crc_fill_table()


cdef struct Input:
    # Drafts, with the buffers held as long as the pointers are in use.
    Py_buffer rows_held
    Py_buffer heads_held
    Py_buffer bodies_held
    int64_t* rows
    int64_t count
    const uint8_t* heads
    const uint8_t* bodies


cdef int take(object drafts, Input* given) except -1:
    PyObject_GetBuffer(drafts.rows, &given.rows_held, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(drafts.heads, &given.heads_held, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(drafts.bodies, &given.bodies_held, PyBUF_SIMPLE)
        except BaseException:
            PyBuffer_Release(&given.heads_held)
            raise
    except BaseException:
        PyBuffer_Release(&given.rows_held)
        raise
    given.rows = <int64_t*>given.rows_held.buf
    given.count = given.rows_held.len // (8 * D_WIDTH)
    given.heads = <const uint8_t*>given.heads_held.buf
    given.bodies = <const uint8_t*>given.bodies_held.buf
    return 0


cdef void release(Input* given) noexcept:
    PyBuffer_Release(&given.rows_held)
    PyBuffer_Release(&given.heads_held)
    PyBuffer_Release(&given.bodies_held)


cdef class Encoder:
    cdef bytes _store_host
    cdef bint _append_crc
    cdef int64_t _fixed, _body_max, _record_max, _gap

    def __init__(self, bytes store_host not None, bint append_crc=False, int64_t body_max=1 << 31,
                 int64_t record_max=1 << 31, int64_t gap=0):
        if len(store_host) not in (V4, V6):
            raise ValueError(f"store host of {len(store_host)} bytes: expected 8 or 20")
        self._store_host = store_host
        self._append_crc = append_crc
        self._body_max = body_max
        self._record_max = record_max
        self._gap = gap
        self._fixed = FIXED_SIZE + len(store_host) - V4

    def encode_many(self, drafts not None, int64_t first, out not None, int64_t at, int64_t base,
                    next_offsets not None, int64_t now_ms):
        cdef Input given
        cdef Py_buffer target, offsets
        take(drafts, &given)
        try:
            PyObject_GetBuffer(out, &target, PyBUF_WRITABLE)
            try:
                PyObject_GetBuffer(next_offsets, &offsets, PyBUF_WRITABLE)
                try:
                    check(&given, first, offsets.len // 8)
                    if not 0 <= at <= target.len:
                        raise ValueError(f"place {at} of {target.len}")
                    return self.encode(&given, first, &target, at, base, <int64_t*>offsets.buf, now_ms)
                finally:
                    PyBuffer_Release(&offsets)
            finally:
                PyBuffer_Release(&target)
        finally:
            release(&given)

    cdef int64_t encode(self, Input* given, int64_t first, Py_buffer* target, int64_t at, int64_t base,
                        int64_t* next_offsets, int64_t now_ms):
        cdef uint8_t* out = <uint8_t*>target.buf
        cdef int64_t row, i, needed, size, queue, written = 0
        cdef int64_t* r
        for row in range(first, given.count):
            r = given.rows + row * D_WIDTH
            if (r[D_BODY + 1] > self._body_max or not 0 < r[D_TOPIC + 1] <= TOPIC_V2_MAX
                    or self.properties_size(r, given.heads) > PROPERTIES_MAX
                    or self.size_of(r, given.heads) > self._record_max):
                return -1 - row
        for row in range(first, given.count):
            r = given.rows + row * D_WIDTH
            size = self.size_of(r, given.heads)
            needed = self._gap + size
            for i in range(1, r[D_TOGETHER]):
                needed += self._gap + self.size_of(r + i * D_WIDTH, given.heads)
            if at + needed + BLANK_SIZE > target.len:
                break
            queue = r[D_QUEUE]
            r[D_QUEUE_OFFSET] = 0
            if queue >= 0:
                r[D_QUEUE_OFFSET] = next_offsets[queue]
                next_offsets[queue] += r[D_STEP]
            at += self._gap
            r[D_PHYSICAL_OFFSET] = base + at
            r[D_SIZE] = size
            self.write(r, given, out + at, now_ms)
            at += size
            written += 1
        return written

    cdef int64_t properties_size(self, int64_t* r, const uint8_t* heads) noexcept:
        cdef int64_t size = r[D_PROPERTIES + 1]
        if self._append_crc:
            if size and heads[r[D_PROPERTIES] + size - 1] != PROPERTY_END:
                size += 1
            size += CRC_TAIL_SIZE
        return size

    cdef int64_t size_of(self, int64_t* r, const uint8_t* heads) noexcept:
        return (self._fixed + (1 if r[D_TOPIC + 1] > TOPIC_V1_MAX else 0) + r[D_BORN_HOST + 1] - V4
                + r[D_TOPIC + 1] + r[D_BODY + 1] + self.properties_size(r, heads))

    cdef void write(self, int64_t* r, Input* given, uint8_t* start, int64_t now_ms) noexcept:
        cdef const uint8_t* heads = given.heads
        cdef uint8_t* p = start
        cdef int64_t topic_size = r[D_TOPIC + 1], body_size = r[D_BODY + 1], size = r[D_PROPERTIES + 1]
        cdef int64_t store_size = len(self._store_host), tail_size = self.properties_size(r, heads)
        cdef bint v2 = topic_size > TOPIC_V1_MAX
        cdef const uint8_t* body = given.bodies + r[D_BODY]
        cdef int32_t flag = <int32_t>r[D_SYS_FLAG] & ~(BORN_V6 | STORE_V6)
        flag |= BORN_V6 if r[D_BORN_HOST + 1] == V6 else 0
        flag |= STORE_V6 if store_size == V6 else 0
        put32(p, <int32_t>r[D_SIZE])
        put32(p + 8, <int32_t>crc31_of(body, body_size))
        put32(p + 12, <int32_t>r[D_QUEUE_ID])
        put32(p + 16, <int32_t>r[D_FLAG])
        put64(p + 20, r[D_QUEUE_OFFSET])
        put64(p + 28, r[D_PHYSICAL_OFFSET])
        put32(p + 36, flag)
        put64(p + 40, r[D_BORN_TIMESTAMP])
        p += BORN_HOST_AT
        memcpy(p, heads + r[D_BORN_HOST], r[D_BORN_HOST + 1])
        p += r[D_BORN_HOST + 1]
        put64(p, now_ms)
        memcpy(p + 8, <const uint8_t*>self._store_host, store_size)
        p += 8 + store_size
        put32(p, <int32_t>r[D_RECONSUME_TIMES])
        put64(p + 4, r[D_PREPARED_OFFSET])
        put32(p + 12, <int32_t>body_size)
        p += 16
        memcpy(p, body, body_size)
        p += body_size
        if v2:
            p[0] = <uint8_t>(topic_size >> 8)
            p += 1
        p[0] = <uint8_t>(topic_size & 0xFF)
        p += 1
        memcpy(p, heads + r[D_TOPIC], topic_size)
        p += topic_size
        put16(p, <int16_t>tail_size)
        p += 2
        memcpy(p, heads + r[D_PROPERTIES], size)
        p += size
        if self._append_crc:
            if size and (p - 1)[0] != PROPERTY_END:
                p[0] = PROPERTY_END
                p += 1
            # The tail covers the magic too, so for once it is written before the record is whole.
            put32(start + 4, MAGIC_V2 if v2 else MAGIC_V1)
            put_crc_tail(start, p - start, p)
        publish32(start + 4, MAGIC_V2 if v2 else MAGIC_V1)


def check_rows(drafts not None, int64_t first, int64_t queues):
    cdef Input given
    take(drafts, &given)
    try:
        check(&given, first, queues)
    finally:
        release(&given)


cdef int check(Input* given, int64_t first, int64_t queues) except -1:
    cdef int64_t count = given.count, row, limit, at, size
    cdef int[4] places = [D_TOPIC, D_PROPERTIES, D_BODY, D_BORN_HOST]
    cdef int[4] ints = [D_QUEUE_ID, D_FLAG, D_SYS_FLAG, D_RECONSUME_TIMES]
    cdef int64_t* r
    cdef int i
    if not 0 <= first <= count:
        raise ValueError(f"row {first} of {count}")
    for row in range(first, count):
        r = given.rows + row * D_WIDTH
        for i in range(4):
            limit = given.bodies_held.len if places[i] == D_BODY else given.heads_held.len
            at = r[places[i]]
            size = r[places[i] + 1]
            if at < 0 or size < 0 or size > limit or at > limit - size:
                raise ValueError(f"row {row}: bytes {at}+{size} of a buffer of {limit}")
        if r[D_BORN_HOST + 1] != V4 and r[D_BORN_HOST + 1] != V6:
            raise ValueError(f"row {row}: born host of {r[D_BORN_HOST + 1]} bytes")
        if r[D_QUEUE] >= queues:
            raise ValueError(f"row {row}: queue {r[D_QUEUE]} of {queues}")
        if not 1 <= r[D_TOGETHER] <= count - row:
            raise ValueError(f"row {row}: {r[D_TOGETHER]} rows together, {count - row} left")
        for i in range(4):
            if r[ints[i]] != <int32_t>r[ints[i]]:
                raise ValueError(f"row {row}: {r[ints[i]]} needs more than 32 bits")
    return 0
