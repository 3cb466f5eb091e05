# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _ends_py: same names, stores the same. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

import array

from flaremq.broker.transactions import _ends_py
from flaremq.model import layout, names, sysflag
from flaremq.model.columns import Draft, Drafts
from flaremq.protocol.bulk.columns import Kind, Request

# The constants live in layout, sysflag, columns and the other twin alone; these are their C copies.
cdef int WIDTH = _ends_py.WIDTH, FIELD = Request.FIELD, READ = _ends_py.READ, TEXT = Kind.TEXT
cdef int DIGITS_MAX = _ends_py.DIGITS_MAX, QUEUE_DIGITS_MAX = _ends_py.QUEUE_DIGITS_MAX
cdef int64_t MASK = sysflag.TRANSACTION_MASK, COMMIT = sysflag.TRANSACTION_COMMIT, ROLLBACK = sysflag.TRANSACTION_ROLLBACK
cdef int D_WIDTH = Draft.WIDTH, D_PHYSICAL = Draft.PHYSICAL_OFFSET, D_SIZE = Draft.SIZE, D_OFFSET = Draft.QUEUE_OFFSET
cdef bytes HALF_TOPIC = names.TRANS_HALF_TOPIC.encode()
cdef array.array EMPTY = array.array("q")
cdef tuple MORE = _ends_py.MORE

assert READ == 4 and (COMMIT, ROLLBACK) == (8, 12)
assert (Draft.TOGETHER, Draft.FLAG, Draft.PREPARED_OFFSET, Draft.WIDTH) == (11, 12, 16, 20)


cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int64_t get64(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil

cdef extern from "protocol/bulk/_scan.h":
    uint8_t* put_decimal(uint8_t* p, int64_t value) nogil


include "../../store/_glance.pxi"


cdef struct Asked:
    const uint8_t* group
    int64_t group_size, queue_offset, offset, decision


cdef class Ends:
    cdef readonly list frames, queue_offsets, keys, topics
    cdef array.array _rows, _ops  # Drafts, and which of them is the op of each end.
    cdef bytearray _heads, _bodies
    cdef object _offsets, _op
    cdef set _taken
    cdef dict _queues  # Topics and queues that were seen: their names, and numbers.
    cdef int64_t[20] _op_row

    def __init__(self, offsets not None, op not None):
        cdef bytes topic = op.topic, properties = op.properties, host = op.born_host
        cdef int64_t first = len(topic), second = first + len(properties)
        self.frames, self.queue_offsets, self.keys, self.topics = [], [], [], []
        self._rows, self._ops = array.clone(EMPTY, 0, False), array.clone(EMPTY, 0, False)
        self._heads, self._bodies = bytearray(topic + properties + host), bytearray()
        self._offsets, self._op, self._taken, self._queues = offsets, op, set(), {}
        self._op_row = [0, first, first, second - first, 0, 0, second, len(host), op.queue_id, -1, 1, 1, op.flag,
                        op.sys_flag, op.born_timestamp_ms, op.reconsume_times, op.prepared_transaction_offset, 0, 0, 0]

    def __len__(self):
        return len(self.frames)

    def take(self, data not None, array.array rows not None, window not None, is_alone not None, is_known not None):
        cdef Py_buffer held, file
        cdef int64_t r, base = 0
        cdef int64_t* row
        cdef bint has_file = False
        cdef Asked asked
        cdef list left = []
        if rows.ob_descr.itemsize != 8:
            raise ValueError(f"rows of {rows.typecode!r}: expected 'q'")
        PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
        try:
            for r in range(0, len(rows) // WIDTH):
                row = <int64_t*>rows.data.as_longlongs + r * WIDTH
                if not read_request(&asked, row, &held):
                    left.append(row[0])
                    continue
                if not has_file or not base <= asked.offset < base + file.len:
                    if has_file:
                        has_file = False
                        PyBuffer_Release(&file)
                    found = window(asked.offset)
                    if found is None:
                        left.append(row[0])
                        continue
                    base = found[1]
                    PyObject_GetBuffer(found[0], &file, PyBUF_SIMPLE)
                    has_file = True
                if not self.take_one(row[0], &asked, &file, base, is_alone, is_known):
                    left.append(row[0])
        finally:
            PyBuffer_Release(&held)
            if has_file:
                PyBuffer_Release(&file)
        return left

    cdef bint take_one(self, int64_t frame, const Asked* asked, const Py_buffer* file, int64_t base, is_alone,
                       is_known) except -1:
        cdef Seen seen
        cdef const uint8_t* value = NULL
        cdef int64_t size, at = asked.offset - base
        cdef str key, topic = ""
        if not 0 <= at < file.len or not look(&seen, <const uint8_t*>file.buf + at, file.len - at):
            return False
        if seen.queue_offset != asked.queue_offset or not is_half(&seen):
            return False
        size = value_of(&seen, b"PGROUP", 6, &value)
        if size == 0 or size != asked.group_size or memcmp(value, asked.group, size):
            return False
        queue_offset = asked.queue_offset
        if queue_offset in self._taken:
            return False
        size = value_of(&seen, b"UNIQ_KEY", 8, &value)
        key = (<const char*>value)[:size].decode("utf-8", "replace") if size else ""
        if not is_alone(queue_offset, key):
            return False
        if asked.decision == COMMIT:
            topic = self.commit(&seen, is_known)
            if topic is None:
                return False
        self.add_op(asked.queue_offset)
        self._taken.add(queue_offset)
        self.frames.append(frame)
        self.queue_offsets.append(queue_offset)
        self.keys.append(key)
        self.topics.append(topic)
        return True

    cdef str commit(self, const Seen* seen, is_known):
        cdef const uint8_t* topic = NULL
        cdef const uint8_t* queue = NULL
        cdef int64_t topic_size = value_of(seen, b"REAL_TOPIC", 10, &topic), queue_id
        cdef int64_t queue_size = value_of(seen, b"REAL_QID", 8, &queue)
        cdef bytes part
        cdef tuple known
        if not topic_size or not queue_size or not number(queue, queue_size, QUEUE_DIGITS_MAX, &queue_id):
            return None
        for part in MORE:
            if holds(seen.p + seen.properties_at, seen.properties_size, <const char*>part, len(part)):
                return None
        name = PyBytes_FromStringAndSize(<const char*>topic, topic_size)
        known = self._queues.get((name, queue_id))
        if known is None:
            text = name.decode("utf-8", "replace")
            if not is_known(text):
                return None
            known = self._queues[name, queue_id] = (text, self._offsets.number(name, queue_id))
        self.add_copy(seen, topic, topic_size, queue_id, known[1])
        return known[0]

    cdef int add_copy(self, const Seen* seen, const uint8_t* topic, int64_t topic_size, int64_t queue_id,
                      int64_t queue) except -1:
        cdef int64_t at = PyByteArray_GET_SIZE(self._heads), body_at = PyByteArray_GET_SIZE(self._bodies)
        cdef int64_t properties_at = at + topic_size, host_at = properties_at + seen.properties_size
        cdef char* out
        cdef int64_t* row
        PyByteArray_Resize(self._heads, host_at + seen.host_size)
        out = PyByteArray_AS_STRING(self._heads)
        memcpy(out + at, topic, topic_size)
        memcpy(out + properties_at, seen.p + seen.properties_at, seen.properties_size)
        memcpy(out + host_at, seen.p + G_HOST_AT, seen.host_size)
        PyByteArray_Resize(self._bodies, body_at + seen.body_size)
        memcpy(PyByteArray_AS_STRING(self._bodies) + body_at, seen.p + seen.body_at, seen.body_size)
        row = self.next_row()
        row[0], row[1], row[2], row[3] = at, topic_size, properties_at, seen.properties_size
        row[4], row[5], row[6], row[7] = body_at, seen.body_size, host_at, seen.host_size
        row[8], row[9], row[10], row[11] = queue_id, queue, 1, 2
        row[12], row[13] = seen.flag, seen.sys_flag & ~MASK | COMMIT
        row[14], row[15], row[16] = seen.born_ms, seen.times, seen.physical_offset
        return 0

    cdef int add_op(self, int64_t queue_offset) except -1:
        """All ops share one topic, properties and host; only their bodies differ."""
        cdef int64_t body_at = PyByteArray_GET_SIZE(self._bodies), count = len(self._ops)
        cdef uint8_t[24] text
        cdef int64_t size = put_decimal(text, queue_offset) - text
        cdef int64_t* row
        PyByteArray_Resize(self._bodies, body_at + size)
        memcpy(PyByteArray_AS_STRING(self._bodies) + body_at, text, size)
        if self._op_row[9] < 0:
            self._op_row[9] = self._offsets.number(self._op.topic, self._op.queue_id)
        row = self.next_row()
        memcpy(row, self._op_row, sizeof(self._op_row))
        row[4], row[5] = body_at, size
        array.resize_smart(self._ops, count + 1)
        self._ops.data.as_longlongs[count] = len(self._rows) // D_WIDTH - 1
        return 0

    cdef int64_t* next_row(self) except NULL:
        cdef int64_t first = len(self._rows)
        cdef int64_t* row
        array.resize_smart(self._rows, first + D_WIDTH)
        row = <int64_t*>self._rows.data.as_longlongs + first
        memset(row, 0, 8 * D_WIDTH)
        return row

    def drafts(self):
        return Drafts(self._rows, self._heads, self._bodies)

    def done(self, int64_t rows):
        cdef int64_t count = 0, i
        for i in range(len(self._ops)):
            count += self._ops.data.as_longlongs[i] < rows
        return count

    cdef const int64_t* op_row(self, int64_t number) except NULL:
        if not 0 <= number < len(self._ops):
            raise IndexError(number)
        return <const int64_t*>self._rows.data.as_longlongs + self._ops.data.as_longlongs[number] * D_WIDTH

    def places(self, int64_t count):
        cdef int64_t i
        return [self.op_row(i)[D_OFFSET] for i in range(min(count, len(self._ops)))]

    def end(self, int64_t count):
        cdef const int64_t* row = self.op_row(count - 1)
        return row[D_PHYSICAL] + row[D_SIZE]

    def sizes(self, int64_t count):
        cdef int64_t i
        cdef dict found = {}
        for i in range(min(count, len(self._ops))):
            topic = self.topics[i]
            if topic:
                messages, total = found.get(topic, (0, 0))
                found[topic] = messages + 1, total + self.op_row(i)[D_SIZE - D_WIDTH]
        return found


cdef inline bint number(const uint8_t* p, int64_t size, int64_t digits_max, int64_t* value) noexcept:
    cdef int64_t i
    if not 0 < size <= digits_max:
        return False
    value[0] = 0
    for i in range(size):
        if not 48 <= p[i] <= 57:
            return False
        value[0] = value[0] * 10 + p[i] - 48
    return True


cdef inline bint is_half(const Seen* seen) noexcept:
    return seen.topic_size == len(HALF_TOPIC) and memcmp(seen.p + seen.topic_at, <const char*>HALF_TOPIC, seen.topic_size) == 0


cdef bint read_request(Asked* asked, const int64_t* row, const Py_buffer* data) except -1:
    cdef const uint8_t* p = <const uint8_t*>data.buf
    cdef const int64_t* field
    cdef int i
    for i in range(READ):
        field = row + 1 + i * FIELD
        if field[0] < 0 or field[2] != TEXT:
            return False
        if not 0 <= field[1] <= data.len - field[0]:
            raise ValueError(f"frame {row[0]} speaks of what is not there")
    asked.group = p + row[1]
    asked.group_size = row[2]
    field = row + 1 + FIELD
    if not number(p + field[0], field[1], DIGITS_MAX, &asked.queue_offset):
        return False
    field += FIELD
    if not number(p + field[0], field[1], DIGITS_MAX, &asked.offset):
        return False
    field += FIELD
    if field[1] == 1 and p[field[0]] == 56:  # "8"
        asked.decision = COMMIT
    elif field[1] == 2 and p[field[0]] == 49 and p[field[0] + 1] == 50:  # "12"
        asked.decision = ROLLBACK
    else:
        return False
    return True
