# A glance at a record, for compiled twins that copy many: where its parts lie. `glance` in _copyrows_py says it in
# Python. Needs get16, get32, get64 of model/_bytes.h, and layout and sysflag.

from libc.string cimport memchr as glance_memchr, memcmp as glance_memcmp

cdef extern from *:
    """
    /* memmem is not in every C library. */
    static inline int holds(const uint8_t *p, int64_t size, const char *part, int64_t part_size) {
        const uint8_t *end = p + size;
        while (end - p >= part_size && (p = memchr(p, part[0], (size_t)(end - p - part_size + 1)))) {
            if (memcmp(p, part, (size_t)part_size) == 0) return 1;
            p++;
        }
        return 0;
    }
    """
    bint holds(const uint8_t* p, int64_t size, const char* part, int64_t part_size) nogil

cdef int G_FIXED = layout.FIXED_SIZE, G_V4 = layout.HOST_SIZE_V4, G_V6 = layout.HOST_SIZE_V6
cdef int G_HOST_AT = layout.BORN_HOST_AT, G_BORN_V6 = sysflag.BORN_HOST_V6, G_STORE_V6 = sysflag.STORE_HOST_V6
cdef int32_t G_V1 = layout.MAGIC_V1, G_V2 = layout.MAGIC_V2


cdef struct Seen:
    const uint8_t* p
    int64_t size, flag, queue_offset, physical_offset, sys_flag, born_ms, times, prepared
    int64_t host_size, body_at, body_size, topic_at, topic_size, properties_at, properties_size


cdef bint look(Seen* seen, const uint8_t* p, int64_t room) noexcept nogil:
    """False if no record begins there, or if the lengths in it do not add up to its size."""
    cdef int64_t middle, at, wide
    cdef int32_t magic
    if room < G_FIXED:
        return False
    seen.p = p
    seen.size = get32(p)
    magic = get32(p + 4)
    if seen.size < G_FIXED or seen.size > room or (magic != G_V1 and magic != G_V2):
        return False
    seen.flag = get32(p + 16)
    seen.queue_offset = get64(p + 20)
    seen.physical_offset = get64(p + 28)
    seen.sys_flag = get32(p + 36)
    seen.born_ms = get64(p + 40)
    seen.host_size = G_V6 if seen.sys_flag & G_BORN_V6 else G_V4
    middle = G_HOST_AT + seen.host_size + 8 + (G_V6 if seen.sys_flag & G_STORE_V6 else G_V4)
    if middle + 16 > seen.size:
        return False
    seen.times = get32(p + middle)
    seen.prepared = get64(p + middle + 4)
    seen.body_size = get32(p + middle + 12)
    seen.body_at = middle + 16
    at = seen.body_at + seen.body_size
    wide = 1 if magic == G_V2 else 0
    if seen.body_size < 0 or at + 1 + wide > seen.size:
        return False
    seen.topic_size = get16(p + at) if wide else p[at]
    seen.topic_at = at + 1 + wide
    seen.properties_at = seen.topic_at + seen.topic_size + 2
    if seen.topic_size < 0 or seen.properties_at > seen.size:
        return False
    seen.properties_size = get16(p + seen.properties_at - 2)
    return seen.properties_at + seen.properties_size == seen.size


cdef inline int64_t value_of(const Seen* seen, const char* name, int64_t size, const uint8_t** value) noexcept nogil:
    """The size of a property's value; 0 without. The last of equal names counts; an empty value does not."""
    cdef const uint8_t* p = seen.p + seen.properties_at
    cdef const uint8_t* end = seen.p + seen.size
    cdef const uint8_t* stop
    cdef int64_t found = 0
    while p < end:
        stop = <const uint8_t*>glance_memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if stop - p > size + 1 and p[size] == 1 and glance_memcmp(p, name, size) == 0:
            value[0] = p + size + 1
            found = stop - value[0]
        p = stop + 1
    return found
