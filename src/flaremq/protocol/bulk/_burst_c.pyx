# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _burst_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

import array

from flaremq.protocol import codes
from flaremq.protocol.bulk import columns
from flaremq.protocol.bulk.columns import Broken, Chunk, Frame, Pair, Plain
from flaremq.protocol.codes import LanguageCode

# The constants live in codes and columns alone; these are their C copies.
cdef int64_t PREFIX = codes.FRAME_PREFIX_SIZE, SIZE_MAX = codes.FRAME_SIZE_MAX, CODE_LOSS = codes.COMPACT_CODE_LOSS
cdef int RESPONSE = codes.RESPONSE, JSON = codes.SerializeType.JSON, COMPACT = codes.SerializeType.ROCKETMQ
cdef int64_t COMPACT_FIXED = 21

cdef int C_WIDTH = Chunk.WIDTH, C_END = Chunk.END, C_REST = Chunk.REST, C_NEEDED = Chunk.NEEDED, C_BROKEN = Chunk.BROKEN
cdef int B_NOTHING = Broken.NOTHING, B_LENGTH = Broken.LENGTH, B_SERIALIZE_TYPE = Broken.SERIALIZE_TYPE
cdef int B_HEADER_SIZE = Broken.HEADER_SIZE
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_AT = Frame.AT, F_END = Frame.END
cdef int F_SERIALIZE = Frame.SERIALIZE, F_CODE = Frame.CODE, F_OPAQUE = Frame.OPAQUE, F_FLAG = Frame.FLAG
cdef int F_VERSION = Frame.VERSION, F_LANGUAGE = Frame.LANGUAGE, F_FIRST_PAIR = Frame.FIRST_PAIR
cdef int F_PAIRS = Frame.PAIRS, F_BODY = Frame.BODY_AT, F_PLAIN = Frame.PLAIN, PLAIN_HEADER = Plain.HEADER
cdef int P_WIDTH = Pair.WIDTH
cdef int64_t PAIRS_MAX = columns.PAIRS_MAX, PAIR_SIZE_MIN = 5  # The shortest ext field is `"":0,`.

# Names of languages, and the codes of pop as a compact header has them.
cdef int LANGUAGES = len(LanguageCode)
cdef char[14][8] language_names
cdef int[14] language_sizes
cdef set SHORT_CODES = set(codes.COMPACT_CODES)
cdef array.array EMPTY = array.array("q")


cdef void fill_languages():
    cdef bytes name
    for code in LanguageCode:
        name = code.name.encode()
        language_sizes[code] = len(name)
        memcpy(language_names[<int>code], <const char*>name, len(name))


fill_languages()


cdef extern from "model/_bytes.h":
    int32_t get32(const uint8_t* p) nogil
    int16_t get16(const uint8_t* p) nogil

cdef extern from "protocol/bulk/_scan.h":
    int KIND_ESCAPED, KIND_BARE, KIND_WIDE
    const uint8_t* scan_blank(const uint8_t* p, const uint8_t* end) nogil
    const uint8_t* scan_string(const uint8_t* p, const uint8_t* end, int* kind) nogil
    const uint8_t* scan_number(const uint8_t* p, const uint8_t* end, int digits_max, int64_t* value) nogil
    const uint8_t* scan_bare(const uint8_t* p, const uint8_t* end) nogil
    bint scan_java_tail(const uint8_t* p, const uint8_t* end, int64_t* flag, int64_t* opaque, int64_t* version) nogil
    bint is_letter_field(const uint8_t* p, const uint8_t* end) nogil
    bint is_next_field(const uint8_t* p, const uint8_t* end) nogil


cdef struct Rows:
    # A table that grows: its numbers, how many are in use, how many there is room for.
    int64_t* at
    int64_t used
    int64_t room

# Kept from call to call, as a turn follows a turn: growing anew each time takes longer than reading.
cdef Rows frame_rows, pair_rows


cdef inline int reserve(Rows* rows, int64_t more) except -1:
    cdef int64_t* moved
    if rows.used + more > rows.room:
        moved = <int64_t*>realloc(rows.at, 8 * (2 * rows.room + more))
        if moved == NULL:
            raise MemoryError()
        rows.at = moved
        rows.room = 2 * rows.room + more
    return 0


cdef array.array table_of(Rows* rows):
    cdef array.array made = array.clone(EMPTY, rows.used, False)
    if rows.used:
        memcpy(made.data.as_longlongs, rows.at, 8 * rows.used)
    return made


cdef Rows taken(Rows* kept):
    cdef Rows rows = kept[0]
    kept.at, kept.room = NULL, 0
    rows.used = 0
    return rows


cdef void give_back(Rows* kept, Rows* rows):
    if kept.at == NULL:
        kept[0] = rows[0]
    else:
        free(rows.at)


def split(data not None, chunks not None, int64_t size_max=SIZE_MAX):
    # Making a table may collect garbage, which may let another thread in here: each has tables of its own.
    cdef Py_buffer source, table
    cdef Rows frames = taken(&frame_rows), pairs = taken(&pair_rows)
    try:
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(chunks, &table, PyBUF_WRITABLE)
            try:
                split_chunks(&source, &table, size_max, &frames, &pairs)
            finally:
                PyBuffer_Release(&table)
        finally:
            PyBuffer_Release(&source)
        return table_of(&frames), table_of(&pairs)
    finally:
        give_back(&frame_rows, &frames)
        give_back(&pair_rows, &pairs)


cdef int split_chunks(Py_buffer* source, Py_buffer* table, int64_t size_max, Rows* f, Rows* p) except -1:
    cdef const uint8_t* data = <const uint8_t*>source.buf
    cdef int64_t* c = <int64_t*>table.buf
    cdef int64_t chunk, at = 0, end, size, needed
    cdef int broken
    for chunk in range(table.len // (8 * C_WIDTH)):
        end = c[C_END]
        if not at <= end <= source.len:
            raise ValueError(f"chunk {chunk} ends at {end}, between {at} and {source.len} is allowed")
        needed = 0
        broken = B_NOTHING
        while end - at >= 4:
            size = <int64_t>get32(data + at) + 4
            broken = fault(data + at, end - at, size, size_max)
            if broken or size > end - at:
                needed = 0 if broken else size
                break
            reserve(f, F_WIDTH)
            reserve(p, P_WIDTH * min(PAIRS_MAX, header_size(data + at) // PAIR_SIZE_MIN + 1))
            note_frame(data, chunk, at, size, f, p)
            at += size
        c[C_REST] = at
        c[C_NEEDED] = needed
        c[C_BROKEN] = broken
        at = end
        c += C_WIDTH
    return 0


cdef inline int64_t header_size(const uint8_t* p) noexcept:
    return <int64_t>p[5] << 16 | <int64_t>p[6] << 8 | p[7]


cdef inline int fault(const uint8_t* p, int64_t left, int64_t size, int64_t size_max) noexcept:
    if not PREFIX <= size <= size_max:
        return B_LENGTH
    if left >= PREFIX:
        if p[4] > COMPACT:
            return B_SERIALIZE_TYPE
        if header_size(p) > size - PREFIX:
            return B_HEADER_SIZE
    return B_NOTHING


cdef int note_frame(const uint8_t* data, int64_t chunk, int64_t at, int64_t size, Rows* f, Rows* p) except -1:
    cdef int64_t* row = f.at + f.used
    cdef int64_t body_at = at + PREFIX + header_size(data + at), noted = p.used
    cdef const uint8_t* begin = data + at + PREFIX
    cdef bint ordinary
    memset(row, 0, 8 * F_WIDTH)
    row[F_CHUNK] = chunk
    row[F_AT] = at
    row[F_END] = at + size
    row[F_SERIALIZE] = data[at + 4]
    row[F_FIRST_PAIR] = noted // P_WIDTH
    row[F_BODY] = body_at
    row[F_BODY + 1] = at + size - body_at
    if data[at + 4] == JSON:
        ordinary = read_json(data, begin, data + body_at, row, p)
    else:
        ordinary = read_compact(data, begin, data + body_at, row, p)
    if ordinary:
        row[F_PAIRS] = (p.used - noted) // P_WIDTH
    else:
        p.used = noted
        memset(row + F_CODE, 0, 8 * (F_PAIRS + 1 - F_CODE))
        row[F_PLAIN] = PLAIN_HEADER
    f.used += F_WIDTH
    return 0


cdef bint read_json(const uint8_t* data, const uint8_t* p, const uint8_t* end, int64_t* row, Rows* pairs) noexcept:
    cdef const uint8_t* name
    cdef int seen = 0, bit, column, kind = 0
    cdef int64_t size, number = 0
    p = scan_blank(p, end)
    if p >= end or p[0] != c'{':
        return False
    while True:
        name = scan_blank(p + 1, end)  # Behind the brace or the comma.
        if name >= end or name[0] != c'"':
            return False
        name += 1
        p = scan_string(name, end, &kind)
        if p == NULL:
            return False
        size = p - name
        p = scan_blank(p + 1, end)
        if p >= end or p[0] != c':':
            return False
        p = scan_blank(p + 1, end)
        if size == 4 and memcmp(name, b"code", 4) == 0:
            bit, column = 1, F_CODE
        elif size == 4 and memcmp(name, b"flag", 4) == 0:
            bit, column = 2, F_FLAG
        elif size == 6 and memcmp(name, b"opaque", 6) == 0:
            bit, column = 4, F_OPAQUE
        elif size == 7 and memcmp(name, b"version", 7) == 0:
            bit, column = 8, F_VERSION
        elif size == 9 and memcmp(name, b"extFields", 9) == 0:
            bit, column = 16, -1
        elif size == 8 and memcmp(name, b"language", 8) == 0:
            bit, column = 32, F_LANGUAGE
        elif size == 6 and memcmp(name, b"remark", 6) == 0:
            bit, column = 64, -1
        elif size == 23 and memcmp(name, b"serializeTypeCurrentRPC", 23) == 0:
            bit, column = 128, -1
        else:
            return False
        if seen & bit:
            return False
        seen |= bit
        if bit <= 8:
            p = scan_number(p, end, 10, &number)
            if p == NULL or number != <int32_t>number:
                return False
            row[column] = number
        elif bit == 16:
            p = read_ext_fields(data, p, end, pairs)
            if p != NULL and seen == 17 and scan_java_tail(p, end, &row[F_FLAG], &row[F_OPAQUE], &row[F_VERSION]):
                return True
        else:
            p = read_text(p, end, row, column)
        if p == NULL:
            return False
        p = scan_blank(p, end)
        if p >= end:
            return False
        if p[0] == c'}':
            return seen & 1 and scan_blank(p + 1, end) == end
        if p[0] != c',':
            return False


cdef const uint8_t* read_text(const uint8_t* p, const uint8_t* end, int64_t* row, int column) noexcept:
    """Behind a string; where a column is given, it must be the name of a language."""
    cdef const uint8_t* last
    cdef int kind = 0, code
    if p >= end or p[0] != c'"':
        return NULL
    p += 1
    last = scan_string(p, end, &kind)
    if last == NULL or column < 0:
        return last + 1 if last != NULL else NULL
    for code in range(LANGUAGES):
        if language_sizes[code] == last - p and memcmp(language_names[code], p, last - p) == 0:
            row[column] = code
            return last + 1
    return NULL


cdef const uint8_t* read_ext_fields(const uint8_t* data, const uint8_t* p, const uint8_t* end, Rows* pairs) noexcept:
    cdef int64_t* row
    cdef const uint8_t* last
    cdef int kind = 0
    cdef int64_t full = pairs.used + PAIRS_MAX * P_WIDTH
    if p >= end or p[0] != c'{':
        return NULL
    p = scan_blank(p + 1, end)
    if p < end and p[0] == c'}':
        return p + 1
    while True:
        if p >= end or p[0] != c'"' or pairs.used == full:
            return NULL
        row = pairs.at + pairs.used
        row[0] = p + 1 - data
        if is_letter_field(p, end):
            row[1] = 1
            p += 4
        else:
            last = scan_string(p + 1, end, &kind)
            if last == NULL or kind & KIND_ESCAPED:
                return NULL
            row[1] = last - p - 1
            p = scan_blank(last + 1, end)
            if p >= end or p[0] != c':':
                return NULL
            p = scan_blank(p + 1, end)
        if p < end and p[0] == c'"':
            p += 1
            last = scan_string(p, end, &kind)
        else:
            last = scan_bare(p, end)
            kind = KIND_BARE
        if last == NULL:
            return NULL
        row[2] = p - data
        row[3] = last - p
        row[4] = kind
        pairs.used += P_WIDTH
        p = last if kind == KIND_BARE else last + 1
        if is_next_field(p, end):
            p += 1
            continue
        p = scan_blank(p, end)
        if p >= end:
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p = scan_blank(p + 1, end)


cdef bint read_compact(const uint8_t* data, const uint8_t* p, const uint8_t* end, int64_t* row,
                       Rows* pairs) except -1:
    cdef int64_t remark_size, name_size, value_size, code, full = pairs.used + PAIRS_MAX * P_WIDTH
    cdef int64_t* pair
    if end - p < COMPACT_FIXED:
        return False
    code = get16(p)
    row[F_LANGUAGE] = p[2] if p[2] < LANGUAGES else -1
    row[F_VERSION] = get16(p + 3)
    row[F_OPAQUE] = get32(p + 5)
    row[F_FLAG] = get32(p + 9)
    if not row[F_FLAG] & RESPONSE and code > 3000 and code in SHORT_CODES:
        code += CODE_LOSS
    row[F_CODE] = code
    remark_size = get32(p + 13)
    if not 0 <= remark_size <= end - p - COMPACT_FIXED:
        return False
    p += COMPACT_FIXED + remark_size
    if get32(p - 4) != end - p:
        return False
    while p < end:
        if end - p < 2:
            return False
        name_size = get16(p)
        p += 2
        if name_size < 0 or end - p < name_size + 4:
            return False
        value_size = get32(p + name_size)
        if value_size < 0 or end - p - name_size - 4 < value_size:
            return False
        if value_size:
            if pairs.used == full:
                return False
            pair = pairs.at + pairs.used
            pair[0] = p - data
            pair[1] = name_size
            pair[2] = p - data + name_size + 4
            pair[3] = value_size
            pair[4] = KIND_WIDE if is_wide(p + name_size + 4, value_size) else 0
            pairs.used += P_WIDTH
        p += name_size + 4 + value_size
    return True


cdef bint is_wide(const uint8_t* p, int64_t size) noexcept:
    cdef int64_t word
    cdef uint8_t bits = 0
    while size >= 8:
        memcpy(&word, p, 8)
        if word & <int64_t>0x8080808080808080ULL:
            return True
        p += 8
        size -= 8
    while size > 0:
        bits |= p[0]
        p += 1
        size -= 1
    return bits & 0x80
