/* The value of PRODUCER_SEQ: <producer id>:<sequence>. */

#include <stdint.h>
#include <string.h>

enum { PRODUCER_ID_MAX = 64, SEQUENCE_DIGITS_MAX = 19 };

static inline int is_id_char(uint8_t c) {
    uint8_t letter = c | 0x20;
    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/* The sequence, and the size of the id before it; -1 if it is not written as it must be. */
static inline int64_t sequence_of(const uint8_t *p, int64_t size, int64_t *id_size) {
    int64_t at = 0;
    while (at < size && at <= PRODUCER_ID_MAX && is_id_char(p[at])) at++;
    int64_t digits = size - at - 1;
    if (at < 1 || at > PRODUCER_ID_MAX || digits < 1 || digits > SEQUENCE_DIGITS_MAX || p[at] != ':') return -1;
    *id_size = at++;
    if (p[at] == '0' && digits > 1) return -1;
    uint64_t value = 0;
    for (; at < size; at++) {
        if (p[at] < '0' || p[at] > '9') return -1;
        value = value * 10 + (p[at] - '0');
    }
    return value > INT64_MAX ? -1 : (int64_t)value;
}

/* The value of a property, and its size; NULL if it is not there. An empty one does not count. */
static inline const uint8_t *property_of(const uint8_t *p, int64_t size, const char *name, int64_t name_size,
                                         int64_t *value_size) {
    const uint8_t *end = p + size;
    while (end - p > name_size) {
        const uint8_t *stop = memchr(p, 2, end - p);
        if (stop == NULL) stop = end;
        if (stop - p > name_size + 1 && p[name_size] == 1 && memcmp(p, name, name_size) == 0) {
            *value_size = stop - p - name_size - 1;
            return p + name_size + 1;
        }
        if (stop == end) break;
        p = stop + 1;
    }
    return NULL;
}
