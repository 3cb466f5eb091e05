# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _columns_py: same names, same bytes. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from flaremq.arrow.columnspec import Number, Pairs, TextColumn
from flaremq.model import layout, sysflag
from flaremq.model.columns import Fact
from flaremq.model.host import Host

cdef int WIDTH = Fact.WIDTH, F_SIZE = Fact.SIZE, F_QUEUE_ID = Fact.QUEUE_ID, F_QUEUE_OFFSET = Fact.QUEUE_OFFSET
cdef int F_SYS_FLAG = Fact.SYS_FLAG, F_STORE_TIMESTAMP = Fact.STORE_TIMESTAMP, F_TOPIC = Fact.TOPIC_AT
cdef int F_PROPERTIES = Fact.PROPERTIES_AT, F_UNIQUE_KEY = Fact.UNIQUE_KEY_AT
cdef int F_TAGS = Fact.TAGS_AT
cdef int QUEUE_ID = Number.QUEUE_ID, QUEUE_OFFSET = Number.QUEUE_OFFSET
cdef int PHYSICAL_OFFSET = Number.PHYSICAL_OFFSET, BORN_TIME = Number.BORN_TIME
cdef int STORE_TIME = Number.STORE_TIME, SYS_FLAG = Number.SYS_FLAG
cdef int RECONSUME_TIMES = Number.RECONSUME_TIMES
cdef int64_t PHYSICAL_OFFSET_AT = layout.PHYSICAL_OFFSET_AT, BORN_TIMESTAMP_AT = layout.BORN_TIMESTAMP_AT
cdef int64_t BORN_HOST_AT = layout.BORN_HOST_AT, V4 = layout.HOST_SIZE_V4, V6 = layout.HOST_SIZE_V6
cdef int64_t BORN_V6 = sysflag.BORN_HOST_V6, STORE_V6 = sysflag.STORE_HOST_V6
cdef int64_t COMPRESSED = sysflag.COMPRESSED, BATCH = sysflag.NEED_UNWRAP | sysflag.INNER_BATCH
cdef int64_t TIME_MAX_MS = ((1 << 63) - 1) // 1000
cdef int64_t OFFSETS_MAX = 0x7FFFFFFF  # Arrow's offsets have 32 bits.
cdef int HOST_TEXT_MAX = 64
cdef const char* DIGITS = b"0123456789ABCDEF"


cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil


cdef extern from "model/_pairs.h":
    ctypedef struct Pair:
        int64_t name, name_size, value, value_size
    bint next_pair(const uint8_t* data, int64_t* at, int64_t end, Pair* pair) nogil
    void copy_short(uint8_t* out, const uint8_t* source, int64_t size, int64_t room) nogil


cdef class Source:
    """The buffers of one call, held while it runs."""

    cdef Py_buffer data, table
    cdef int64_t count
    cdef bint has_data, has_table

    def __cinit__(self, data not None, table not None, int64_t count, int64_t width, bint writable=False):
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.has_data = True
        PyObject_GetBuffer(table, &self.table, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.has_table = True
        if count < 0 or self.table.len < 8 * count * width:
            raise ValueError(f"{count} rows in a table of {self.table.len} bytes")
        self.count = count

    def __dealloc__(self):
        if self.has_data:
            PyBuffer_Release(&self.data)
        if self.has_table:
            PyBuffer_Release(&self.table)

    cdef inline const uint8_t* bytes(self) noexcept nogil:
        return <const uint8_t*>self.data.buf

    cdef inline int64_t* rows(self) noexcept nogil:
        return <int64_t*>self.table.buf


cdef inline int64_t begin_of(const int64_t* f) noexcept nogil:
    return f[F_PROPERTIES] + f[F_PROPERTIES + 1] - f[F_SIZE]


cdef inline int64_t microseconds(int64_t ms) noexcept nogil:
    return (TIME_MAX_MS if ms > TIME_MAX_MS else -TIME_MAX_MS if ms < -TIME_MAX_MS else ms) * 1000


def numbers(data, facts, int64_t count, int which):
    cdef Source source = Source(data, facts, count, WIDTH)
    cdef bint narrow = which in Number.NARROW
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * (4 if narrow else 8))
    cdef int64_t* wide = <int64_t*>PyBytes_AS_STRING(out)
    cdef int32_t* small = <int32_t*>PyBytes_AS_STRING(out)
    cdef const uint8_t* p = source.bytes()
    cdef const uint8_t* behind
    cdef int64_t* f = source.rows()
    cdef int64_t i, at = 0, size = 0
    with nogil:
        for i in range(count):
            if which == QUEUE_OFFSET:
                wide[i] = f[F_QUEUE_OFFSET]
            elif which == QUEUE_ID:
                small[i] = <int32_t>f[F_QUEUE_ID]
            elif which == SYS_FLAG:
                small[i] = <int32_t>f[F_SYS_FLAG]
            elif which == STORE_TIME:
                wide[i] = microseconds(f[F_STORE_TIMESTAMP])
            elif which == BORN_TIME:
                wide[i] = microseconds(get64(p + begin_of(f) + BORN_TIMESTAMP_AT))
            elif which == PHYSICAL_OFFSET:
                wide[i] = get64(p + begin_of(f) + PHYSICAL_OFFSET_AT)
            else:
                host_place(f[F_SYS_FLAG], True, &at, &size)
                behind = p + begin_of(f) + at + size
                if which == RECONSUME_TIMES:
                    small[i] = get32(behind)
                else:
                    wide[i] = get64(behind + 4)
            f += WIDTH
    return out


def gather(data, extra, places, int64_t width, int64_t column, int64_t count, bint nullable):
    cdef Source source = Source(data, places, count, width)
    cdef Source beside = Source(extra, places, count, width)
    cdef const uint8_t* main = source.bytes()
    cdef const uint8_t* other = beside.bytes()
    cdef int64_t* place = source.rows() + column
    cdef int64_t i, total = 0, missing = 0, at, size, room, left
    for i in range(count):
        size = place[i * width + 1]
        total += size
        missing += size == 0
    if total > OFFSETS_MAX:
        raise OverflowError(f"{total} bytes in one column: {OFFSETS_MAX} are the most")
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef bytes values = PyBytes_FromStringAndSize(NULL, total)
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(values)
    offset[0] = 0
    left, total = total, 0
    with nogil:
        for i in range(count):
            at = place[i * width]
            size = place[i * width + 1]
            if at >= 0:
                room = source.data.len - at
                copy_short(out + total, main + at, size, room if room < left else left)
            else:
                memcpy(out + total, other - at - 1, size)
            total += size
            left -= size
            offset[i + 1] = <int32_t>total
    return TextColumn(bits(place, width, count) if nullable and missing else None, offsets, values)


cdef bytes bits(int64_t* place, int64_t width, int64_t count):
    """Arrow's map of the rows that are not empty."""
    cdef bytes valid = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(valid)
    cdef int64_t i
    memset(out, 0, (count + 7) // 8)
    for i in range(count):
        if place[i * width + 1] > 0:
            out[i >> 3] |= 1 << (i & 7)
    return valid


cdef inline void host_place(int64_t flag, bint store, int64_t* at, int64_t* size) noexcept nogil:
    cdef int64_t born = V6 if flag & BORN_V6 else V4
    if store:
        at[0] = BORN_HOST_AT + born + 8
        size[0] = V6 if flag & STORE_V6 else V4
    else:
        at[0] = BORN_HOST_AT
        size[0] = born


def ids(data, facts, int64_t count):
    cdef Source source = Source(data, facts, count, WIDTH)
    cdef const uint8_t* p = source.bytes()
    cdef const uint8_t* record
    cdef int64_t* f = source.rows()
    cdef int64_t i, j, total = 0, at = 0, size = 0
    for i in range(count):
        host_place(f[i * WIDTH + F_SYS_FLAG], True, &at, &size)
        total += f[i * WIDTH + F_UNIQUE_KEY + 1] or 2 * (size + 8)
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef bytes values = PyBytes_FromStringAndSize(NULL, total)
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef char* begin = PyBytes_AS_STRING(values)
    cdef char* out = begin
    offset[0] = 0
    with nogil:
        for i in range(count):
            size = f[F_UNIQUE_KEY + 1]
            if size:
                memcpy(out, p + f[F_UNIQUE_KEY], size)
                out += size
            else:
                record = p + begin_of(f)
                host_place(f[F_SYS_FLAG], True, &at, &size)
                out = hexed(out, record + at, size)
                out = hexed(out, record + PHYSICAL_OFFSET_AT, 8)
            offset[i + 1] = <int32_t>(out - begin)
            f += WIDTH
    return TextColumn(None, offsets, values)


cdef char* hexed(char* out, const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        out[0] = DIGITS[p[i] >> 4]
        out[1] = DIGITS[p[i] & 15]
        out += 2
    return out


def hosts(data, facts, int64_t count, bint store):
    cdef Source source = Source(data, facts, count, WIDTH)
    cdef const uint8_t* p = source.bytes()
    cdef const uint8_t* raw
    cdef int64_t* f = source.rows()
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef bytes room = PyBytes_FromStringAndSize(NULL, HOST_TEXT_MAX * count)
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef char* begin = PyBytes_AS_STRING(room)
    cdef char* out = begin
    cdef bytes text
    cdef int64_t i, at = 0, size = 0
    cdef int length = 0
    cdef const uint8_t* before = NULL
    cdef int64_t before_size = 0
    offset[0] = 0
    for i in range(count):
        host_place(f[F_SYS_FLAG], store, &at, &size)
        raw = p + begin_of(f) + at
        if before != NULL and size == before_size and memcmp(raw, before, size) == 0:
            memcpy(out, out - length, length)  # Neighbours mostly come from one host.
        elif size == V4:
            length = snprintf(out, HOST_TEXT_MAX, b"%u.%u.%u.%u:%d", raw[0], raw[1], raw[2], raw[3], get32(raw + 4))
        else:
            text = str(Host.decode((<const char*>raw)[:size])).encode()
            length = <int>len(text)
            memcpy(out, PyBytes_AS_STRING(text), length)
        before, before_size = raw, size
        out += length
        offset[i + 1] = <int32_t>(out - begin)
        f += WIDTH
    return TextColumn(None, offsets, room[: out - begin])


def pairs(data, facts, int64_t count):
    cdef Source source = Source(data, facts, count, WIDTH)
    cdef int64_t* f = source.rows()
    cdef int64_t i, room = 0, used = 0
    for i in range(count):
        room += f[i * WIDTH + F_PROPERTIES + 1]
    if room > OFFSETS_MAX:
        raise OverflowError(f"{room} bytes of properties: {OFFSETS_MAX} are the most")
    cdef bytes rows = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef int32_t* row = <int32_t*>PyBytes_AS_STRING(rows)
    cdef Pair* found = NULL
    row[0] = 0
    try:
        with nogil:
            found = all_pairs(source.bytes(), f, count, row, &used)
        if used < 0:
            raise MemoryError(f"{count} rows of properties")
        return Pairs(rows, side(source, found, used, True), side(source, found, used, False))
    finally:
        free(found)


cdef Pair* all_pairs(const uint8_t* data, const int64_t* f, int64_t count, int32_t* row,
                     int64_t* used) noexcept nogil:
    """Pairs of all rows; `used` is below zero if there is no memory for them."""
    cdef Pair* found = NULL
    cdef Pair* more
    cdef int64_t size = 0, n = 0, i, first, at, end
    for i in range(count):
        at, end, first = f[F_PROPERTIES], f[F_PROPERTIES] + f[F_PROPERTIES + 1], n
        while True:
            if n == size:
                size = 2 * size + 4 * count
                more = <Pair*>realloc(found, size * sizeof(Pair))
                if more == NULL:
                    used[0] = -1
                    return found
                found = more
            if not next_pair(data, &at, end, &found[n]):
                break
            n = without_twin(data, found, first, n)
        row[i + 1] = <int32_t>n
        f += WIDTH
    used[0] = n
    return found


cdef inline int64_t without_twin(const uint8_t* data, Pair* found, int64_t first, int64_t n) noexcept nogil:
    """Drop the pair of this row that has the name of the newest, pair n; the number of pairs."""
    cdef int64_t i
    for i in range(first, n):
        if found[i].name_size == found[n].name_size and memcmp(
            data + found[i].name, data + found[n].name, found[n].name_size
        ) == 0:
            memmove(&found[i], &found[i + 1], (n - i) * sizeof(Pair))
            return n
    return n + 1


cdef object side(Source source, Pair* found, int64_t count, bint names):
    cdef const uint8_t* data = source.bytes()
    cdef int64_t i, total = 0, at, size, room, left
    for i in range(count):
        total += found[i].name_size if names else found[i].value_size
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef bytes values = PyBytes_FromStringAndSize(NULL, total)
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(values)
    offset[0] = 0
    left, total = total, 0
    with nogil:
        for i in range(count):
            at = found[i].name if names else found[i].value
            size = found[i].name_size if names else found[i].value_size
            room = source.data.len - at
            copy_short(out + total, data + at, size, room if room < left else left)
            total += size
            left -= size
            offset[i + 1] = <int32_t>total
    return TextColumn(None, offsets, values)


def sift(data, facts, int64_t count, only):
    cdef Source source = Source(data, facts, count, WIDTH, True)
    cdef const uint8_t* p = source.bytes()
    cdef int64_t* rows = source.rows()
    cdef int64_t* f
    cdef int64_t offset_begin = only.offset_begin, offset_end = only.offset_end
    cdef int64_t time_begin = only.time_begin_ms, time_end = only.time_end_ms, queue_id = only.queue_id
    cdef int64_t i, kept = 0, odd = 0
    cdef tuple topics = only.topics, tags = only.tags
    cdef bint some_topics = len(topics) > 0, some_tags = len(tags) > 0, batch
    for i in range(count):
        f = rows + i * WIDTH
        batch = f[F_SYS_FLAG] & BATCH == BATCH
        if not (f[F_QUEUE_OFFSET] >= offset_begin or batch) or f[F_QUEUE_OFFSET] >= offset_end:
            continue
        if f[F_STORE_TIMESTAMP] < time_begin or f[F_STORE_TIMESTAMP] >= time_end:
            continue
        if queue_id >= 0 and f[F_QUEUE_ID] != queue_id:
            continue
        if some_topics and not is_one_of(p + f[F_TOPIC], f[F_TOPIC + 1], topics):
            continue
        if some_tags and not batch and not is_one_of(p + f[F_TAGS], f[F_TAGS + 1], tags):
            continue
        odd += batch or f[F_SYS_FLAG] & COMPRESSED != 0
        if kept != i:
            memcpy(rows + kept * WIDTH, f, 8 * WIDTH)
        kept += 1
    return kept, odd


cdef bint is_one_of(const uint8_t* p, int64_t size, tuple wanted) noexcept:
    cdef bytes one
    for one in wanted:
        if len(one) == size and memcmp(PyBytes_AS_STRING(one), p, size) == 0:
            return True
    return False
