# Part of _sends_c: the properties string of a send, copied and understood in one go.

cdef struct Properties:
    # What was found in a properties string.
    int64_t size
    int64_t unique_key_at
    int64_t unique_key_size
    int64_t wait
    int64_t producer_at
    int64_t producer_size
    int64_t sequence  # -1: none.
    uint64_t seen  # A bit for each name; two names may have the same.
    int64_t kind
    int64_t value
    bint claims
    bint has_group


cdef bint read_properties(Tables* t, const int64_t* place, Properties* into) noexcept:
    """Copy a properties string to the end of `heads`, without escapes and with an end, if it is ordinary."""
    cdef const uint8_t* p = t.data + place[2]
    cdef const uint8_t* end = p + place[3]
    cdef uint8_t* begin = t.heads + t.heads_used
    cdef uint8_t* out = begin
    cdef uint8_t* name = begin
    cdef uint8_t* value = NULL  # NULL while a name is read.
    cdef uint8_t* names[PROPERTY_COUNT_MAX]
    cdef int64_t[PROPERTY_COUNT_MAX] sizes
    cdef int pairs = 0
    cdef int32_t code
    cdef bint escaped = place[4] & KIND_ESCAPED, wide = place[4] & KIND_WIDE
    into.unique_key_at = into.unique_key_size = 0
    into.wait = 1
    into.producer_at = into.producer_size = 0
    into.sequence = -1
    into.seen = 0
    into.kind = into.value = 0
    into.claims = into.has_group = False
    if place[4] & KIND_BARE:
        return False
    while True:
        p = copy_until(p, end, c'\\' if escaped else 1, c'\\' if escaped else 2, &out)
        if p == end:
            if value == NULL and out == name:
                break
            code = 2  # The last pair may lack its end.
        elif escaped:
            code = unescape(&p, end)
        else:
            code = p[0]
            p += 1
        if code == 2:
            if value == NULL or value == out:
                return False
            sizes[pairs] = value - 1 - name
            names[pairs] = name
            if not note_property(names, sizes, pairs, value, out - value, begin, into):
                return False
            pairs += 1
            out[0] = 2
            out += 1
            name = out
            value = NULL
            if p < end and pairs == PROPERTY_COUNT_MAX:
                return False
        elif code == 1 and value == NULL:
            if out == name:
                return False
            out[0] = 1
            out += 1
            value = out
        elif code < 0:
            return False
        else:
            wide |= code >= 0x80
            out = put_utf8(out, code)
    into.size = out - begin
    if into.size + t.tail_size > PROPERTIES_MAX or (wide and not utf8_valid(begin, into.size)):
        return False
    if into.kind and (into.claims or (into.kind == K_PREPARED and not into.has_group)):
        return False
    return into.unique_key_size > 0


cdef bint note_property(uint8_t** names, const int64_t* sizes, int n, const uint8_t* value, int64_t value_size,
                        const uint8_t* begin, Properties* into) noexcept:
    """Whether property n is one that a broker just stores, and comes for the first time."""
    cdef const uint8_t* name = names[n]
    cdef int64_t size = sizes[n], i
    cdef uint64_t bit = <uint64_t>1 << ((size * 8 + name[0] + 3 * name[size - 1]) & 63)
    if into.seen & bit:  # Perhaps: many names share a bit.
        for i in range(n):
            if sizes[i] == size and memcmp(names[i], name, size) == 0:
                return False
    into.seen |= bit
    if size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        if not is_safe_text(value, value_size):
            return False
        into.unique_key_at = value - begin
        into.unique_key_size = value_size
        return True
    if size == 4 and memcmp(name, b"WAIT", 4) == 0:
        into.wait = value_size == 4 and memcmp(value, b"true", 4) == 0
        return into.wait or (value_size == 5 and memcmp(value, b"false", 5) == 0)
    if wish_of(name, size):
        return note_wish(wish_of(name, size), value, value_size, into)
    if size == 6 and memcmp(name, b"PGROUP", 6) == 0:
        into.has_group = value[0] != c' ' and is_safe_text(value, value_size)
    elif is_transaction_id(name, size):
        into.claims = True
    if size == 12 and memcmp(name, b"PRODUCER_SEQ", 12) == 0:
        into.producer_at = value - begin
        into.sequence = sequence_of(value, value_size, &into.producer_size)
        return into.sequence >= 0
    return not is_plain_property(name, size)


cdef bint note_wish(int wish, const uint8_t* value, int64_t size, Properties* into) noexcept:
    """Whether it is the only wish, and one that this lane understands."""
    if into.kind:
        return False
    if wish == 5:
        into.kind = K_PREPARED
        return size == 4 and memcmp(value, b"true", 4) == 0
    into.kind = K_LEVEL if wish == 1 else K_MOMENT if wish == 4 else K_AFTER
    into.value = only_digits(value, size, 2 if wish == 1 else 15)
    if into.value < 0 or (wish == 1 and value[0] == c'0'):
        return False
    if wish == 2:
        into.value *= 1000
    return True
