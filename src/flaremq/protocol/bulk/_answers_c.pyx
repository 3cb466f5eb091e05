# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _answers_py: same names, same errors, same bytes. Read that one first."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from flaremq.model import layout
from flaremq.model.columns import Draft
from flaremq.protocol import codes
from flaremq.protocol.bulk import _answers_py
from flaremq.protocol.bulk.columns import Frame, PullAnswer, Send

# The constants live in layout, codes and columns alone; these are their C copies.
cdef int V4 = layout.HOST_SIZE_V4, V6 = layout.HOST_SIZE_V6, REMARK_SIZE_MAX = _answers_py.REMARK_SIZE_MAX
cdef int JSON = codes.SerializeType.JSON, COMPACT = codes.SerializeType.ROCKETMQ
cdef int PREFIX = codes.FRAME_PREFIX_SIZE, RESPONSE = codes.RESPONSE, VERSION = codes.CURRENT_VERSION
cdef int D_WIDTH = Draft.WIDTH, D_PHYSICAL_OFFSET = Draft.PHYSICAL_OFFSET
cdef int D_QUEUE_OFFSET = Draft.QUEUE_OFFSET
cdef int S_WIDTH = Send.WIDTH, S_SERIALIZE = Send.SERIALIZE, S_OPAQUE = Send.OPAQUE, S_ONE_WAY = Send.ONE_WAY
cdef int S_CHUNK = Send.CHUNK
cdef int S_UNIQUE_KEY = Send.UNIQUE_KEY_AT, S_QUEUE_ID = Send.QUEUE_ID, S_HANDLE = Send.HANDLE_AT
cdef int A_WIDTH = PullAnswer.WIDTH, A_SERIALIZE = PullAnswer.SERIALIZE, A_OPAQUE = PullAnswer.OPAQUE
cdef int A_CODE = PullAnswer.CODE, A_SUGGEST = PullAnswer.SUGGEST_WHICH_BROKER_ID
cdef int A_NEXT = PullAnswer.NEXT_BEGIN_OFFSET, A_MIN = PullAnswer.MIN_OFFSET, A_MAX = PullAnswer.MAX_OFFSET
cdef int A_TOPIC_SYS_FLAG = PullAnswer.TOPIC_SYS_FLAG, A_GROUP_SYS_FLAG = PullAnswer.GROUP_SYS_FLAG
cdef int A_BODY_SIZE = PullAnswer.BODY_SIZE
cdef int F_WIDTH = Frame.WIDTH, F_CHUNK = Frame.CHUNK, F_FLAG = Frame.FLAG, F_OPAQUE = Frame.OPAQUE
cdef int F_SERIALIZE = Frame.SERIALIZE, ONE_WAY = codes.ONE_WAY
cdef bytes YES_BEFORE = _answers_py._YES[0], YES_BEHIND = _answers_py._YES[1]

cdef enum:
    ROOM = 512  # More than any answer takes, but for host, region, unique key and remark.


cdef extern from "model/_bytes.h":
    void put32(uint8_t* p, int32_t value) nogil
    void put16(uint8_t* p, int16_t value) nogil

cdef extern from "protocol/bulk/_scan.h":
    uint8_t* put_decimal(uint8_t* p, int64_t value) nogil
    uint8_t* put_hex64(uint8_t* p, uint64_t value) nogil
    uint8_t* put_bytes(uint8_t* p, const void* source, int64_t size) nogil


cdef inline uint8_t* put_text(uint8_t* p, const char* text) noexcept:
    return put_bytes(p, text, strlen(text))


cdef inline uint8_t* end_json(uint8_t* p, int64_t opaque, const char* remark) noexcept:
    p = put_text(p, b'"},"flag":1,"language":"JAVA","opaque":')
    p = put_decimal(p, opaque)
    if remark[0]:
        p = put_text(p, b',"remark":"')
        p = put_text(p, remark)
        p = put_text(p, b'"')
    p = put_text(p, b',"serializeTypeCurrentRPC":"JSON","version":')
    p = put_decimal(p, VERSION)
    return put_text(p, b"}")


cdef inline uint8_t* begin_compact(uint8_t* p, int64_t code, int64_t opaque, const char* remark) noexcept:
    """As far as the length of the fields, which is put there when they are."""
    put16(p, <int16_t>code)
    p[2] = 0
    put16(p + 3, <int16_t>VERSION)
    put32(p + 5, <int32_t>opaque)
    put32(p + 9, RESPONSE)
    put32(p + 13, <int32_t>strlen(remark))
    return put_text(p + 17, remark) + 4


cdef inline uint8_t* put_field(uint8_t* p, const char* name, const void* value, int64_t size) noexcept:
    put16(p, <int16_t>strlen(name))
    p = put_text(p + 2, name)
    put32(p, <int32_t>size)
    return put_bytes(p + 4, value, size)


cdef inline uint8_t* put_number_field(uint8_t* p, const char* name, int64_t value) noexcept:
    cdef uint8_t[24] digits
    return put_field(p, name, digits, put_decimal(digits, value) - digits)


cdef inline void put_prefix(uint8_t* start, int serialize, const uint8_t* end, int64_t body_size) noexcept:
    cdef int64_t header_size = end - start - PREFIX
    put32(start, <int32_t>(PREFIX - 4 + header_size + body_size))
    put32(start + 4, <int32_t>header_size)
    start[4] = <uint8_t>serialize


cdef bint is_safe(bytes text):
    cdef uint8_t c
    for c in text:
        if c < 0x20 or c > 0x7E or c == c'"' or c == c'\\':
            return False
    return True


cdef class SendAnswers:
    cdef bytes _host, _middle, _tail

    def __init__(self, bytes store_host not None, bytes region not None=b"DefaultRegion", bint trace_on=True):
        if len(store_host) not in (V4, V6):
            raise ValueError(f"store host of {len(store_host)} bytes: expected 8 or 20")
        if not region or not is_safe(region):
            raise ValueError(f"region {region!r}: expected ASCII that needs no escape")
        trace = b"true" if trace_on else b"false"
        self._host = store_host.hex().upper().encode()
        self._middle = b'","TRACE_ON":"%b","MSG_REGION":"%b","queueOffset":"' % (trace, region)
        self._tail = b"".join(
            len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value
            for name, value in ((b"TRACE_ON", trace), (b"MSG_REGION", region)))

    def encode(self, drafts not None, sends not None, heads not None, int64_t code=0):
        cdef Py_buffer[3] held
        cdef int taken = 0
        cdef int64_t first = 0, last, count, chunk
        cdef const int64_t* s
        cdef bytes frames
        cdef list answers = []
        try:
            for source in (drafts, sends, heads):
                PyObject_GetBuffer(source, &held[taken], PyBUF_SIMPLE)
                taken += 1
            count = held[1].len // (8 * S_WIDTH)
            if held[0].len // (8 * D_WIDTH) < count:
                raise ValueError(f"{held[0].len // (8 * D_WIDTH)} drafts for {count} sends")
            s = <const int64_t*>held[1].buf
            while first < count:
                chunk, last = s[first * S_WIDTH + S_CHUNK], first + 1
                while last < count and s[last * S_WIDTH + S_CHUNK] == chunk:
                    last += 1
                frames = self.written(<const int64_t*>held[0].buf, s, first, last, &held[2], code)
                if frames:
                    answers.append((chunk, frames))
                first = last
            return answers
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&held[taken])

    cdef bytes written(self, const int64_t* drafts, const int64_t* sends, int64_t first, int64_t last,
                       Py_buffer* heads, int64_t code):
        cdef int64_t row, at, size, room = 0
        cdef int column
        cdef int64_t fixed = ROOM + len(self._host) + len(self._middle) + len(self._tail)
        cdef const int64_t* s
        cdef uint8_t* out
        cdef uint8_t* p
        for row in range(first, last):
            s = sends + row * S_WIDTH
            for column in (S_UNIQUE_KEY, S_HANDLE):
                at, size = s[column], s[column + 1]
                if not 0 <= at <= heads.len or not 0 <= size <= heads.len - at:
                    raise ValueError(f"row {row}: bytes {at}+{size} of a buffer of {heads.len}")
                room += size
            room += fixed
        out = p = <uint8_t*>malloc(room + 1)
        if out == NULL:
            raise MemoryError()
        for row in range(first, last):
            s = sends + row * S_WIDTH
            if not s[S_ONE_WAY]:
                p = self.write(p, drafts + row * D_WIDTH, s, <const uint8_t*>heads.buf, code)
        try:
            return PyBytes_FromStringAndSize(<const char*>out, p - out)
        finally:
            free(out)

    cdef uint8_t* write(self, uint8_t* start, const int64_t* d, const int64_t* s, const uint8_t* heads,
                        int64_t code) noexcept:
        cdef uint8_t* p = start + PREFIX
        cdef uint8_t* fields
        cdef const uint8_t* key = heads + s[S_UNIQUE_KEY]
        cdef const uint8_t* handle = heads + s[S_HANDLE]
        cdef int64_t key_size = s[S_UNIQUE_KEY + 1], handle_size = s[S_HANDLE + 1]
        if s[S_SERIALIZE] == JSON:
            p = put_text(p, b'{"code":')
            p = put_decimal(p, code)
            p = put_text(p, b',"extFields":{"queueId":"')
            p = put_decimal(p, s[S_QUEUE_ID])
            if key_size:
                p = put_text(p, b'","transactionId":"')
                p = put_bytes(p, key, key_size)
            p = put_text(p, b'","msgId":"')
            p = put_bytes(p, <const char*>self._host, len(self._host))
            p = put_hex64(p, <uint64_t>d[D_PHYSICAL_OFFSET])
            p = put_bytes(p, <const char*>self._middle, len(self._middle))
            p = put_decimal(p, d[D_QUEUE_OFFSET])
            if handle_size:
                p = put_text(p, b'","recallHandle":"')
                p = put_bytes(p, handle, handle_size)
            p = end_json(p, s[S_OPAQUE], b"")
            put_prefix(start, JSON, p, 0)
            return p
        fields = begin_compact(p, code, s[S_OPAQUE], b"")
        p = put_field(fields, b"msgId", <const char*>self._host, len(self._host))
        put32(p - len(self._host) - 4, <int32_t>(len(self._host) + 16))
        p = put_hex64(p, <uint64_t>d[D_PHYSICAL_OFFSET])
        p = put_number_field(p, b"queueId", s[S_QUEUE_ID])
        p = put_number_field(p, b"queueOffset", d[D_QUEUE_OFFSET])
        if key_size:
            p = put_field(p, b"transactionId", key, key_size)
        p = put_bytes(p, <const char*>self._tail, len(self._tail))
        if handle_size:
            p = put_field(p, b"recallHandle", handle, handle_size)
        put32(fields - 4, <int32_t>(p - fields))
        put_prefix(start, COMPACT, p, 0)
        return p


cdef inline uint8_t* put_number_member(uint8_t* p, const char* name, int64_t value) noexcept:
    return put_decimal(put_text(p, name), value)


def encode_pull_header(answer not None, bytes remark not None=b"FOUND"):
    cdef uint8_t[2 * ROOM] out
    cdef uint8_t* p = out + PREFIX
    cdef uint8_t* fields
    cdef Py_buffer held
    cdef const int64_t* a
    cdef const char* text = remark
    if len(remark) > REMARK_SIZE_MAX or not is_safe(remark):
        raise ValueError(f"remark {remark!r}: expected a little ASCII that needs no escape")
    PyObject_GetBuffer(answer, &held, PyBUF_SIMPLE)
    try:
        if held.len != 8 * A_WIDTH:
            raise ValueError(f"an answer of {held.len // 8} columns, expected {A_WIDTH}")
        a = <const int64_t*>held.buf
        if a[A_SERIALIZE] == JSON:
            p = put_number_member(p, b'{"code":', a[A_CODE])
            p = put_number_member(p, b',"extFields":{"suggestWhichBrokerId":"', a[A_SUGGEST])
            p = put_number_member(p, b'","groupSysFlag":"', a[A_GROUP_SYS_FLAG])
            p = put_number_member(p, b'","nextBeginOffset":"', a[A_NEXT])
            p = put_number_member(p, b'","maxOffset":"', a[A_MAX])
            p = put_number_member(p, b'","minOffset":"', a[A_MIN])
            p = put_number_member(p, b'","topicSysFlag":"', a[A_TOPIC_SYS_FLAG])
            p = end_json(p, a[A_OPAQUE], text)
            put_prefix(out, JSON, p, a[A_BODY_SIZE])
        else:
            fields = p = begin_compact(p, a[A_CODE], a[A_OPAQUE], text)
            p = put_number_field(p, b"suggestWhichBrokerId", a[A_SUGGEST])
            p = put_number_field(p, b"nextBeginOffset", a[A_NEXT])
            p = put_number_field(p, b"minOffset", a[A_MIN])
            p = put_number_field(p, b"maxOffset", a[A_MAX])
            p = put_number_field(p, b"topicSysFlag", a[A_TOPIC_SYS_FLAG])
            p = put_number_field(p, b"groupSysFlag", a[A_GROUP_SYS_FLAG])
            put32(fields - 4, <int32_t>(p - fields))
            put_prefix(out, COMPACT, p, a[A_BODY_SIZE])
    finally:
        PyBuffer_Release(&held)
    return PyBytes_FromStringAndSize(<const char*>out, p - out)


def encode_answers(frames not None, rows not None, int code=0, bytes remark not None=b""):
    cdef Py_buffer held
    cdef int64_t count, room = PREFIX + len(YES_BEFORE) + len(YES_BEHIND) + 20, row, chunk, last = -1
    cdef const int64_t* f
    cdef uint8_t* out
    cdef uint8_t* p
    cdef list answers = []
    if code or remark:
        return _answers_py.encode_answers(frames, rows, code, remark)
    PyObject_GetBuffer(frames, &held, PyBUF_SIMPLE)
    out = <uint8_t*>malloc(max(1, room * len(rows)))
    try:
        if out == NULL:
            raise MemoryError
        count, p = held.len // (8 * F_WIDTH), out
        for row in rows:
            if not 0 <= row < count:
                raise IndexError(row)
            f = <const int64_t*>held.buf + row * F_WIDTH
            if f[F_CHUNK] != last and p != out:
                answers.append((last, PyBytes_FromStringAndSize(<char*>out, p - out)))
                p = out
            last = f[F_CHUNK]
            if f[F_FLAG] & ONE_WAY:
                continue
            if f[F_SERIALIZE] != JSON:
                return _answers_py.encode_answers(frames, rows)
            p = put_yes(p, f[F_OPAQUE])
        if p != out:
            answers.append((last, PyBytes_FromStringAndSize(<char*>out, p - out)))
    finally:
        free(out)
        PyBuffer_Release(&held)
    return answers


cdef inline uint8_t* put_yes(uint8_t* out, int64_t opaque) noexcept:
    """An answer that says nothing but yes."""
    cdef uint8_t* p = put_bytes(out + PREFIX, <const char*>YES_BEFORE, len(YES_BEFORE))
    p = put_decimal(p, opaque)
    p = put_bytes(p, <const char*>YES_BEHIND, len(YES_BEHIND))
    put32(out, p - out - 4)
    put32(out + 4, p - out - PREFIX)
    return p
