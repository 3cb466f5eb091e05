# Names of ext fields, found without making strings of them. Included by twins that know a few names and define
# NAMES, how many these are; `fill_names` takes their table from the Python twin.

cdef struct Name:
    int64_t size
    int field
    char[24] text

cdef Name[NAMES] names


cdef int fill_names(dict known) except -1:
    cdef bytes text
    assert len(known) == NAMES
    for i, (text, field) in enumerate(known.items()):
        names[<int>i].size = len(text)
        names[<int>i].field = field
        memcpy(names[<int>i].text, <const char*>text, len(text))
    return 0


cdef inline int field_of(const uint8_t* name, int64_t size) noexcept:
    """The number of a field by its name; -1 for one that is not known."""
    cdef int i
    for i in range(NAMES):
        if names[i].size == size and memcmp(names[i].text, name, size) == 0:
            return names[i].field
    return -1


cdef extern from "protocol/bulk/_scan.h":
    int KIND_WIDE
    bint pair_within(const int64_t* pair, uint64_t* last, uint64_t end) nogil
    bint text_number(const uint8_t* p, int64_t size, int bits, int64_t* value) nogil
    bint utf8_valid(const uint8_t* p, int64_t size) nogil
