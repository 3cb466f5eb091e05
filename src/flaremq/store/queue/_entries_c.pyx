# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _entries_py: same names, same errors, same bytes and columns. Read that one first."""

from array import array

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.store.queue._entries_py import Limit, Run

cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil

cdef int64_t ENTRY_SIZE = layout.ENTRY_SIZE, FILLER_SIZE = layout.FILLER_SIZE
cdef int64_t EXT_ADDRESS_MAX = layout.EXT_ADDRESS_MAX, LONG_MAX = (1 << 63) - 1
cdef int F_WIDTH = Fact.WIDTH, F_OFFSET = Fact.OFFSET, F_SIZE = Fact.SIZE, F_QUEUE_ID = Fact.QUEUE_ID
cdef int F_QUEUE_OFFSET = Fact.QUEUE_OFFSET, F_SYS_FLAG = Fact.SYS_FLAG, F_TAGS_CODE = Fact.TAGS_CODE
cdef int F_STORE_TIMESTAMP = Fact.STORE_TIMESTAMP, F_TOPIC = Fact.TOPIC_AT
cdef int R_WIDTH = Run.WIDTH, R_FIRST = Run.FIRST, R_COUNT = Run.COUNT, R_QUEUE_OFFSET = Run.QUEUE_OFFSET
cdef int R_DENSE = Run.DENSE, R_OFFSET = Run.OFFSET, R_END = Run.END, R_STORED = Run.STORE_TIMESTAMP
cdef int L_COUNT = Limit.COUNT_MAX, L_BYTES = Limit.BYTES_MAX, L_SCAN = Limit.SCAN_MAX, L_MIN = Limit.LOG_MIN
cdef int L_END = Limit.LOG_END, L_NEAR = Limit.NEAR, L_NEAR_BYTES = Limit.NEAR_BYTES
cdef int L_NEAR_COUNT = Limit.NEAR_COUNT, L_FAR_BYTES = Limit.FAR_BYTES, L_FAR_COUNT = Limit.FAR_COUNT
cdef int L_FILE_SIZE = Limit.FILE_SIZE, L_WIDTH = Limit.WIDTH


cdef struct Groups:
    # Which queue each row belongs to (-1: none), found by open addressing over (topic, queue id).
    int64_t* table  # Group number + 1, 0 for a free place.
    int64_t* group_of
    int64_t* first_row  # Of each group: it lends the group its name.
    int64_t* counts
    int64_t mask
    int64_t found
    int64_t rows


cdef void drop(Groups* groups) noexcept:
    free(groups.table)
    free(groups.group_of)
    free(groups.first_row)
    free(groups.counts)


def group(facts not None, int64_t count, log not None):
    cdef Py_buffer table, source
    cdef Groups groups
    PyObject_GetBuffer(facts, &table, PyBUF_SIMPLE)
    try:
        if count < 0 or count * F_WIDTH * 8 > table.len:
            raise ValueError(f"{count} rows of a table of {table.len // 8 // F_WIDTH}")
        PyObject_GetBuffer(log, &source, PyBUF_SIMPLE)
        try:
            check_topics(<int64_t*>table.buf, count, source.len)
            find_groups(<int64_t*>table.buf, count, <const uint8_t*>source.buf, &groups)
            try:
                return build(<int64_t*>table.buf, count, <const uint8_t*>source.buf, &groups)
            finally:
                drop(&groups)
        finally:
            PyBuffer_Release(&source)
    finally:
        PyBuffer_Release(&table)


cdef int check_topics(int64_t* f, int64_t count, int64_t log_size) except -1:
    cdef int64_t row, at, size
    for row in range(count):
        at = f[F_TOPIC]
        size = f[F_TOPIC + 1]
        if at < 0 or size < 0 or size > log_size or at > log_size - size:
            raise ValueError(f"row {row}: topic at {at}+{size} of {log_size} bytes")
        f += F_WIDTH
    return 0


cdef bint same_queue(int64_t* a, int64_t* b, const uint8_t* log) noexcept:
    return (a[F_QUEUE_ID] == b[F_QUEUE_ID] and a[F_TOPIC + 1] == b[F_TOPIC + 1]
            and memcmp(log + a[F_TOPIC], log + b[F_TOPIC], a[F_TOPIC + 1]) == 0)


cdef uint64_t hash_queue(int64_t* f, const uint8_t* log) noexcept:
    cdef uint64_t h = <uint64_t>f[F_QUEUE_ID] * <uint64_t>0x9E3779B97F4A7C15, word
    cdef const uint8_t* p = log + f[F_TOPIC]
    cdef int64_t left = f[F_TOPIC + 1]
    while left >= 8:
        memcpy(&word, p, 8)
        h = (h ^ word) * <uint64_t>0xFF51AFD7ED558CCD
        h ^= h >> 32
        p += 8
        left -= 8
    while left > 0:
        h = (h ^ p[0]) * <uint64_t>0x100000001B3
        p += 1
        left -= 1
    return h ^ h >> 29


cdef int find_groups(int64_t* facts, int64_t count, const uint8_t* log, Groups* groups) except -1:
    cdef int64_t size = 16, row, kind, at, number = -1
    cdef int64_t* f
    while size < 2 * count:
        size *= 2
    groups.mask = size - 1
    groups.found = groups.rows = 0
    groups.table = <int64_t*>calloc(size, 8)
    groups.group_of = <int64_t*>malloc(8 * (count + 1))
    groups.first_row = <int64_t*>malloc(8 * (count + 1))
    groups.counts = <int64_t*>calloc(count + 1, 8)
    if not (groups.table and groups.group_of and groups.first_row and groups.counts):
        drop(groups)
        raise MemoryError
    for row in range(count):
        f = facts + row * F_WIDTH
        kind = f[F_SYS_FLAG] & 0xC
        if kind == 0x4 or kind == 0xC:
            groups.group_of[row] = -1
            continue
        if number < 0 or not same_queue(f, facts + groups.first_row[number] * F_WIDTH, log):
            at = <int64_t>(hash_queue(f, log) & <uint64_t>groups.mask)
            while groups.table[at] and not same_queue(
                f, facts + groups.first_row[groups.table[at] - 1] * F_WIDTH, log
            ):
                at = at + 1 & groups.mask
            if not groups.table[at]:
                groups.first_row[groups.found] = row
                groups.found += 1
                groups.table[at] = groups.found
            number = groups.table[at] - 1
        groups.group_of[row] = number
        groups.counts[number] += 1
        groups.rows += 1
    return 0


cdef object build(int64_t* facts, int64_t count, const uint8_t* log, Groups* groups):
    cdef object entries = bytearray(groups.rows * ENTRY_SIZE)
    cdef object order = array("q", bytes(8 * groups.rows))
    cdef object runs = array("q", bytes(8 * groups.found * R_WIDTH))
    cdef Py_buffer entries_held, order_held, runs_held
    cdef list keys = []
    cdef int64_t number
    cdef int64_t* f
    PyObject_GetBuffer(entries, &entries_held, PyBUF_WRITABLE)
    PyObject_GetBuffer(order, &order_held, PyBUF_WRITABLE)
    PyObject_GetBuffer(runs, &runs_held, PyBUF_WRITABLE)
    try:
        fill(facts, count, groups, <uint8_t*>entries_held.buf, <int64_t*>order_held.buf, <int64_t*>runs_held.buf)
        for number in range(groups.found):
            f = facts + groups.first_row[number] * F_WIDTH
            keys.append((PyBytes_FromStringAndSize(<const char*>log + f[F_TOPIC], f[F_TOPIC + 1]), f[F_QUEUE_ID]))
    finally:
        PyBuffer_Release(&entries_held)
        PyBuffer_Release(&order_held)
        PyBuffer_Release(&runs_held)
    return keys, entries, runs, order


cdef void fill(int64_t* facts, int64_t count, Groups* groups, uint8_t* entries, int64_t* order,
               int64_t* runs) noexcept:
    cdef int64_t number, row, place, next_place = 0
    cdef int64_t* f
    cdef int64_t* run
    cdef uint8_t* entry
    for number in range(groups.found):
        runs[number * R_WIDTH + R_FIRST] = next_place
        next_place += groups.counts[number]
    for row in range(count):
        number = groups.group_of[row]
        if number < 0:
            continue
        f = facts + row * F_WIDTH
        run = runs + number * R_WIDTH
        if run[R_COUNT] == 0:
            run[R_QUEUE_OFFSET] = f[F_QUEUE_OFFSET]
            run[R_OFFSET] = f[F_OFFSET]
            run[R_DENSE] = 1
        elif f[F_QUEUE_OFFSET] != run[R_QUEUE_OFFSET] + run[R_COUNT]:
            run[R_DENSE] = 0
        place = run[R_FIRST] + run[R_COUNT]
        run[R_COUNT] += 1
        run[R_END] = f[F_OFFSET] + f[F_SIZE]
        run[R_STORED] = f[F_STORE_TIMESTAMP]
        order[place] = row
        entry = entries + place * ENTRY_SIZE
        put64(entry, f[F_OFFSET])
        put32(entry + 8, <int32_t>f[F_SIZE])
        put64(entry + 12, f[F_TAGS_CODE])


def valid(entries not None, int64_t count, int64_t below, int64_t begin=0):
    cdef Py_buffer source
    cdef const uint8_t* p
    cdef int64_t i = 0, offset, size, end = 0
    PyObject_GetBuffer(entries, &source, PyBUF_SIMPLE)
    try:
        if count * ENTRY_SIZE > source.len:
            raise ValueError(f"{count} entries in {source.len} bytes")
        p = <const uint8_t*>source.buf
        while i < count:
            offset = get64(p)
            size = get32(p + 8)
            if offset < 0 or size <= 0 or offset >= below:
                break
            if size != FILLER_SIZE:
                if offset < begin or offset > LONG_MAX - size:
                    break
                begin = end = offset + size
            p += ENTRY_SIZE
            i += 1
        return i, end
    finally:
        PyBuffer_Release(&source)


def choose(entries not None, limits not None, codes, chosen not None):
    cdef Py_buffer source, limits_held, codes_held, chosen_held
    cdef int64_t[5] answer
    cdef int64_t code_count = -1
    cdef int64_t* code_list = NULL
    PyObject_GetBuffer(entries, &source, PyBUF_SIMPLE)
    PyObject_GetBuffer(limits, &limits_held, PyBUF_SIMPLE)
    PyObject_GetBuffer(chosen, &chosen_held, PyBUF_WRITABLE)
    try:
        if limits_held.len < 8 * L_WIDTH:
            raise IndexError("array index out of range")
        if codes is not None:
            PyObject_GetBuffer(codes, &codes_held, PyBUF_SIMPLE)
            code_list = <int64_t*>codes_held.buf
            code_count = codes_held.len // 8
        pick(&source, <int64_t*>limits_held.buf, code_list, code_count, &chosen_held, answer)
        if codes is not None:
            PyBuffer_Release(&codes_held)
        return answer[0], answer[1], answer[2], answer[3], answer[4]
    finally:
        PyBuffer_Release(&source)
        PyBuffer_Release(&limits_held)
        PyBuffer_Release(&chosen_held)


cdef bint full(int64_t* limits, int64_t taken, int64_t size_sum, int64_t offset) noexcept:
    if taken + 1 > limits[L_COUNT] or size_sum > limits[L_BYTES]:
        return True
    if limits[L_END] - offset <= limits[L_NEAR]:
        return size_sum > limits[L_NEAR_BYTES] or taken > limits[L_NEAR_COUNT] - 1
    return size_sum > limits[L_FAR_BYTES] or taken > limits[L_FAR_COUNT] - 1


cdef bint among(int32_t code, int64_t* codes, int64_t count) noexcept:
    cdef int64_t i
    for i in range(count):
        if codes[i] == code:
            return True
    return False


cdef void pick(Py_buffer* source, int64_t* limits, int64_t* codes, int64_t code_count, Py_buffer* target,
               int64_t* answer) noexcept:
    cdef const uint8_t* p = <const uint8_t*>source.buf
    cdef int64_t* chosen = <int64_t*>target.buf
    cdef int64_t room = target.len // 16, count = min(source.len // ENTRY_SIZE, limits[L_SCAN]), i = 0
    cdef int64_t taken = 0, scanned = 0, size_sum = 0, last = 0, gone = 0, skip_below = 0, offset, size
    cdef int64_t code
    while i < count:
        offset = get64(p)
        size = get32(p + 8)
        if taken == room or size_sum >= limits[L_BYTES]:
            break
        if taken and full(limits, taken, size_sum + size, offset):
            break
        i += 1
        scanned = i
        last = offset
        p += ENTRY_SIZE
        if size <= 0 or size == FILLER_SIZE or offset < skip_below:
            continue
        code = get64(p - 8)
        if code_count >= 0 and code > EXT_ADDRESS_MAX and not among(<int32_t>code, codes, code_count):
            continue
        if offset < limits[L_MIN]:
            skip_below = offset - offset % limits[L_FILE_SIZE] + limits[L_FILE_SIZE]
            gone += 1
            continue
        chosen[2 * taken] = offset
        chosen[2 * taken + 1] = size
        taken += 1
        size_sum += size
    answer[0], answer[1], answer[2], answer[3], answer[4] = taken, scanned, size_sum, last, gone


def gather(log not None, int64_t base, chosen not None, int64_t first, int64_t last):
    cdef Py_buffer source, held
    cdef int64_t total = 0, i, at, size
    cdef int64_t* pairs
    cdef bytes out
    cdef uint8_t* p
    PyObject_GetBuffer(log, &source, PyBUF_SIMPLE)
    PyObject_GetBuffer(chosen, &held, PyBUF_SIMPLE)
    try:
        if not 0 <= first <= last <= held.len // 16:
            raise IndexError("array index out of range")
        pairs = <int64_t*>held.buf
        for i in range(first, last):
            at = pairs[2 * i] - base
            size = pairs[2 * i + 1]
            if at < 0 or size < 0 or size > source.len or at > source.len - size:
                raise ValueError(f"record at {at}+{size} of {source.len} bytes")
            total += size
        out = PyBytes_FromStringAndSize(NULL, total)
        p = <uint8_t*>PyBytes_AS_STRING(out)
        for i in range(first, last):
            memcpy(p, <const uint8_t*>source.buf + (pairs[2 * i] - base), pairs[2 * i + 1])
            p += pairs[2 * i + 1]
        return out
    finally:
        PyBuffer_Release(&source)
        PyBuffer_Release(&held)


def take(entries not None, limits not None, codes, log not None, int64_t base, int64_t size_max):
    cdef Py_buffer source, limits_held, codes_held, log_held, chosen
    cdef int64_t[5] answer
    cdef int64_t code_count = -1, room
    cdef int64_t* code_list = NULL
    PyObject_GetBuffer(entries, &source, PyBUF_SIMPLE)
    PyObject_GetBuffer(limits, &limits_held, PyBUF_SIMPLE)
    PyObject_GetBuffer(log, &log_held, PyBUF_SIMPLE)
    chosen.buf = NULL
    try:
        if limits_held.len < 8 * L_WIDTH:
            raise IndexError("array index out of range")
        if codes is not None:
            PyObject_GetBuffer(codes, &codes_held, PyBUF_SIMPLE)
            code_list = <int64_t*>codes_held.buf
            code_count = codes_held.len // 8
        room = max(0, (<int64_t*>limits_held.buf)[L_COUNT])
        chosen.len = 16 * min(room, source.len // ENTRY_SIZE)
        chosen.buf = malloc(chosen.len + 1)
        if chosen.buf == NULL:
            raise MemoryError()
        pick(&source, <int64_t*>limits_held.buf, code_list, code_count, &chosen, answer)
        if codes is not None:
            PyBuffer_Release(&codes_held)
        data = None
        if answer[0] and answer[2] < size_max:
            data = joined(&log_held, base, <int64_t*>chosen.buf, answer[0], answer[2])
        return answer[0], answer[1], answer[2], answer[3], answer[4], data
    finally:
        free(chosen.buf)
        PyBuffer_Release(&source)
        PyBuffer_Release(&limits_held)
        PyBuffer_Release(&log_held)


cdef object joined(Py_buffer* log, int64_t base, int64_t* pairs, int64_t count, int64_t total):
    cdef int64_t i, at, size
    cdef bytes out
    cdef uint8_t* p
    for i in range(count):
        at, size = pairs[2 * i] - base, pairs[2 * i + 1]
        if at < 0 or size > log.len or at > log.len - size:
            return None
    out = PyBytes_FromStringAndSize(NULL, total)
    p = <uint8_t*>PyBytes_AS_STRING(out)
    for i in range(count):
        memcpy(p, <const uint8_t*>log.buf + (pairs[2 * i] - base), pairs[2 * i + 1])
        p += pairs[2 * i + 1]
    return out
