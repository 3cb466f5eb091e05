# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _windows_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from flaremq.broker.send import _windows_py
from flaremq.model import sysflag
from flaremq.model.columns import Draft, Fact, Remembered, WindowHead
from flaremq.protocol.bulk.columns import Send

# The constants live in columns alone; these are their C copies.
cdef int P_WIDTH = WindowHead.WIDTH, P_NEWEST = WindowHead.NEWEST, P_USED = WindowHead.USED_MS, P_PART = WindowHead.PART
cdef int P_IN_PART = WindowHead.IN_PART, S_WIDTH = Remembered.WIDTH, S_OFFSET = Remembered.PHYSICAL_OFFSET
cdef int S_QUEUE_ID = Remembered.QUEUE_ID, S_QUEUE_OFFSET = Remembered.QUEUE_OFFSET, S_STORE_MS = Remembered.STORE_MS
cdef int D_WIDTH = Draft.WIDTH, D_OFFSET = Draft.PHYSICAL_OFFSET, D_QUEUE_ID = Draft.QUEUE_ID
cdef int D_QUEUE_OFFSET = Draft.QUEUE_OFFSET, F_WIDTH = Fact.WIDTH, F_STORED = Fact.STORE_TIMESTAMP
cdef int F_OFFSET = Fact.OFFSET, F_QUEUE_ID = Fact.QUEUE_ID, F_QUEUE_OFFSET = Fact.QUEUE_OFFSET, F_FLAG = Fact.SYS_FLAG
cdef int F_TOPIC = Fact.TOPIC_AT, F_PROPERTIES = Fact.PROPERTIES_AT, F_BODY = Fact.BODY_AT
cdef int N_WIDTH = Send.WIDTH, N_PRODUCER = Send.PRODUCER_AT  # Then its size, and the sequence.
cdef int64_t TRANSACTION_MASK = sysflag.TRANSACTION_MASK, COMMIT = sysflag.TRANSACTION_COMMIT
cdef bytes SCHEDULE = _windows_py.WAITING[0], WHEEL = _windows_py.WAITING[1], HALF = _windows_py.WAITING[2]


cdef extern from "model/_sequence.h":
    int64_t sequence_of(const uint8_t* p, int64_t size, int64_t* id_size) nogil
    const uint8_t* property_of(const uint8_t* p, int64_t size, const char* name, int64_t name_size,
                               int64_t* value_size) nogil


cdef struct Current:
    # The window in use, and the id that it belongs to.
    const uint8_t* id
    int64_t size
    int64_t* window
    int64_t mask


cdef inline int64_t* place(Current* c, int64_t sequence) noexcept:
    return c.window + P_WIDTH + (sequence & c.mask) * S_WIDTH


cdef inline bint is_same(Current* c, const uint8_t* id, int64_t size) noexcept:
    return c.window != NULL and c.size == size and memcmp(c.id, id, size) == 0


cdef void use(Current* c, array.array window, const uint8_t* id, int64_t size) noexcept:
    c.id = id
    c.size = size
    c.window = <int64_t*>window.data.as_voidptr
    c.mask = (len(window) - P_WIDTH) // S_WIDTH - 1


class Windows(_windows_py.Windows):
    __doc__ = _windows_py.Windows.__doc__

    def sift(self, heads not None, array.array sends not None, int64_t first):
        cdef Py_buffer held
        cdef Current c
        cdef int64_t width = N_WIDTH, row, part, count = len(sends) // N_WIDTH
        cdef const int64_t* r = <const int64_t*>sends.data.as_voidptr + N_PRODUCER
        cdef int64_t sequence
        cdef const uint8_t* id
        memset(&c, 0, sizeof(c))
        self.part += 1
        part = self.part
        for row in range(first, count):  # Nearly always, no row has a sequence.
            if r[row * width + 2] >= 0:
                break
        else:
            return count
        PyObject_GetBuffer(heads, &held, PyBUF_SIMPLE)
        try:
            for row in range(row, count):
                sequence = r[row * width + 2]
                if sequence < 0:
                    continue
                check_place(r[row * width], r[row * width + 1], held.len)
                id = <const uint8_t*>held.buf + r[row * width]
                if not is_same(&c, id, r[row * width + 1]):
                    window = self.window(PyBytes_FromStringAndSize(<const char*>id, r[row * width + 1]))
                    if window is None:
                        return row
                    use(&c, window, id, r[row * width + 1])
                    if c.window[P_PART] != part:
                        c.window[P_PART] = part
                        c.window[P_IN_PART] = -1
                if sequence <= c.window[P_IN_PART] or place(&c, sequence)[0] >= sequence:
                    return row
                c.window[P_IN_PART] = sequence
            return count
        finally:
            PyBuffer_Release(&held)

    def note(self, heads not None, array.array sends not None, array.array drafts not None, int64_t now_ms):
        cdef Py_buffer held
        cdef Current c
        cdef int64_t width = N_WIDTH, row, count = len(sends) // N_WIDTH
        cdef int64_t count_max = self.count_max, young_ms = now_ms - self.span_ms
        cdef const int64_t* r = <const int64_t*>sends.data.as_voidptr + N_PRODUCER
        cdef const uint8_t* id
        cdef const int64_t* d = <const int64_t*>drafts.data.as_voidptr
        memset(&c, 0, sizeof(c))
        for row in range(count):
            if r[row * width + 2] >= 0:
                break
        else:
            return
        if len(drafts) < count * D_WIDTH:
            raise ValueError(f"{len(drafts)} numbers of drafts for {count} rows")
        PyObject_GetBuffer(heads, &held, PyBUF_SIMPLE)
        try:
            for row in range(row, count):
                if r[row * width + 2] < 0:
                    continue
                check_place(r[row * width], r[row * width + 1], held.len)
                id = <const uint8_t*>held.buf + r[row * width]
                if not is_same(&c, id, r[row * width + 1]):
                    find(self, &c, id, r[row * width + 1])
                put(self, &c, r[row * width + 2], d[row * D_WIDTH + D_OFFSET], d[row * D_WIDTH + D_QUEUE_ID],
                    d[row * D_WIDTH + D_QUEUE_OFFSET], now_ms, young_ms, count_max)
        finally:
            PyBuffer_Release(&held)

    def recall(self, view not None, array.array facts not None, int64_t count, int64_t since_ms):
        cdef Py_buffer held
        cdef Current c
        cdef int64_t row, sequence, size, count_max = self.count_max, span_ms = self.span_ms
        cdef const int64_t* f
        cdef const uint8_t* id
        memset(&c, 0, sizeof(c))
        if not 0 <= count * F_WIDTH <= len(facts):
            raise ValueError(f"{count} rows of {len(facts)} numbers")
        PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
        try:
            for row in range(count):
                f = <const int64_t*>facts.data.as_voidptr + row * F_WIDTH
                if f[F_STORED] < since_ms:
                    continue
                check_place(f[F_PROPERTIES], f[F_PROPERTIES + 1], held.len)
                check_place(f[F_TOPIC], f[F_TOPIC + 1], held.len)
                check_place(f[F_BODY] - 16, 16, held.len)
                sequence = first_hand(<const uint8_t*>held.buf, f, &id, &size)
                if sequence < 0:
                    continue
                if not is_same(&c, id, size):
                    find(self, &c, id, size)
                if place(&c, sequence)[0] < sequence:
                    put(self, &c, sequence, f[F_OFFSET], f[F_QUEUE_ID], f[F_QUEUE_OFFSET], f[F_STORED],
                        f[F_STORED] - span_ms, count_max)
        finally:
            PyBuffer_Release(&held)


cdef int check_place(int64_t at, int64_t size, int64_t end) except -1:
    if at < 0 or size < 0 or size > end or at > end - size:
        raise ValueError(f"{size} bytes at {at} of {end}")
    return 0


cdef int find(windows, Current* c, const uint8_t* id, int64_t size) except -1:
    """Use the window of this producer, and make it if need be."""
    cdef bytes producer = PyBytes_FromStringAndSize(<const char*>id, size)
    window = windows.by_id.get(producer)
    if window is None:
        window = windows.by_id[producer] = _windows_py.empty(min(_windows_py.CAPACITY, windows.count_max))
    use(c, window, id, size)
    return 0


cdef int put(windows, Current* c, int64_t sequence, int64_t offset, int64_t queue_id, int64_t queue_offset,
             int64_t store_ms, int64_t young_ms, int64_t count_max) except -1:
    cdef int64_t* row = place(c, sequence)
    cdef bytes producer
    while row[0] != -1 and row[0] != sequence and row[S_STORE_MS] > young_ms and c.mask + 1 < count_max:
        producer = PyBytes_FromStringAndSize(<const char*>c.id, c.size)
        window = windows.by_id[producer] = doubled(windows.by_id[producer])
        use(c, window, c.id, c.size)
        row = place(c, sequence)
    row[0] = sequence
    row[S_OFFSET] = offset
    row[S_QUEUE_ID] = queue_id
    row[S_QUEUE_OFFSET] = queue_offset
    row[S_STORE_MS] = store_ms
    c.window[P_NEWEST] = max(c.window[P_NEWEST], sequence)
    c.window[P_USED] = max(c.window[P_USED], store_ms)
    return 0


cdef array.array doubled(array.array window):
    """The same in a window of twice the size."""
    cdef int64_t rows = (len(window) - P_WIDTH) // S_WIDTH, row
    cdef array.array made = array.clone(window, P_WIDTH + 2 * rows * S_WIDTH, zero=True)
    cdef const int64_t* old = <const int64_t*>window.data.as_voidptr
    cdef int64_t* new = <int64_t*>made.data.as_voidptr
    memcpy(new, old, 8 * P_WIDTH)
    for row in range(2 * rows):
        new[P_WIDTH + row * S_WIDTH] = -1
    for row in range(rows):
        if old[P_WIDTH + row * S_WIDTH] >= 0:
            memcpy(new + P_WIDTH + (old[P_WIDTH + row * S_WIDTH] & (2 * rows - 1)) * S_WIDTH,
                   old + P_WIDTH + row * S_WIDTH, 8 * S_WIDTH)
    return made


cdef int64_t first_hand(const uint8_t* view, const int64_t* f, const uint8_t** id, int64_t* id_size) noexcept:
    """The sequence of a record that a producer sent, and its id; -1 for others."""
    cdef const uint8_t* p = view + f[F_PROPERTIES]
    cdef const uint8_t* topic = view + f[F_TOPIC]
    cdef const uint8_t* times = view + f[F_BODY] - 16
    cdef int64_t size = f[F_PROPERTIES + 1], value_size, sequence
    cdef const uint8_t* value = property_of(p, size, b"PRODUCER_SEQ", 12, &value_size)
    if value == NULL or (f[F_FLAG] & TRANSACTION_MASK) == COMMIT:
        return -1
    sequence = sequence_of(value, value_size, id_size)
    if sequence < 0 or (f[F_TOPIC + 1] and topic[0] == c'%') or times[0] or times[1] or times[2] or times[3]:
        return -1
    id[0] = value
    if is_text(topic, f[F_TOPIC + 1], SCHEDULE) or is_text(topic, f[F_TOPIC + 1], WHEEL) or is_text(
            topic, f[F_TOPIC + 1], HALF):
        if property_of(p, size, b"TIMER_ROLL_TIMES", 16, &value_size) != NULL:
            return -1
        return -1 if property_of(p, size, b"TRANSACTION_CHECK_TIMES", 23, &value_size) != NULL else sequence
    return -1 if property_of(p, size, b"REAL_TOPIC", 10, &value_size) != NULL else sequence


cdef bint is_text(const uint8_t* p, int64_t size, bytes text) noexcept:
    return size == len(text) and memcmp(p, <const char*>text, size) == 0
