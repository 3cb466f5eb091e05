# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _waiting_py: same names, same rows. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy

import array

from flaremq.broker.delay._waiting_py import Tally
from flaremq.model import layout, sysflag
from flaremq.model.columns import Draft
from flaremq.store.timer.units import Entrant, Waiting

cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int64_t get64(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil
    void crc_fill_table() nogil
    uint32_t crc31_of(const uint8_t* p, int64_t size) nogil

include "../../store/_glance.pxi"

# The constants live in layout and sysflag alone; these are their C copies.
cdef int64_t ENTRY = layout.ENTRY_SIZE, INNER_BATCH = sysflag.INNER_BATCH
cdef int64_t PROPERTIES_MAX = layout.PROPERTIES_SIZE_MAX - layout.CRC_TAIL_SIZE - 1
cdef int64_t DIGITS_MAX = 18, QUEUE_DIGITS_MAX = 9
cdef enum:
    D_WIDTH = 20, D_SIZE = 18, W_WIDTH = 3, E_WIDTH = 5, T_WIDTH = 3, TIMES_MAX = 100, CACHED = 16
cdef array.array EMPTY = array.array("q")
crc_fill_table()


cdef struct Text:
    const uint8_t* p  # NULL: there is none.
    int64_t size


cdef struct Record:
    Seen seen
    Text topic, properties
    Text real_topic, queue_id, moment, key, cancels  # Values of properties.


cdef bint read(Record* record, const uint8_t* p, int64_t size) noexcept:
    """Find the parts of a record; false if its lengths do not add up to its size."""
    cdef Seen* seen = &record.seen
    if not look(seen, p, size) or seen.size != size:
        return False
    record.topic = Text(p + seen.topic_at, seen.topic_size)
    record.properties = Text(p + seen.properties_at, seen.properties_size)
    return True


cdef inline void take(Text* value, const uint8_t* p, const uint8_t* stop, const char* name, int64_t size) noexcept:
    """The value of a pair, if it has this name; an empty value does not count."""
    if stop - p > size + 1 and p[size] == 1 and memcmp(p, name, size) == 0:
        value.p = p + size + 1
        value.size = stop - value.p


cdef void find_values(Record* seen) noexcept:
    """The last of equal names counts."""
    cdef const uint8_t* p = seen.properties.p
    cdef const uint8_t* end = p + seen.properties.size
    cdef const uint8_t* stop
    seen.real_topic = seen.queue_id = seen.moment = seen.key = seen.cancels = Text(NULL, 0)
    while p < end:
        stop = <const uint8_t*>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if p[0] == c'R':
            take(&seen.real_topic, p, stop, b"REAL_TOPIC", 10)
            take(&seen.queue_id, p, stop, b"REAL_QID", 8)
        elif p[0] == c'T':
            take(&seen.moment, p, stop, b"TIMER_OUT_MS", 12)
            take(&seen.cancels, p, stop, b"TIMER_DEL_UNIQKEY", 17)
        elif p[0] == c'U':
            take(&seen.key, p, stop, b"UNIQ_KEY", 8)
        p = stop + 1


cdef inline bint equal(const Text* text, bytes other) noexcept:
    return text.size == len(other) and memcmp(text.p, <const char*>other, text.size) == 0


cdef int64_t number_of(const Text* text, int64_t digits_max) noexcept:
    """-1 if it is none."""
    cdef int64_t i, value = 0
    if text.p == NULL or text.size > digits_max:
        return -1
    for i in range(text.size):
        if not c'0' <= text.p[i] <= c'9':
            return -1
        value = 10 * value + text.p[i] - c'0'
    return value


cdef int64_t slot_of(const Record* seen, bytes topic, int64_t precision_ms) noexcept:
    cdef int64_t moment_ms = number_of(&seen.moment, DIGITS_MAX)
    if moment_ms < 0 or not equal(&seen.topic, topic):
        return -1
    return moment_ms // precision_ms * precision_ms


cdef inline bint is_within(int64_t at, int64_t size, int64_t end) noexcept:
    return 0 <= at <= end and 0 <= size <= end - at


# Entering.

def to_enter(view not None, int64_t base, entries not None, terms not None):
    cdef Py_buffer[2] held
    cdef int taken = 0
    cdef list topics = [], slots = []
    cdef array.array rows
    try:
        for source in (view, entries):
            PyObject_GetBuffer(source, &held[taken], PyBUF_SIMPLE)
            taken += 1
        rows = array.clone(EMPTY, held[1].len // ENTRY * E_WIDTH, False)
        array.resize(rows, enter_all(held, base, terms, rows, slots, topics) * E_WIDTH)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    return rows, slots, topics


cdef int64_t enter_all(Py_buffer* held, int64_t base, terms, array.array rows, list slots, list topics) except -1:
    cdef bytes wheel = terms.topic, topic
    cdef int64_t precision_ms = terms.precision_ms, earliest_ms = terms.earliest_ms, latest_ms = terms.latest_ms
    cdef int64_t i, at, size, slot_ms, known_ms = -1, slot = -1, number = -1
    cdef const uint8_t* entry = <const uint8_t*>held[1].buf
    cdef int64_t* row = <int64_t*>rows.data.as_longlongs
    cdef Record seen
    cdef Text known = Text(NULL, 0)
    cdef dict slot_numbers = {}, topic_numbers = {}
    if precision_ms < 1:
        raise ValueError(f"a precision of {precision_ms} ms")
    for i in range(held[1].len // ENTRY):
        at = get64(entry) - base
        size = get32(entry + 8)
        if not is_within(at, size, held[0].len) or not read(&seen, <const uint8_t*>held[0].buf + at, size):
            return i
        find_values(&seen)
        slot_ms = slot_of(&seen, wheel, precision_ms)
        if slot_ms < 0 or not earliest_ms <= slot_ms <= latest_ms:
            return i
        if slot_ms != known_ms:
            known_ms = slot_ms
            slot = slot_numbers.setdefault(slot_ms, len(slots))
            if slot == len(slots):
                slots.append(slot_ms)
        if number < 0 or known.size != seen.real_topic.size or memcmp(known.p, seen.real_topic.p, known.size):
            known = seen.real_topic
            topic = b"" if known.p == NULL else PyBytes_FromStringAndSize(<const char*>known.p, known.size)
            number = topic_numbers.setdefault(topic, len(topics))
            if number == len(topics):
                topics.append(topic)
        row[0] = at + base
        row[1] = size
        row[2] = slot
        row[3] = number
        row[4] = seen.cancels.p != NULL
        row += E_WIDTH
        entry += ENTRY
    return held[1].len // ENTRY


# Delivering.

cdef class Making:
    """The rows under way."""

    cdef array.array rows, fates
    cdef bytearray heads
    cdef int64_t made, told, used
    cdef object offsets, targets
    cdef bytes topic  # The last one: most messages of a run have few topics.
    cdef int64_t target
    cdef int64_t[CACHED] queue_ids, queues  # And the numbers of its queues.

    def __init__(self, int64_t count, offsets, targets):
        self.rows = array.clone(EMPTY, count * D_WIDTH, True)
        self.fates = array.clone(EMPTY, count, True)
        self.heads = bytearray(512 * count)
        self.offsets = offsets
        self.targets = targets

    cdef int64_t target_of(self, const Text* topic) except -2:
        cdef int i
        if topic.p == NULL:
            return -1
        if self.topic is None or not equal(topic, self.topic):
            self.topic = PyBytes_FromStringAndSize(<const char*>topic.p, topic.size)
            self.target = self.targets.number(self.topic)
            for i in range(CACHED):
                self.queue_ids[i] = -1
        return self.target

    cdef int64_t queue_of(self, int64_t queue_id) except -1:
        cdef int64_t place = queue_id % CACHED
        if self.queue_ids[place] != queue_id:
            self.queues[place] = self.offsets.number(self.topic, queue_id)
            self.queue_ids[place] = queue_id
        return self.queues[place]

    cdef int add(self, const Record* record, int64_t at, int64_t queue_id, const char* times, int64_t times_size) except -1:
        cdef const Seen* seen = &record.seen
        cdef int64_t* row = <int64_t*>self.rows.data.as_longlongs + self.made * D_WIDTH
        cdef int64_t topic_size = record.real_topic.size, size = record.properties.size + times_size
        cdef int64_t needed = self.used + topic_size + size + seen.host_size
        cdef char* out
        if needed > PyByteArray_GET_SIZE(self.heads):
            PyByteArray_Resize(self.heads, 2 * needed)
        out = PyByteArray_AS_STRING(self.heads) + self.used
        memcpy(out, record.real_topic.p, topic_size)
        memcpy(out + topic_size, record.properties.p, record.properties.size)
        memcpy(out + topic_size + record.properties.size, times, times_size)
        memcpy(out + topic_size + size, seen.p + G_HOST_AT, seen.host_size)
        row[0] = self.used
        row[1] = topic_size
        row[2] = self.used + topic_size
        row[3] = size
        row[4] = at + seen.body_at
        row[5] = seen.body_size
        row[6] = self.used + topic_size + size
        row[7] = seen.host_size
        row[8] = queue_id
        row[9] = self.queue_of(queue_id)
        row[10] = 1
        row[11] = 1
        row[12] = seen.flag
        row[13] = seen.sys_flag
        row[14] = seen.born_ms
        row[15] = seen.times
        row[16] = seen.prepared
        self.used = needed
        self.made += 1
        self.tell(self.target)
        return 0

    cdef void tell(self, int64_t fate) noexcept:
        self.fates.data.as_longlongs[self.told] = fate
        self.told += 1

    cdef tuple done(self):
        array.resize(self.rows, self.made * D_WIDTH)
        array.resize(self.fates, self.told)
        PyByteArray_Resize(self.heads, self.used)
        return self.rows, self.heads, self.fates


def to_deliver(view not None, int64_t base, array.array waiting not None, offsets not None, targets not None,
               due not None):
    cdef Py_buffer held
    cdef Making making = Making(len(waiting) // W_WIDTH, offsets, targets)
    PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
    try:
        deliver_all(making, &held, base, waiting, due)
    finally:
        PyBuffer_Release(&held)
    return making.done()


cdef int deliver_all(Making making, Py_buffer* held, int64_t base, array.array waiting, due) except -1:
    cdef bytes place = due.topic
    cdef int64_t body_max = due.body_max, precision_ms = due.precision_ms, slot_ms = due.slot_ms, now_ms = due.now_ms
    cdef frozenset cancelled = due.cancelled
    cdef const int64_t* w = <const int64_t*>waiting.data.as_longlongs
    cdef int64_t i, at, queue_id, target, times_size = 0
    cdef char[TIMES_MAX] times
    cdef Record record
    for i in range(len(waiting) // W_WIDTH):
        at = w[0] - base
        if not is_within(at, w[1], held.len) or not read(&record, <const uint8_t*>held.buf + at, w[1]):
            return 0
        if <int32_t>crc31_of(record.seen.p + record.seen.body_at, record.seen.body_size) != get32(record.seen.p + 8):
            return 0
        if record.seen.sys_flag & INNER_BATCH or record.seen.body_size > body_max or not equal(&record.topic, place):
            return 0
        if is_odd(&record.properties, precision_ms != 0):
            return 0
        find_values(&record)
        if precision_ms and slot_of(&record, place, precision_ms) != slot_ms:
            return 0
        target = making.target_of(&record.real_topic)
        queue_id = number_of(&record.queue_id, QUEUE_DIGITS_MAX)
        if target < 0 or queue_id < 0:
            return 0
        if cancelled:
            if not is_ascii(&record.real_topic) or not is_ascii(&record.key):
                return 0
            if is_cancelled(cancelled, making.topic, &record.key):
                making.tell(-1 - target)
                w += W_WIDTH
                continue
        if precision_ms:
            times_size = snprintf(times, TIMES_MAX, b"\x02TIMER_ENQUEUE_MS\x01%lld\x02TIMER_DEQUEUE_MS\x01%lld\x02",
                                  <long long>w[2], <long long>now_ms)
        if record.properties.p[record.properties.size - 1] == 2 and precision_ms:
            if record.properties.size + times_size - 1 > PROPERTIES_MAX:
                return 0
            making.add(&record, at, queue_id, times + 1, times_size - 1)
        else:
            if record.properties.size + times_size > PROPERTIES_MAX:
                return 0
            making.add(&record, at, queue_id, times, times_size)
        w += W_WIDTH
    return 0


def tally(array.array rows not None, array.array fates not None, int64_t stored, int64_t topic_count):
    cdef array.array tallies = array.clone(EMPTY, topic_count * T_WIDTH, True)
    cdef const int64_t* size = <const int64_t*>rows.data.as_longlongs + D_SIZE
    cdef int64_t* t
    cdef int64_t i, fate, topic, row = 0, count = len(rows) // D_WIDTH
    for i in range(len(fates)):
        fate = fates.data.as_longlongs[i]
        topic = fate if fate >= 0 else -1 - fate
        if topic >= topic_count or (fate >= 0 and row >= count and row != stored):
            raise IndexError("array index out of range")
        t = <int64_t*>tallies.data.as_longlongs + topic * T_WIDTH
        if fate >= 0:
            if row == stored:
                break
            t[1] += 1
            t[2] += size[row * D_WIDTH]
            row += 1
        t[0] += 1
    return tallies


cdef inline bint is_odd(const Text* known, bint of_wheel) noexcept:
    return (holds(known.p, known.size, b"INNER_", 6) or holds(known.p, known.size, b"__CRC32#", 8)
            or (of_wheel and holds(known.p, known.size, b"QUEUE_MS\x01", 9)))


cdef bint is_ascii(const Text* text) noexcept:
    cdef int64_t i
    for i in range(text.size):
        if text.p[i] >= 0x80:
            return False
    return True


cdef bint is_cancelled(frozenset cancelled, bytes topic, const Text* text) except -1:
    cdef bytes key = b"" if text.p == NULL else PyBytes_FromStringAndSize(<const char*>text.p, text.size)
    return key in cancelled or topic + b"+" + key in cancelled


assert (Waiting.OFFSET, Waiting.SIZE, Waiting.SINCE_MS, Waiting.WIDTH) == (0, 1, 2, W_WIDTH)
assert (Entrant.OFFSET, Entrant.SIZE, Entrant.SLOT, Entrant.TOPIC, Entrant.CANCELS, Entrant.WIDTH) == (0, 1, 2, 3, 4, E_WIDTH)
assert (Draft.QUEUE_ID, Draft.TOGETHER, Draft.FLAG, Draft.PREPARED_OFFSET) == (8, 11, 12, 16)
assert (Draft.SIZE, Draft.WIDTH) == (D_SIZE, D_WIDTH)
assert (Tally.DONE, Tally.STORED, Tally.SIZE, Tally.WIDTH) == (0, 1, 2, T_WIDTH)
