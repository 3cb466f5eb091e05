# cython: wraparound=False
"""Compiled twin of _inlet_py: same names, same behaviour. Read that one first."""

from flaremq.remoting import _inlet_py

cdef Py_ssize_t READ_MAX = _inlet_py._READ_MAX, ROOM_MIN = _inlet_py._ROOM_MIN
cdef Py_ssize_t SPARE_SIZE = _inlet_py._SPARE_SIZE


cdef class Reads:
    cdef public object view, spare, first, full
    cdef public list sources, ends, larges
    cdef public Py_ssize_t size, at
    cdef public long long number
    cdef public bint waiting

    def __init__(self, Py_ssize_t size, first, full):
        self.size = size
        self.view = memoryview(bytearray(size))
        self.spare = memoryview(bytearray(SPARE_SIZE))
        self.first, self.full = first, full
        self.at, self.number = 0, 1
        self.sources, self.ends, self.larges = [], [], []
        self.waiting = False

    def take(self):
        taken = self.sources, self.ends
        self.sources, self.ends = [], []
        self.number += 1
        return taken

    def take_larges(self):
        larges, self.larges = self.larges, []
        self.waiting = False
        return larges

    def done(self):
        self.at = 0

    cpdef came(self):
        if not self.waiting:
            self.waiting = True
            self.first()


cdef class Inlet:
    cdef public Reads reads
    cdef public object source, large
    cdef public bytes rest
    cdef public bint shut, spared
    cdef public long long count, turn
    cdef object __weakref__

    def __init__(self, Reads reads not None, source, bint shut=False):
        self.reads, self.source, self.shut = reads, source, shut
        self.count = self.turn = 0
        self.rest, self.large, self.spared = b"", None, False

    def get_buffer(self, sizehint):
        self.spared = self.shut or not self._fits()
        return self.reads.spare if self.spared else self._room()

    def buffer_updated(self, Py_ssize_t nbytes):
        self.count += 1
        if not self.spared:
            self.delivered(nbytes)
        elif self.shut:
            self.source.entered(bytes(self.reads.spare[:nbytes]))
        else:
            self.deliver(bytes(self.reads.spare[:nbytes]))

    cpdef deliver(self, bytes data):
        cdef Py_ssize_t at = 0, size
        while at < len(data):
            if not self._fits():
                self.reads.full()
            room = self._room()
            size = min(<Py_ssize_t>len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            self.delivered(size)

    cdef bint _fits(self):
        cdef Reads reads = self.reads
        if self.large is not None:
            return True
        if reads.size - reads.at < ROOM_MIN + len(self.rest):
            return False
        return self.turn != reads.number or reads.sources[len(reads.sources) - 1] is self.source

    cdef object _room(self):
        cdef Reads reads = self.reads
        cdef Py_ssize_t at = reads.at, held = len(self.rest)
        if self.large is not None:
            return self.large.room()
        if held:
            reads.view[at : at + held] = self.rest
            at += held
        return reads.view[at : at + READ_MAX]

    cpdef delivered(self, Py_ssize_t nbytes):
        cdef Reads reads = self.reads
        cdef object large = self.large
        if large is not None:
            large.filled += nbytes
            if large.filled == large.size:
                self.large = None
                reads.larges.append((self.source, large))
                reads.came()
            return
        reads.at += len(self.rest) + nbytes
        self.rest = b""
        if self.turn == reads.number:
            reads.ends[len(reads.ends) - 1] = reads.at
        else:
            self.turn = reads.number
            reads.sources.append(self.source)
            reads.ends.append(reads.at)
        if not reads.waiting:
            reads.came()
