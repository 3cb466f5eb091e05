# cython: boundscheck=False, wraparound=False
"""Compiled twin of _tags_py: same names, same errors, same answers."""

from libc.stdint cimport int32_t, uint32_t


def java_hash(str text not None):
    cdef bytes data = text.encode("utf-16-be", "surrogatepass")
    cdef const unsigned char* p = data
    cdef Py_ssize_t i
    cdef uint32_t h = 0
    for i in range(0, len(data), 2):
        h = 31 * h + (<uint32_t>p[i] << 8 | p[i + 1])
    return <int32_t>h
