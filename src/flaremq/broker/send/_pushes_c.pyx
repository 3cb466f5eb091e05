# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _pushes_py: same names, same bytes. Read that one first."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from flaremq.broker.send import _pushes_py
from flaremq.protocol import codes
from flaremq.protocol.bulk.columns import Frame, Kind, Request

# The constants live in codes, columns and the other twin alone; these are their C copies.
cdef int WIDTH = _pushes_py.WIDTH, FIELD = Request.FIELD, ESCAPED = Kind.ESCAPED, JSON = codes.SerializeType.JSON
cdef int F_WIDTH = Frame.WIDTH, F_BODY_AT = Frame.BODY_AT, F_BODY_SIZE = Frame.BODY_SIZE, F_SERIALIZE = Frame.SERIALIZE
cdef int PREFIX = codes.FRAME_PREFIX_SIZE, VERSION = codes.CURRENT_VERSION
cdef int CODE = codes.RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
cdef int64_t SYS_FLAGS = _pushes_py.SYS_FLAGS
cdef tuple MORE = _pushes_py.MORE, MORE_PREFIXES = _pushes_py.MORE_PREFIXES

cdef enum:
    FIELDS = 14
    TOPIC = 1
    QUEUE_NUMS = 3
    QUEUE_ID = 4
    SYS_FLAG = 5
    BORN = 6
    FLAG = 7
    PROPERTIES = 8
    TIMES = 9
    UNIT_MODE = 10
    BATCH = 12
    NEEDED = 9
    PAIRS = 32
    ROOM = 640  # More than a push takes but for its texts and its body.

assert WIDTH == 1 + 3 * FIELDS and FIELD == 3 and Kind.TEXT == 0 and _pushes_py.PAIRS_MAX == PAIRS
assert _pushes_py.NUMBERS == {QUEUE_NUMS: 9, QUEUE_ID: 9, SYS_FLAG: 9, BORN: 18, FLAG: 9}
assert _pushes_py.FALSE == (UNIT_MODE, BATCH) and _pushes_py.NEEDED == NEEDED
assert [_pushes_py.TOPIC, _pushes_py.PROPERTIES, _pushes_py.TIMES] == [TOPIC, PROPERTIES, TIMES]
cdef list BEFORE = [f'","{name.decode()}":"'.encode() for name in _pushes_py.NAMES]  # What stands before each text.


cdef extern from "model/_bytes.h":
    void put32(uint8_t* p, int32_t value) nogil

cdef extern from "protocol/bulk/_scan.h":
    uint8_t* put_decimal(uint8_t* p, int64_t value) nogil
    uint8_t* put_bytes(uint8_t* p, const void* source, int64_t size) nogil


cdef class ReplyDraft:
    cdef readonly int64_t frame, queue_id, flag, sys_flag, born_timestamp_ms
    cdef readonly int reconsume_times, prepared_transaction_offset
    cdef readonly bytes topic, properties, body, client_id
    cdef public bytes born_host
    cdef bytes _fields  # All texts before the body, one behind the other.
    cdef int64_t[FIELDS] _sizes

    def push(self, int64_t opaque, int64_t now_ms, bytes born_host not None, bytes store_host not None):
        cdef int64_t room = ROOM + len(self._fields) + len(self.body) + len(born_host) + len(store_host)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, room)
        cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(made)
        cdef uint8_t* p = out + PREFIX
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(self._fields)
        cdef int64_t head
        cdef int i
        p = put_text(p, b'{"code":')
        p = put_decimal(p, CODE)
        p = put_text(p, b',"extFields":{"producerGroup":"')
        for i in range(PROPERTIES + 1):
            if i:
                p = put_text(p, BEFORE[i])
            p = put_bytes(p, text, self._sizes[i])
            text += self._sizes[i]
        if self._sizes[PROPERTIES] < 6 or memcmp(text - 6, <const char*>b"\\u0002", 6):
            p = put_text(p, b"\\u0002")
        p = put_text(p, b"PUSH_REPLY_TIME\\u0001")
        p = put_decimal(p, now_ms)
        p = put_text(p, b'\\u0002","reconsumeTimes":"0","unitMode":"false","bornHost":"')
        p = put_text(p, born_host)
        p = put_text(p, b'","storeHost":"')
        p = put_text(p, store_host)
        p = put_text(p, b'","storeTimestamp":"')
        p = put_decimal(p, now_ms)
        p = put_text(p, b'"},"flag":0,"language":"JAVA","opaque":')
        p = put_decimal(p, opaque)
        p = put_text(p, b',"serializeTypeCurrentRPC":"JSON","version":')
        p = put_decimal(p, VERSION)
        p = put_text(p, b"}")
        head = p - out - PREFIX
        p = put_text(p, self.body)
        put32(out, p - out - 4)
        put32(out + 4, head)
        return made[:p - out]


cdef inline uint8_t* put_text(uint8_t* p, bytes text) noexcept:
    return put_bytes(p, PyBytes_AS_STRING(text), len(text))


def read_replies(data not None, array.array frames not None, array.array rows not None, bytes tail not None):
    cdef Py_buffer held
    cdef int64_t r, body_at, body_size
    cdef const int64_t* row
    cdef const int64_t* f
    cdef list found = []
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        for r in range(len(rows) // WIDTH):
            row = <const int64_t*>rows.data.as_longlongs + r * WIDTH
            if not 0 <= row[0] < len(frames) // F_WIDTH:
                raise IndexError(row[0])
            f = <const int64_t*>frames.data.as_longlongs + row[0] * F_WIDTH
            body_at, body_size = f[F_BODY_AT], f[F_BODY_SIZE]
            if not 0 <= body_at <= body_at + body_size <= held.len:
                raise ValueError(f"frame {row[0]} speaks of what is not there")
            reply = None
            if body_size and f[F_SERIALIZE] == JSON and is_ordinary(row, &held):
                reply = draft(row, <const uint8_t*>held.buf, tail)
                if reply is not None:
                    (<ReplyDraft>reply).body = PyBytes_FromStringAndSize(<const char*>held.buf + body_at, body_size)
            found.append((row[0], reply))
    finally:
        PyBuffer_Release(&held)
    return found


cdef bint is_ordinary(const int64_t* row, const Py_buffer* data) except -1:
    """Whether the fields of a reply are as they should be."""
    cdef const uint8_t* p = <const uint8_t*>data.buf
    cdef const int64_t* field
    cdef int i
    for i in range(FIELDS):
        field = row + 1 + 3 * i
        if field[0] < 0:
            if i < NEEDED or field[2]:
                return False
            continue
        if field[2] & ~(ESCAPED if i == PROPERTIES else 0):
            return False
        if not 0 <= field[1] <= data.len - field[0]:
            raise ValueError(f"frame {row[0]} speaks of what is not there")
    for i in (QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG):
        field = row + 1 + 3 * i
        if not are_digits(p + field[0], field[1], 18 if i == BORN else 9):
            return False
    field = row + 1 + 3 * TIMES
    if field[0] >= 0 and field[1] and not (field[1] == 1 and p[field[0]] == 48):
        return False
    for i in (UNIT_MODE, BATCH):
        field = row + 1 + 3 * i
        if field[0] >= 0 and field[1] and not (field[1] == 5 and memcmp(p + field[0], b"false", 5) == 0):
            return False
    return row[2 + 3 * TOPIC] > 0


cdef inline bint are_digits(const uint8_t* p, int64_t size, int64_t most) noexcept:
    cdef int64_t i
    if not 0 < size <= most:
        return False
    for i in range(size):
        if not 48 <= p[i] <= 57:
            return False
    return True


cdef inline int64_t number(const uint8_t* p, const int64_t* row, int field) noexcept:
    cdef int64_t i, value = 0
    p += row[1 + 3 * field]
    for i in range(row[2 + 3 * field]):
        value = value * 10 + p[i] - 48
    return value


cdef ReplyDraft draft(const int64_t* row, const uint8_t* p, bytes tail):
    cdef int64_t size = row[2 + 3 * PROPERTIES], made, total = 0
    cdef bytes kept = PyBytes_FromStringAndSize(NULL, size + 1 + len(tail))
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(kept)
    cdef ReplyDraft reply
    cdef int i
    cdef const uint8_t* client = NULL
    cdef int64_t client_size = 0
    made = unescaped(p + row[1 + 3 * PROPERTIES], size, out)
    if made < 0 or not are_plain(out, made, &client, &client_size):
        return None
    reply = ReplyDraft.__new__(ReplyDraft)
    reply.client_id = PyBytes_FromStringAndSize(<const char*>client, client_size)
    memcpy(out + made, PyBytes_AS_STRING(tail), len(tail))
    reply.properties = kept[:made + len(tail)]
    reply.frame = row[0]
    reply.topic = PyBytes_FromStringAndSize(<const char*>p + row[1 + 3 * TOPIC], row[2 + 3 * TOPIC])
    reply.queue_id = number(p, row, QUEUE_ID)
    reply.flag = number(p, row, FLAG)
    reply.sys_flag = number(p, row, SYS_FLAG) & SYS_FLAGS
    reply.born_timestamp_ms = number(p, row, BORN)
    reply.born_host = b""
    for i in range(PROPERTIES + 1):
        reply._sizes[i] = row[2 + 3 * i]
        total += row[2 + 3 * i]
    reply._fields = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*>PyBytes_AS_STRING(reply._fields)
    for i in range(PROPERTIES + 1):
        out = put_bytes(out, p + row[1 + 3 * i], row[2 + 3 * i])
    return reply


cdef int64_t unescaped(const uint8_t* p, int64_t size, uint8_t* out) noexcept:
    """The properties as they are kept, and their size; -1 if another escape than the separators is in them."""
    cdef int64_t i = 0, n = 0
    while i < size:
        if p[i] == 92:
            if size - i < 6 or memcmp(p + i, b"\\u000", 5) or not 49 <= p[i + 5] <= 50:
                return -1
            out[n] = p[i + 5] - 48
            i += 6
        else:
            out[n] = p[i]
            i += 1
        n += 1
    if not n or out[n - 1] != 2:
        out[n] = 2
        n += 1
    return n


cdef bint are_plain(const uint8_t* text, int64_t size, const uint8_t** client, int64_t* client_size) except -1:
    """Whether these are all that a reply needs, each once; and the value of REPLY_TO_CLIENT."""
    cdef const uint8_t* names[PAIRS]
    cdef int64_t[PAIRS] sizes
    cdef const uint8_t* p = text
    cdef const uint8_t* end = text + size
    cdef const uint8_t* stop
    cdef const uint8_t* split
    cdef int64_t n
    cdef int count = 0, i
    cdef bint has_key = False
    cdef bytes name
    while p < end:
        stop = <const uint8_t*>memchr(p, 2, end - p)
        split = <const uint8_t*>memchr(p, 1, stop - p)
        if count == PAIRS or split == NULL or split == p or split + 1 == stop:
            return False
        n = split - p
        for name in MORE:
            if len(name) == n and memcmp(p, PyBytes_AS_STRING(name), n) == 0:
                return False
        for name in MORE_PREFIXES:
            if len(name) <= n and memcmp(p, PyBytes_AS_STRING(name), len(name)) == 0:
                return False
        for i in range(count):
            if sizes[i] == n and memcmp(names[i], p, n) == 0:
                return False
        names[count], sizes[count] = p, n
        count += 1
        if n == 8 and memcmp(p, b"UNIQ_KEY", 8) == 0:
            has_key = True
        elif n == 15 and memcmp(p, b"REPLY_TO_CLIENT", 15) == 0:
            client[0], client_size[0] = split + 1, stop - split - 1
        p = stop + 1
    return has_key
