# Part of every twin that reads fields of frames: rows come from outside of it, and may not lead it astray.


cdef int check_frames(const int64_t* f, int64_t count, int64_t size, int64_t chunks, int64_t pairs) except -1:
    cdef int64_t row
    for row in range(count):
        if (not 0 <= f[F_CHUNK] < chunks or f[F_PAIRS] < 0 or not 0 <= f[F_FIRST_PAIR] <= pairs - f[F_PAIRS]
                or f[F_BODY + 1] < 0 or not 0 <= f[F_AT] <= f[F_BODY] <= size - f[F_BODY + 1]):
            raise ValueError(f"frame {row} speaks of what is not there")
        f += F_WIDTH
    return 0
