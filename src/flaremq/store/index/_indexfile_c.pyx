# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of _indexfile_py: same names, same errors, same bytes. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr

from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.model.tags import java_hash

cdef int64_t HEADER_SIZE = layout.INDEX_HEADER_SIZE, SLOT_SIZE = layout.INDEX_SLOT_SIZE
cdef int64_t ENTRY_SIZE = layout.INDEX_ENTRY_SIZE
cdef int64_t INT_MAX = 0x7FFFFFFF
cdef int TRANSACTION = 0xC, ROLLBACK = 0xC  # Bits of the sys flag.

cdef int F_WIDTH = Fact.WIDTH, F_OFFSET = Fact.OFFSET, F_SYS_FLAG = Fact.SYS_FLAG
cdef int F_STORE_TIMESTAMP = Fact.STORE_TIMESTAMP, F_TOPIC = Fact.TOPIC_AT, F_KEYS = Fact.KEYS_AT
cdef int F_UNIQUE_KEY = Fact.UNIQUE_KEY_AT

cdef int64_t GIL_FREE_FROM = 64  # Rows from which other threads may run beside us.


cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil
    int64_t hash_ascii(const uint8_t* p, int64_t size, uint32_t* h) nogil


cdef struct Piece:
    const uint8_t* at
    int64_t size


cdef struct File:
    uint8_t* data
    int64_t slots
    int64_t entries_max


def key_hash(topic not None, key not None):
    cdef Py_buffer topic_held, key_held
    cdef Piece t, k
    PyObject_GetBuffer(topic, &topic_held, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(key, &key_held, PyBUF_SIMPLE)
        try:
            t.at, t.size = <const uint8_t*>topic_held.buf, topic_held.len
            k.at, k.size = <const uint8_t*>key_held.buf, key_held.len
            return hash_of(t, k)
        finally:
            PyBuffer_Release(&key_held)
    finally:
        PyBuffer_Release(&topic_held)


cdef int32_t hash_of(Piece topic, Piece key) noexcept nogil:
    cdef uint32_t h = 0
    cdef int32_t value
    if hash_ascii(topic.at, topic.size, &h) < topic.size:
        return slow_hash_of(topic, key)
    h = 31 * h + 35  # The '#' between the two.
    if hash_ascii(key.at, key.size, &h) < key.size:
        return slow_hash_of(topic, key)
    value = <int32_t>h
    if value >= 0:
        return value
    return <int32_t>(0 - h) if h != <uint32_t>0x80000000 else 0


cdef int32_t slow_hash_of(Piece topic, Piece key) noexcept with gil:
    """What is not ASCII goes the long way, through Python's decoder."""
    cdef int64_t h = java_hash((<const char*>topic.at)[:topic.size].decode("utf-8", "replace") + "#"
                               + (<const char*>key.at)[:key.size].decode("utf-8", "replace"))
    h = -h if h < 0 else h
    return <int32_t>h if h <= INT_MAX else 0


def put_many(data not None, int64_t slots, facts not None, int64_t count, tuple begin not None, log not None,
             int64_t from_offset):
    cdef Py_buffer target, table, source
    cdef int64_t row, number
    cdef File file
    row, number = begin
    PyObject_GetBuffer(data, &target, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(facts, &table, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, &source, PyBUF_SIMPLE)
            try:
                file.data = <uint8_t*>target.buf
                file.slots = slots
                file.entries_max = entries_max(target.len, slots)
                check_rows(&table, count, row, number, source.len)
                if count - row > GIL_FREE_FROM:
                    with nogil:
                        put_rows(&file, &table, count, &row, &number, &source, from_offset)
                else:
                    put_rows(&file, &table, count, &row, &number, &source, from_offset)
                return row, number if row < count else 0
            finally:
                PyBuffer_Release(&source)
        finally:
            PyBuffer_Release(&table)
    finally:
        PyBuffer_Release(&target)


def count_keys(facts not None, int64_t count, log not None):
    cdef Py_buffer table, source
    cdef int64_t row, keys = 0, last = -1, found
    cdef const int64_t* f
    PyObject_GetBuffer(facts, &table, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &source, PyBUF_SIMPLE)
        try:
            check_rows(&table, count, 0, 0, source.len)
            for row in range(count):
                f = <const int64_t*>table.buf + row * F_WIDTH
                if f[F_SYS_FLAG] & TRANSACTION != ROLLBACK:
                    found = keys_of(f, <const uint8_t*>source.buf)
                    if found:
                        keys += found
                        last = row
            return keys, last
        finally:
            PyBuffer_Release(&source)
    finally:
        PyBuffer_Release(&table)


def wrong_links(data not None, int64_t slots, int64_t most):
    cdef Py_buffer held
    cdef int64_t number, slot, count, points, total = 0
    cdef const uint8_t* at
    cdef bytearray room
    cdef int32_t* newest
    cdef list found = []
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        count = entries_max(held.len, slots)
        at = <const uint8_t*>held.buf
        count = min(count, get32(at + 36))
        room = bytearray(4 * slots)
        newest = <int32_t*>PyByteArray_AS_STRING(room)
        at += HEADER_SIZE + slots * SLOT_SIZE
        for number in range(1, count):
            slot = get32(at + number * ENTRY_SIZE) % slots
            slot += slots if slot < 0 else 0
            points = get32(at + number * ENTRY_SIZE + 16)
            if points != newest[slot]:
                total += 1
                if total <= most:
                    found.append((False, number, points, newest[slot]))
            newest[slot] = <int32_t>number
        at = <const uint8_t*>held.buf + HEADER_SIZE
        for slot in range(slots):
            points = get32(at + slot * SLOT_SIZE)
            if points != newest[slot]:
                total += 1
                if total <= most:
                    found.append((True, slot, points, newest[slot]))
        return total, found
    finally:
        PyBuffer_Release(&held)


cdef int64_t keys_of(const int64_t* f, const uint8_t* log) noexcept nogil:
    cdef const uint8_t* p = log + f[F_KEYS]
    cdef int64_t i, keys = f[F_UNIQUE_KEY + 1] > 0
    for i in range(f[F_KEYS + 1]):
        if p[i] != 32 and (i == 0 or p[i - 1] == 32):
            keys += 1
    return keys


cdef void put_rows(File* file, Py_buffer* table, int64_t count, int64_t* row, int64_t* number,
                   Py_buffer* source, int64_t from_offset) noexcept nogil:
    cdef const uint8_t* log = <const uint8_t*>source.buf
    cdef const int64_t* f
    while row[0] < count:
        f = <const int64_t*>table.buf + row[0] * F_WIDTH
        if f[F_OFFSET] >= from_offset and f[F_SYS_FLAG] & TRANSACTION != ROLLBACK:
            if not put_keys(file, f, log, number):
                return
        number[0] = 0
        row[0] += 1


cdef bint put_keys(File* file, const int64_t* f, const uint8_t* log, int64_t* number) noexcept nogil:
    """Keys of one record from `number` on; False with the number of the first that found no room."""
    cdef Piece topic, key
    cdef const uint8_t* end = log + f[F_KEYS] + f[F_KEYS + 1]
    cdef const uint8_t* blank
    cdef int64_t i = 0
    topic.at = log + f[F_TOPIC]
    topic.size = f[F_TOPIC + 1]
    if f[F_UNIQUE_KEY + 1] > 0:
        key.at = log + f[F_UNIQUE_KEY]
        key.size = f[F_UNIQUE_KEY + 1]
        if number[0] <= 0:
            if not put(file, hash_of(topic, key), f):
                number[0] = 0
                return False
        i = 1
    key.at = log + f[F_KEYS]
    while key.at < end:
        blank = <const uint8_t*>memchr(key.at, 32, end - key.at)
        key.size = (blank if blank != NULL else end) - key.at
        if key.size > 0:
            if i >= number[0]:
                if not put(file, hash_of(topic, key), f):
                    number[0] = i
                    return False
            i += 1
        key.at += key.size + 1
    return True


cdef bint put(File* file, int32_t key, const int64_t* f) noexcept nogil:
    cdef uint8_t* data = file.data
    cdef int64_t entry = get32(data + 36), seconds = 0, store_ms = f[F_STORE_TIMESTAMP], begin_ms = get64(data)
    cdef uint8_t* slot = data + HEADER_SIZE + key % file.slots * SLOT_SIZE
    cdef uint8_t* p
    cdef int32_t previous
    if entry < 1:
        entry = 1
    if entry >= file.entries_max:
        return False
    previous = get32(slot)
    if previous < 1 or previous > entry:
        previous = 0
    if 0 < begin_ms <= store_ms:
        seconds = (store_ms - begin_ms) // 1000
        if seconds > INT_MAX:
            seconds = INT_MAX
    p = data + HEADER_SIZE + file.slots * SLOT_SIZE + entry * ENTRY_SIZE
    put32(p, key)
    put64(p + 4, f[F_OFFSET])
    put32(p + 12, <int32_t>seconds)
    put32(p + 16, previous)
    if entry <= 1:
        put64(data, store_ms)
        put64(data + 16, f[F_OFFSET])
    if previous == 0:
        put32(data + 32, <int32_t>(<uint32_t>get32(data + 32) + 1))
    put32(data + 36, <int32_t>(entry + 1))
    put64(data + 24, f[F_OFFSET])
    put64(data + 8, store_ms)
    put32(slot, <int32_t>entry)
    return True


cdef int64_t entries_max(int64_t size, int64_t slots) except -1:
    cdef int64_t room = 0
    if 1 <= slots <= size // SLOT_SIZE:  # First of all: what follows may not overflow.
        room = size - HEADER_SIZE - slots * SLOT_SIZE
        if room >= 0 and room % ENTRY_SIZE == 0:
            return min(room // ENTRY_SIZE, INT_MAX)
    raise ValueError(f"{size} bytes are no index file with {slots} slots")


cdef int check_rows(Py_buffer* table, int64_t count, int64_t first, int64_t number, int64_t log_size) except -1:
    cdef int64_t rows = table.len // (8 * F_WIDTH), row, at, size
    cdef int[3] places = [F_TOPIC, F_KEYS, F_UNIQUE_KEY]
    cdef const int64_t* f
    cdef int i
    if not 0 <= first <= count <= rows:
        raise ValueError(f"rows {first} to {count} of {rows}")
    if number < 0:
        raise ValueError(f"key number {number}")
    for row in range(first, count):
        f = <const int64_t*>table.buf + row * F_WIDTH
        for i in range(3):
            at = f[places[i]]
            size = f[places[i] + 1]
            if at < 0 or size < 0 or size > log_size or at > log_size - size:
                raise ValueError(f"row {row}: bytes {at}+{size} of a buffer of {log_size}")
    return 0
