# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _redirect_py: same names, same bytes. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from flaremq.model import layout
from flaremq.model.columns import Draft
from flaremq.protocol.bulk.columns import Send

# The constants live in layout and columns alone; these are their C copies.
cdef int64_t PROPERTIES_MAX = layout.PROPERTIES_SIZE_MAX
cdef int D_WIDTH = Draft.WIDTH, D_TOPIC = Draft.TOPIC_AT, D_PROPERTIES = Draft.PROPERTIES_AT, D_QUEUE_ID = Draft.QUEUE_ID
cdef int D_QUEUE = Draft.QUEUE, S_WIDTH = Send.WIDTH, S_KEY = Send.UNIQUE_KEY_AT, S_TARGET = Send.TARGET
cdef int S_HANDLE = Send.HANDLE_AT
cdef const char* LEAD = b"__transactionId__\x01"
cdef int64_t LEAD_SIZE = 18
cdef const char* DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def redirect(bytearray heads not None, drafts not None, sends not None, rows not None, place not None,
             int64_t tail_size):
    cdef Py_buffer[2] held
    cdef int taken = 0
    cdef list left = []
    try:
        for source in (drafts, sends):
            PyObject_GetBuffer(source, &held[taken], PyBUF_WRITABLE)
            taken += 1
        move_all(heads, held, rows, place, tail_size, left)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    return left


cdef int move_all(bytearray heads, Py_buffer* held, rows, place, int64_t tail_size, list left) except -1:
    cdef int64_t* d
    cdef int64_t* s
    cdef int64_t row, size, used = PyByteArray_GET_SIZE(heads), room = used, known = used
    cdef int64_t count = min(held[0].len // (8 * D_WIDTH), held[1].len // (8 * S_WIDTH))
    cdef bytes added = place.added, handle = place.handle
    cdef int64_t target = place.target, topic_at = place.topic_at, topic_size = place.topic_size
    cdef int64_t queue_id = place.queue_id, queue = place.queue, added_size = len(added), handle_size = len(handle)
    cdef bint names_transaction = place.names_transaction
    cdef uint8_t* base
    for row in rows:
        if not 0 <= row < count:
            raise ValueError(f"row {row} speaks of what is not there")
        d = <int64_t*>held[0].buf + row * D_WIDTH
        s = <int64_t*>held[1].buf + row * S_WIDTH
        if (not is_within(d + D_PROPERTIES, known) or not is_within(s + S_KEY, known)
                or d[D_PROPERTIES + 1] < tail_size):
            raise ValueError(f"row {row} speaks of what is not there")
        room += d[D_PROPERTIES + 1] + added_size + LEAD_SIZE + 1 + s[S_KEY + 1] + (handle_size + s[S_KEY + 1] + 3) * 2
    PyByteArray_Resize(heads, room)
    base = <uint8_t*>PyByteArray_AS_STRING(heads)
    for row in rows:
        d = <int64_t*>held[0].buf + row * D_WIDTH
        s = <int64_t*>held[1].buf + row * S_WIDTH
        size = d[D_PROPERTIES + 1] + added_size
        if names_transaction:
            size += LEAD_SIZE + s[S_KEY + 1] + 1
        if size > PROPERTIES_MAX:
            left.append(row)
            continue
        write(base, used, d, s, <const uint8_t*><const char*>added, added_size, names_transaction, tail_size)
        d[D_TOPIC] = topic_at
        d[D_TOPIC + 1] = topic_size
        d[D_PROPERTIES] = used
        d[D_PROPERTIES + 1] = size
        d[D_QUEUE_ID] = queue_id
        d[D_QUEUE] = queue
        s[S_TARGET] = target
        used += size
        if handle_size:
            s[S_HANDLE] = used
            used = encode(base, used, <const uint8_t*><const char*>handle, handle_size, base + s[S_KEY], s[S_KEY + 1])
            s[S_HANDLE + 1] = used - s[S_HANDLE]
    PyByteArray_Resize(heads, used)
    return 0


cdef inline bint is_within(const int64_t* place, int64_t end) noexcept:
    return 0 <= place[0] <= end and 0 <= place[1] <= end - place[0]


cdef void write(uint8_t* base, int64_t at, const int64_t* d, const int64_t* s, const uint8_t* added,
                int64_t added_size, bint names_transaction, int64_t tail_size) noexcept:
    cdef const uint8_t* own = base + d[D_PROPERTIES]
    cdef int64_t own_size = d[D_PROPERTIES + 1] - tail_size
    cdef uint8_t* out = base + at
    memcpy(out, own, own_size)
    out += own_size
    memcpy(out, added, added_size)
    out += added_size
    if names_transaction:
        memcpy(out, LEAD, LEAD_SIZE)
        memcpy(out + LEAD_SIZE, base + s[S_KEY], s[S_KEY + 1])
        out += LEAD_SIZE + s[S_KEY + 1]
        out[0] = 2
        out += 1
    memcpy(out, own + own_size, tail_size)


cdef int64_t encode(uint8_t* base, int64_t at, const uint8_t* first, int64_t first_size, const uint8_t* second,
                    int64_t second_size) noexcept:
    """Both texts as one, in base 64 for URLs. Returns the place behind it."""
    cdef uint8_t* out = base + at
    cdef int64_t i = 0, size = first_size + second_size
    cdef uint8_t[3] three
    cdef int n
    while i < size:
        for n in range(3):
            three[n] = (0 if i + n >= size else first[i + n] if i + n < first_size else second[i + n - first_size])
        out[0] = DIGITS[three[0] >> 2]
        out[1] = DIGITS[(three[0] & 3) << 4 | three[1] >> 4]
        out[2] = DIGITS[(three[1] & 15) << 2 | three[2] >> 6] if i + 1 < size else c'='
        out[3] = DIGITS[three[2] & 63] if i + 2 < size else c'='
        out += 4
        i += 3
    return out - base
