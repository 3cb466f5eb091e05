# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _sends_py: same names, same errors, same columns. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import array

from flaremq.model import layout
from flaremq.model.columns import Draft
from flaremq.protocol import codes
from flaremq.protocol.bulk import _sends_py
from flaremq.protocol.bulk.columns import Chunk, Frame, Pair, Plain, Send, SendKind, Target
from flaremq.protocol.codes import RequestCode

# The constants live in layout, codes and columns alone; these are their C copies.
cdef int64_t PROPERTIES_MAX = layout.PROPERTIES_SIZE_MAX
cdef int64_t V1 = RequestCode.SEND_MESSAGE, V2 = RequestCode.SEND_MESSAGE_V2, BATCH = RequestCode.SEND_BATCH_MESSAGE
cdef int RESPONSE = codes.RESPONSE, ONE_WAY = codes.ONE_WAY
cdef int C_WIDTH = Chunk.WIDTH, C_BORN_HOST = Chunk.BORN_HOST_AT
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_AT = Frame.AT, F_SERIALIZE = Frame.SERIALIZE, F_CODE = Frame.CODE
cdef int F_OPAQUE = Frame.OPAQUE, F_FLAG = Frame.FLAG, F_FIRST_PAIR = Frame.FIRST_PAIR, F_PAIRS = Frame.PAIRS
cdef int F_BODY = Frame.BODY_AT, F_PLAIN = Frame.PLAIN, PLAIN_FIELDS = Plain.FIELDS, P_WIDTH = Pair.WIDTH
cdef int D_WIDTH = Draft.WIDTH, D_TOPIC = Draft.TOPIC_AT, D_PROPERTIES = Draft.PROPERTIES_AT, D_BODY = Draft.BODY_AT
cdef int D_BORN_HOST = Draft.BORN_HOST_AT, D_QUEUE_ID = Draft.QUEUE_ID, D_QUEUE = Draft.QUEUE, D_STEP = Draft.STEP
cdef int D_TOGETHER = Draft.TOGETHER, D_FLAG = Draft.FLAG, D_SYS_FLAG = Draft.SYS_FLAG, D_BORN = Draft.BORN_TIMESTAMP
cdef int D_RECONSUME = Draft.RECONSUME_TIMES, S_WIDTH = Send.WIDTH, S_FRAME = Send.FRAME, S_CHUNK = Send.CHUNK
cdef int S_TARGET = Send.TARGET, S_SERIALIZE = Send.SERIALIZE, S_OPAQUE = Send.OPAQUE, S_ONE_WAY = Send.ONE_WAY
cdef int S_GROUP = Send.GROUP_AT, S_DEFAULT_TOPIC = Send.DEFAULT_TOPIC_AT, S_WAIT = Send.WAIT
cdef int S_QUEUE_NUMS = Send.DEFAULT_TOPIC_QUEUE_NUMS, S_UNIQUE_KEY = Send.UNIQUE_KEY_AT, T_ROWS = Target.ROWS
cdef int S_QUEUE_ID = Send.QUEUE_ID, S_KIND = Send.KIND, S_VALUE = Send.VALUE, S_HANDLE = Send.HANDLE_AT
cdef int K_LEVEL = SendKind.LEVEL, K_AFTER = SendKind.AFTER, K_MOMENT = SendKind.MOMENT, K_PREPARED = SendKind.PREPARED
cdef int S_PRODUCER = Send.PRODUCER_AT, S_SEQUENCE = Send.SEQUENCE
cdef int T_WIDTH = Target.WIDTH, T_TOPIC = Target.TOPIC_AT, T_QUEUE_ID = Target.QUEUE_ID, T_FIRST = Target.FIRST

cdef enum:
    # The fields of a send, in the order of their letters.
    GROUP, TOPIC, DEFAULT_TOPIC, QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUME, UNIT_MODE
    MAX_RECONSUME, IS_BATCH, BROKER_NAME, FIELDS
    PROPERTY_COUNT_MAX = 32
    BUCKETS = 256

cdef int64_t ORDINARY_SYS_FLAG = 0x703, TRANSACTION = 0xC
cdef char[FIELDS][24] names
cdef int64_t[FIELDS] name_sizes
cdef array.array EMPTY = array.array("q")


cdef void fill_names():
    cdef bytes text
    for text, field in _sends_py.NAMES.items():
        name_sizes[<int>field] = len(text)
        memcpy(names[<int>field], <const char*>text, len(text))


fill_names()


cdef extern from "protocol/bulk/_scan.h":
    int KIND_ESCAPED, KIND_BARE, KIND_WIDE
    bint text_number(const uint8_t* p, int64_t size, int bits, int64_t* value) nogil
    bint utf8_valid(const uint8_t* p, int64_t size) nogil
    const uint8_t* copy_until(const uint8_t* p, const uint8_t* end, uint8_t a, uint8_t b, uint8_t** out) nogil
    int32_t unescape(const uint8_t** at, const uint8_t* end) nogil
    bint pair_within(const int64_t* pair, uint64_t* last, uint64_t end) nogil
    int gather_letters(const uint8_t* data, int64_t* pair, int64_t count, int width, int letters, uint64_t at,
                       uint64_t end, int64_t** found) nogil
    bint is_plain_property(const uint8_t* name, int64_t size) nogil
    int wish_of(const uint8_t* name, int64_t size) nogil
    bint is_transaction_id(const uint8_t* name, int64_t size) nogil
    int64_t only_digits(const uint8_t* p, int64_t size, int64_t size_max) nogil
    bint is_safe_text(const uint8_t* p, int64_t size) nogil
    uint8_t* put_utf8(uint8_t* p, int32_t code) nogil


cdef extern from "model/_sequence.h":
    int64_t sequence_of(const uint8_t* p, int64_t size, int64_t* id_size) nogil


cdef struct Tables:
    # What a call works on, and the places where it goes on writing.
    const uint8_t* data
    int64_t* chunks
    int64_t* frames
    int64_t* pairs
    int64_t count
    uint8_t* heads
    int64_t heads_used
    const uint8_t* tail
    int64_t tail_size
    int64_t* drafts
    int64_t* sends
    int64_t* targets
    int64_t rows
    int64_t target_rows
    int64_t* same  # For a target, the one before it in the same bucket; -1 ends.
    int64_t[BUCKETS] buckets


include "_framecheck.pxi"
include "_sendproperties.pxi"


def parse_sends(data not None, chunks not None, frames not None, pairs not None, bytearray heads not None,
                bytes tail not None=b""):
    cdef Py_buffer[4] held
    cdef Tables t
    cdef int taken = 0
    cdef int64_t* f
    cdef int64_t row, candidates = 0, room, began = PyByteArray_GET_SIZE(heads)
    cdef array.array drafts, sends, targets
    try:
        for source in (data, chunks, frames, pairs):
            PyObject_GetBuffer(source, &held[taken], PyBUF_WRITABLE if taken == 2 else PyBUF_SIMPLE)
            taken += 1
        t.data = <const uint8_t*>held[0].buf
        t.chunks = <int64_t*>held[1].buf
        t.frames = <int64_t*>held[2].buf
        t.pairs = <int64_t*>held[3].buf
        t.count = held[2].len // (8 * F_WIDTH)
        check_frames(t.frames, t.count, held[0].len, held[1].len // (8 * C_WIDTH), held[3].len // (8 * P_WIDTH))
        room = room_for(&t, &candidates, len(tail))
        drafts = array.clone(EMPTY, candidates * D_WIDTH, False)
        sends = array.clone(EMPTY, candidates * S_WIDTH, False)
        targets = array.clone(EMPTY, candidates * (T_WIDTH + 1), False)
        t.drafts = <int64_t*>drafts.data.as_longlongs
        t.sends = <int64_t*>sends.data.as_longlongs
        t.targets = <int64_t*>targets.data.as_longlongs
        t.same = t.targets + candidates * T_WIDTH
        t.tail = tail
        t.tail_size = len(tail)
        t.rows = t.target_rows = 0
        memset(t.buckets, 0xFF, sizeof(t.buckets))
        PyByteArray_Resize(heads, began + room)
        t.heads = <uint8_t*>PyByteArray_AS_STRING(heads)
        t.heads_used = began
        try:
            for row in range(t.count):
                f = t.frames + row * F_WIDTH
                if is_candidate(f) and not (f[F_BODY + 1] and add(&t, row, f)):
                    f[F_PLAIN] = PLAIN_FIELDS
        finally:
            PyByteArray_Resize(heads, t.heads_used)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&held[taken])
    array.resize(drafts, t.rows * D_WIDTH)
    array.resize(sends, t.rows * S_WIDTH)
    array.resize(targets, t.target_rows * T_WIDTH)
    return drafts, sends, targets


cdef inline bint is_candidate(const int64_t* f) noexcept:
    return not f[F_PLAIN] and not f[F_FLAG] & RESPONSE and (f[F_CODE] == V2 or f[F_CODE] == V1 or f[F_CODE] == BATCH)


cdef int64_t room_for(Tables* t, int64_t* candidates, int64_t tail_size) noexcept:
    """The most that all of them can need of `heads`: no value grows when it loses its escapes."""
    cdef int64_t row, room = 16  # The copying of the last one may write so far.
    cdef const int64_t* f
    for row in range(t.count):
        f = t.frames + row * F_WIDTH
        if is_candidate(f):
            candidates[0] += 1
            room += f[F_BODY] - f[F_AT] + tail_size + 1
    return room


cdef int gather_names(Tables* t, int64_t* p, int64_t count, uint64_t at, uint64_t end, int64_t** found) noexcept:
    """As gather_letters, for the long names."""
    cdef int i
    for count in range(count, 0, -1):
        if not pair_within(p, &at, end):
            return -1
        for i in range(FIELDS):
            if name_sizes[i] == p[1] and memcmp(names[i], t.data + p[0], p[1]) == 0:
                if found[i] != NULL:
                    return 0
                found[i] = p
                break
        else:
            if p[3]:
                return 0
        p += P_WIDTH
    return 1


cdef bint add(Tables* t, int64_t row, int64_t* f) except -1:
    """Note one send, or leave no trace of it."""
    cdef int64_t* found[FIELDS]
    cdef int64_t[FIELDS] numbers
    cdef Properties properties
    cdef int64_t target, at = t.heads_used
    cdef int64_t* d = t.drafts + t.rows * D_WIDTH
    cdef int64_t* s = t.sends + t.rows * S_WIDTH
    cdef const int64_t* c = t.chunks + f[F_CHUNK] * C_WIDTH
    cdef int64_t* pair = t.pairs + f[F_FIRST_PAIR] * P_WIDTH
    cdef int gathered
    memset(found, 0, sizeof(found))
    if f[F_CODE] == V1:
        gathered = gather_names(t, pair, f[F_PAIRS], f[F_AT], f[F_BODY], found)
    else:
        gathered = gather_letters(t.data, pair, f[F_PAIRS], P_WIDTH, FIELDS, f[F_AT], f[F_BODY], found)
    if gathered < 0:
        raise ValueError(f"frame {row} speaks of what is not there")
    if not gathered or not read_numbers(t, found, numbers) or not read_texts(t, found) or found[PROPERTIES] == NULL:
        return False
    if not read_properties(t, found[PROPERTIES], &properties):
        return False
    if properties.kind and numbers[RECONSUME] or numbers[SYS_FLAG] & TRANSACTION and properties.kind != K_PREPARED:
        return False
    memcpy(t.heads + at + properties.size, t.tail, t.tail_size)
    t.heads_used = at + properties.size + t.tail_size
    target = target_of(t, t.data + found[TOPIC][2], found[TOPIC][3], numbers[QUEUE_ID])
    memset(d, 0, 8 * D_WIDTH)
    d[D_TOPIC] = t.targets[target * T_WIDTH + T_TOPIC]
    d[D_TOPIC + 1] = found[TOPIC][3]
    d[D_PROPERTIES] = at
    d[D_PROPERTIES + 1] = properties.size + t.tail_size
    d[D_BODY] = f[F_BODY]
    d[D_BODY + 1] = f[F_BODY + 1]
    d[D_BORN_HOST] = c[C_BORN_HOST]
    d[D_BORN_HOST + 1] = c[C_BORN_HOST + 1]
    d[D_QUEUE_ID] = numbers[QUEUE_ID]
    d[D_QUEUE] = -1
    d[D_STEP] = d[D_TOGETHER] = 1
    d[D_FLAG] = numbers[FLAG]
    d[D_SYS_FLAG] = numbers[SYS_FLAG] & ~TRANSACTION
    d[D_BORN] = numbers[BORN]
    d[D_RECONSUME] = numbers[RECONSUME]
    s[S_FRAME] = row
    s[S_CHUNK] = f[F_CHUNK]
    s[S_TARGET] = target
    s[S_SERIALIZE] = f[F_SERIALIZE]
    s[S_OPAQUE] = f[F_OPAQUE]
    s[S_ONE_WAY] = 1 if f[F_FLAG] & ONE_WAY else 0
    s[S_GROUP] = found[GROUP][2]
    s[S_GROUP + 1] = found[GROUP][3]
    s[S_DEFAULT_TOPIC] = found[DEFAULT_TOPIC][2]
    s[S_DEFAULT_TOPIC + 1] = found[DEFAULT_TOPIC][3]
    s[S_QUEUE_NUMS] = numbers[QUEUE_NUMS]
    s[S_UNIQUE_KEY] = at + properties.unique_key_at
    s[S_UNIQUE_KEY + 1] = properties.unique_key_size
    s[S_WAIT] = properties.wait
    s[S_QUEUE_ID] = numbers[QUEUE_ID]
    s[S_KIND] = properties.kind
    s[S_VALUE] = properties.value
    s[S_HANDLE] = s[S_HANDLE + 1] = 0
    s[S_PRODUCER] = s[S_PRODUCER + 1] = 0
    s[S_SEQUENCE] = -1
    if properties.sequence >= 0 and not numbers[RECONSUME]:
        s[S_PRODUCER] = at + properties.producer_at
        s[S_PRODUCER + 1] = properties.producer_size
        s[S_SEQUENCE] = properties.sequence
    t.rows += 1
    return True


cdef bint read_numbers(Tables* t, int64_t** found, int64_t* numbers) noexcept:
    cdef int[7] fields = [QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG, RECONSUME, MAX_RECONSUME]
    cdef int[2] booleans = [UNIT_MODE, IS_BATCH]
    cdef int64_t* p
    cdef int i, field
    numbers[RECONSUME] = 0
    for i in range(7):
        field = fields[i]
        p = found[field]
        if p != NULL:
            if not text_number(t.data + p[2], p[3], 64 if field == BORN else 32, &numbers[field]):
                return False
        elif field != RECONSUME and field != MAX_RECONSUME:
            return False
    for i in range(2):
        p = found[booleans[i]]
        if p != NULL and (p[3] != 5 or memcmp(t.data + p[2], b"false", 5) != 0):
            return False
    return numbers[QUEUE_ID] >= 0 and not numbers[SYS_FLAG] & ~(ORDINARY_SYS_FLAG | TRANSACTION)


cdef bint read_texts(Tables* t, int64_t** found) noexcept:
    cdef int field
    cdef int64_t* p
    for field in range(GROUP, QUEUE_NUMS):
        p = found[field]
        if p == NULL or not p[3] or (p[4] and (p[4] != KIND_WIDE or not utf8_valid(t.data + p[2], p[3]))):
            return False
    return t.data[found[TOPIC][2]] != c'%'


cdef int64_t target_of(Tables* t, const uint8_t* topic, int64_t size, int64_t queue_id) noexcept:
    """The row of this queue among the targets, where a send is counted. Its topic is written once."""
    cdef uint32_t h = <uint32_t>queue_id * <uint32_t>0x9E3779B1 + <uint32_t>size
    cdef int64_t i
    cdef int64_t* bucket
    cdef int64_t target
    cdef int64_t* row
    for i in range(size):
        h = (h ^ topic[i]) * <uint32_t>0x01000193
    bucket = &t.buckets[(h ^ h >> 16) & (BUCKETS - 1)]
    target = bucket[0]
    while target >= 0:
        row = t.targets + target * T_WIDTH
        if (row[T_QUEUE_ID] == queue_id and row[T_TOPIC + 1] == size
                and memcmp(t.heads + row[T_TOPIC], topic, size) == 0):
            row[T_ROWS] += 1
            return target
        target = t.same[target]
    target = t.target_rows
    t.same[target] = bucket[0]
    bucket[0] = target
    row = t.targets + target * T_WIDTH
    row[T_TOPIC] = t.heads_used
    row[T_TOPIC + 1] = size
    row[T_QUEUE_ID] = queue_id
    row[T_FIRST] = t.rows
    row[T_ROWS] = 1
    memcpy(t.heads + t.heads_used, topic, size)
    t.heads_used += size
    t.target_rows += 1
    return target
