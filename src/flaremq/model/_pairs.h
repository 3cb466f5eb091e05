/* Properties as they lie in a record: name 1 value 2 name 1 value 2 ... the last 2 may be missing.
 *
 * Names are short and are looked at byte by byte; values may be long, so memchr looks for their end.
 */
#ifndef FLAREMQ_PAIRS_H
#define FLAREMQ_PAIRS_H

#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t name, name_size, value, value_size;
} Pair;

/* The next pair with both sides that begins at `at` or behind it; 0 where none is left. */
static inline int next_pair(const uint8_t *data, int64_t *at, int64_t end, Pair *pair) {
    int64_t i = *at;
    while (i < end) {
        int64_t name = i;
        while (i < end && (uint8_t)(data[i] - 1) > 1) i++;
        if (i >= end) break;
        if (data[i++] == 2) continue; /* A name alone. */
        const uint8_t *stop = memchr(data + i, 2, (size_t)(end - i));
        int64_t value = i, value_end = stop ? stop - data : end;
        i = value_end + 1;
        if (value - 1 > name && value_end > value) {
            pair->name = name;
            pair->name_size = value - 1 - name;
            pair->value = value;
            pair->value_size = value_end - value;
            *at = i;
            return 1;
        }
    }
    *at = end;
    return 0;
}

/* Sixteen bytes at once are cheaper than a call for few, where there is room to read and to write them. */
static inline void copy_short(uint8_t *out, const uint8_t *from, int64_t size, int64_t room) {
    if (size <= 16 && room >= 16)
        memcpy(out, from, 16);
    else
        memcpy(out, from, (size_t)size);
}

#endif
