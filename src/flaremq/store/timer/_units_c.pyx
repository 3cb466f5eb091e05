# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _units_py: same names, same units and numbers. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import array

from flaremq.model import layout
from flaremq.store.timer._units_py import Entrant, SlotRow, Waiting

cdef extern from "model/_bytes.h":
    int64_t get64(const uint8_t* p) nogil
    int32_t get32(const uint8_t* p) nogil
    void put64(uint8_t* p, int64_t value) nogil
    void put32(uint8_t* p, int32_t value) nogil

# The constants live in layout alone; these are their C copies.
cdef int64_t UNIT = layout.TIMER_UNIT_SIZE
cdef int32_t NORMAL = layout.TIMER_NORMAL, DELETE = layout.TIMER_DELETE, ROLL = layout.TIMER_ROLL
cdef int32_t MAGIC_MAX = layout.TIMER_MAGIC_MAX
cdef enum:  # Where the fields of a unit lie.
    BEFORE = 4, MAGIC = 12, WRITTEN = 16, DELAY = 24, OFFSET = 28, SIZE = 36, HASH = 40, RESERVED = 44
cdef array.array EMPTY = array.array("q")


cdef inline bint is_unit(const uint8_t* p) noexcept:
    return get32(p) == UNIT and 0 <= get32(p + MAGIC) <= MAGIC_MAX


cdef inline int64_t slot_of(const uint8_t* p) noexcept:
    return <int64_t>(<uint64_t>get64(p + WRITTEN) + <uint64_t><int64_t>get32(p + DELAY))


def walk_back(view not None, int64_t base, int64_t position, int64_t slot_ms, int64_t count_max):
    cdef Py_buffer held
    cdef const uint8_t* p
    cdef bint sound = True
    cdef int64_t at, before, found = 0, marked = 0, room
    cdef array.array messages, markers
    PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
    try:
        room = min(max(count_max, 0), held.len // UNIT + 1)  # Each unit lies before the last one.
        messages, markers = array.clone(EMPTY, room, False), array.clone(EMPTY, room, False)
        while found + marked < count_max and position >= 0 and position >= base:
            at = position - base
            if at > held.len - UNIT:
                sound = False
                break
            p = <const uint8_t*>held.buf + at
            before = get64(p + BEFORE)
            if not is_unit(p) or slot_of(p) != slot_ms or before >= position:
                sound = False
                break
            if found + marked == room:  # Units that overlap: each is counted all the same.
                room = min(2 * room + 1, count_max)
                array.resize(messages, room)
                array.resize(markers, room)
            if get32(p + MAGIC) & DELETE:
                markers.data.as_longlongs[marked] = position
                marked += 1
            else:
                messages.data.as_longlongs[found] = position
                found += 1
            position = before
    finally:
        PyBuffer_Release(&held)
    array.resize(messages, found)
    array.resize(markers, marked)
    return messages, markers, position, sound


def read_units(view not None, int64_t base, array.array positions not None):
    cdef Py_buffer held
    cdef const uint8_t* p
    cdef int64_t i, at, done = 0, count = len(positions)
    cdef array.array rows = array.clone(EMPTY, count * 3, False)
    PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
    for i in range(count):
        at = positions.data.as_longlongs[i] - base
        if at < 0 or at > held.len - UNIT:
            break
        p = <const uint8_t*>held.buf + at
        if not is_unit(p) or get32(p + MAGIC) & ROLL:
            break
        rows.data.as_longlongs[3 * i] = get64(p + OFFSET)
        rows.data.as_longlongs[3 * i + 1] = get32(p + SIZE)
        rows.data.as_longlongs[3 * i + 2] = get64(p + WRITTEN)
        done += 1
    PyBuffer_Release(&held)
    array.resize(rows, done * 3)
    return rows


def pack_units(array.array entrants not None, int64_t first, int64_t count, array.array slots not None,
               array.array hashes not None, int64_t now_ms, int64_t position):
    cdef int64_t row, total = len(entrants) // 5, slot_count = len(slots) // 4, hash_count = len(hashes)
    cdef const int64_t* e
    cdef int64_t* s
    cdef uint8_t* p
    cdef bytes units
    if not 0 <= first <= first + count <= total:
        raise ValueError(f"rows {first} to {first + count} of {total}")
    units = PyBytes_FromStringAndSize(NULL, count * UNIT)
    p = <uint8_t*>PyBytes_AS_STRING(units)
    for row in range(first, first + count):
        e = <const int64_t*>entrants.data.as_longlongs + row * 5
        if not (0 <= e[2] < slot_count and 0 <= e[3] < hash_count):
            raise ValueError(f"row {row} speaks of what is not there")
        s = <int64_t*>slots.data.as_longlongs + e[2] * 4
        put32(p, <int32_t>UNIT)
        put64(p + BEFORE, s[2])
        put32(p + MAGIC, NORMAL | (DELETE if e[4] else 0))
        put64(p + WRITTEN, now_ms)
        put32(p + DELAY, <int32_t>(s[0] - now_ms))
        put64(p + OFFSET, e[0])
        put32(p + SIZE, <int32_t>e[1])
        put32(p + HASH, <int32_t>hashes.data.as_longlongs[e[3]])
        put64(p + RESERVED, 0)
        if s[2] < 0:
            s[1] = position
        s[2] = position
        s[3] += -1 if e[4] else 1
        position += UNIT
        p += UNIT
    return units


assert (Waiting.OFFSET, Waiting.SIZE, Waiting.SINCE_MS, Waiting.WIDTH) == (0, 1, 2, 3)
assert (Entrant.OFFSET, Entrant.SIZE, Entrant.SLOT, Entrant.TOPIC, Entrant.CANCELS, Entrant.WIDTH) == (0, 1, 2, 3, 4, 5)
assert (SlotRow.AT_MS, SlotRow.FIRST, SlotRow.LAST, SlotRow.COUNT, SlotRow.WIDTH) == (0, 1, 2, 3, 4)
assert layout.TIMER_UNIT_FORMAT == ">iqiqiqiiq"
