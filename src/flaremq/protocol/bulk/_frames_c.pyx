# cython: boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of _frames_py: same names, same bytes. Read that one first."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef uint8_t[256] widths  # Of a byte within a JSON string.
cdef char[32] shorts  # The letter of a control character that has one.
cdef const char* HEX = b"0123456789abcdef"


cdef void fill():
    cdef int i
    for i in range(256):
        widths[i] = 1 if i >= 0x20 else 6
    for i in range(32):
        shorts[i] = 0
    for byte, letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
        i = byte
        shorts[i] = letter[0]
        widths[i] = 2
    widths[34] = widths[92] = 2


fill()


def send_frame(tuple template not None, str properties not None, bytes body not None, tuple numbers not None):
    cdef bytes before = template[0], between = template[1], behind = template[2]
    cdef long long sys_flag = numbers[0], born_ms = numbers[1], flag = numbers[2], opaque = numbers[3]
    cdef char[96] words
    cdef char[24] last
    cdef Py_ssize_t size, i
    cdef const uint8_t* text = <const uint8_t*>PyUnicode_AsUTF8AndSize(properties, &size)
    cdef int64_t width = 0, header, body_size = PyBytes_GET_SIZE(body)
    cdef int first = snprintf(words, 96, b'%lld","g":"%lld","h":"%lld","i":"', sys_flag, born_ms, flag)
    cdef int end = snprintf(last, 24, b'%lld', opaque)
    cdef bytes frame
    cdef char* p
    for i in range(size):
        width += widths[text[i]]
    header = (PyBytes_GET_SIZE(before) + first + width + 1 + PyBytes_GET_SIZE(between) + end
              + PyBytes_GET_SIZE(behind))
    frame = PyBytes_FromStringAndSize(NULL, 8 + header + body_size)
    p = PyBytes_AS_STRING(frame)
    p = put_int(p, <uint32_t>(header + body_size + 4))
    p = put_int(p, <uint32_t>header)
    p = put(p, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
    p = put(p, words, first)
    if width == size:
        p = put(p, <const char*>text, size)
    else:
        p = put_escaped(p, text, size)
    p[0] = 34
    p = put(p + 1, PyBytes_AS_STRING(between), PyBytes_GET_SIZE(between))
    p = put(p, last, end)
    p = put(p, PyBytes_AS_STRING(behind), PyBytes_GET_SIZE(behind))
    put(p, PyBytes_AS_STRING(body), body_size)
    return frame


cdef inline char* put(char* p, const char* source, int64_t size) noexcept:
    memcpy(p, source, size)
    return p + size


cdef inline char* put_int(char* p, uint32_t number) noexcept:
    cdef int i
    for i in range(4):
        p[i] = <char>(number >> (24 - 8 * i))
    return p + 4


cdef char* put_escaped(char* p, const uint8_t* text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    cdef uint8_t byte
    for i in range(size):
        byte = text[i]
        if widths[byte] == 1:
            p[0] = <char>byte
        elif byte >= 32:
            p[0] = 92
            p[1] = <char>byte
        elif shorts[byte]:
            p[0] = 92
            p[1] = shorts[byte]
        else:
            memcpy(p, b"\\u00", 4)
            p[4] = HEX[byte >> 4]
            p[5] = HEX[byte & 15]
        p += widths[byte]
    return p
