/* Strings of JSON, numbers as text, UTF-8: what the compiled twins of the protocol have in common.
 *
 * Every reader takes the place where it must stop and looks at no byte from there on.
 */
#ifndef FLAREMQ_SCAN_H
#define FLAREMQ_SCAN_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The same bits as columns.Kind. */
#define KIND_ESCAPED 1
#define KIND_BARE 2
#define KIND_WIDE 4

static inline const uint8_t *scan_blank(const uint8_t *p, const uint8_t *end) {
    while (p < end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* Whether an odd number of backslashes lies before p. */
static inline int is_escaped(const uint8_t *begin, const uint8_t *p) {
    const uint8_t *q = p;
    while (q > begin && q[-1] == '\\') q--;
    return (p - q) & 1;
}

static const uint8_t *scan_string_slowly(const uint8_t *p, const uint8_t *end, int *kind) {
    const uint8_t *begin = p;
    int control = 0, slash = 0, wide = 0;
#if defined(__SSE2__)
    const __m128i quotes = _mm_set1_epi8('"'), slashes = _mm_set1_epi8('\\'), controls = _mm_set1_epi8(0x1f);
    while (end - p >= 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        int stop = _mm_movemask_epi8(_mm_cmpeq_epi8(x, quotes));
        int before = stop ? (stop & -stop) - 1 : 0xFFFF; /* The bits below the lowest one. */
        control |= _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(x, controls), x)) & before;
        slash |= _mm_movemask_epi8(_mm_cmpeq_epi8(x, slashes)) & before;
        wide |= _mm_movemask_epi8(x) & before;
        if (stop) {
            p += __builtin_ctz((unsigned)stop);
            if (!slash || !is_escaped(begin, p)) goto found;
            p++;
            continue;
        }
        p += 16;
        __m128i any_control = _mm_setzero_si128(), any_slash = any_control, any_wide = any_control;
        for (; end - p >= 32; p += 32) { /* A long one: as long as there is no quote, nothing is looked at. */
            __m128i y = _mm_loadu_si128((const __m128i *)p), z = _mm_loadu_si128((const __m128i *)(p + 16));
            if (_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(y, quotes), _mm_cmpeq_epi8(z, quotes)))) break;
            __m128i least = _mm_min_epu8(y, z);
            any_control = _mm_or_si128(any_control, _mm_cmpeq_epi8(_mm_min_epu8(least, controls), least));
            any_slash = _mm_or_si128(any_slash, _mm_or_si128(_mm_cmpeq_epi8(y, slashes), _mm_cmpeq_epi8(z, slashes)));
            any_wide = _mm_or_si128(any_wide, _mm_or_si128(y, z));
        }
        control |= _mm_movemask_epi8(any_control);
        slash |= _mm_movemask_epi8(any_slash);
        wide |= _mm_movemask_epi8(any_wide);
    }
#endif
    for (;; p++) {
        if (p >= end) return NULL;
        if (*p == '"' && !(slash && is_escaped(begin, p))) goto found;
        control |= *p < 0x20;
        slash |= *p == '\\';
        wide |= *p & 0x80;
    }
found:
    *kind = (slash ? KIND_ESCAPED : 0) | (wide ? KIND_WIDE : 0);
    return control ? NULL : p;
}

/* From behind the opening quote to the closing one; NULL if there is none, or a control character before. */
static inline const uint8_t *scan_string(const uint8_t *p, const uint8_t *end, int *kind) {
#if defined(__SSE2__)
    if (end - p >= 16) { /* Most are short and plain. As signed numbers, what is not ASCII is below the blank. */
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        int stop = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')));
        int special = _mm_movemask_epi8(
            _mm_or_si128(_mm_cmplt_epi8(x, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))));
        if (stop && !(special & (stop ^ (stop - 1)))) {
            *kind = 0;
            return p + __builtin_ctz((unsigned)stop);
        }
    }
#endif
    return scan_string_slowly(p, end, kind);
}

static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* Behind a number without leading zeros, of as many digits at most; NULL if there is none. */
static inline const uint8_t *scan_number(const uint8_t *p, const uint8_t *end, int digits_max, int64_t *value) {
    int negative = p < end && *p == '-';
    uint64_t sum = 0;
    p += negative;
    if (p >= end || !is_digit(*p) || (*p == '0' && negative)) return NULL;
    if (*p == '0') {
        *value = 0;
        return p + 1;
    }
    for (int n = 0; p < end && is_digit(*p) && n < digits_max; n++, p++) sum = 10 * sum + (uint64_t)(*p - '0');
    *value = (int64_t)(negative ? 0 - sum : sum);
    return p;
}

/* Behind a value that is no string: a number of up to 19 digits, true or false; NULL if there is none. */
static inline const uint8_t *scan_bare(const uint8_t *p, const uint8_t *end) {
    int64_t unused;
    if (end - p >= 4 && memcmp(p, "true", 4) == 0) return p + 4;
    if (end - p >= 5 && memcmp(p, "false", 5) == 0) return p + 5;
    return scan_number(p, end, 19, &unused);
}

#define SKIPPED(p, end, text) ((end) - (p) >= (long)sizeof(text) - 1 && memcmp(p, text, sizeof(text) - 1) == 0)
#define SKIP(p, end, text) \
    do { \
        if (!SKIPPED(p, end, text)) return 0; \
        p += sizeof(text) - 1; \
    } while (0)

/* A shortcut: the rest of a header, behind the ext fields, as Java writes it. Whether it was that. */
static inline int scan_java_tail(const uint8_t *p, const uint8_t *end, int64_t *flag, int64_t *opaque, int64_t *version) {
    SKIP(p, end, ",\"flag\":");
    if (!(p = scan_number(p, end, 10, flag))) return 0;
    SKIP(p, end, ",\"language\":\"JAVA\",\"opaque\":");
    if (!(p = scan_number(p, end, 10, opaque))) return 0;
    SKIP(p, end, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    if (!(p = scan_number(p, end, 10, version))) return 0;
    return end - p == 1 && *p == '}' && *flag == (int32_t)*flag && *opaque == (int32_t)*opaque &&
           *version == (int32_t)*version;
}

/* A shortcut: whether here begins a field that has a letter for a name, and a string for a value. */
static inline int is_letter_field(const uint8_t *p, const uint8_t *end) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word; /* Of "x":" the bytes 0, 2, 3 and 4 are known. */
    if (end - p < 8) return 0;
    memcpy(&word, p, 8);
    return (word & 0xFFFFFF00FFu) == 0x223A220022u && (uint8_t)(p[1] - 'a') < 26;
#else
    return end - p >= 5 && p[0] == '"' && (uint8_t)(p[1] - 'a') < 26 && p[2] == '"' && p[3] == ':' && p[4] == '"';
#endif
}

/* A shortcut for what mostly stands between two fields. */
static inline int is_next_field(const uint8_t *p, const uint8_t *end) {
    return end - p >= 2 && p[0] == ',' && p[1] == '"';
}

/* Whether a text is a number of up to 18 digits that fits into so many bits. */
static inline int text_number(const uint8_t *p, int64_t size, int bits, int64_t *value) {
    const uint8_t *end = p + size;
    if (size == 1 && is_digit(*p)) { /* Most are that small. */
        *value = *p - '0';
        return 1;
    }
    int negative = size > 0 && *p == '-';
    int64_t sum = 0;
    p += negative;
    if (p == end || end - p > 18) return 0;
    for (; p < end; p++) {
        if (!is_digit(*p)) return 0;
        sum = 10 * sum + (*p - '0');
    }
    if (negative) sum = -sum;
    if (bits == 32 && sum != (int32_t)sum) return 0;
    *value = sum;
    return 1;
}

static inline int is_tail(uint8_t c) { return (c & 0xC0) == 0x80; }

/* Whether bytes are UTF-8 as Python's strict decoder wants it: shortest forms, no surrogates. */
static inline int utf8_valid(const uint8_t *p, int64_t size) {
    const uint8_t *end = p + size;
    while (p < end) {
        uint8_t c = *p;
        if (c < 0x80) {
            p++;
        } else if (c >= 0xC2 && c <= 0xDF) {
            if (end - p < 2 || !is_tail(p[1])) return 0;
            p += 2;
        } else if ((c & 0xF0) == 0xE0) {
            if (end - p < 3 || !is_tail(p[1]) || !is_tail(p[2])) return 0;
            if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return 0;
            p += 3;
        } else if (c >= 0xF0 && c <= 0xF4) {
            if (end - p < 4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3])) return 0;
            if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return 0;
            p += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

/* Whether a field lies in its header behind the one before, as a row of Pair tells it; moves on behind it. A sum
 * that wraps around is less than what was added to, so it is found as well. */
static inline int pair_within(const int64_t *pair, uint64_t *last, uint64_t end) {
    uint64_t name = (uint64_t)pair[0], name_end = name + (uint64_t)pair[1];
    uint64_t value = (uint64_t)pair[2], value_end = value + (uint64_t)pair[3];
    int wrong = (name < *last) | (name_end < name) | (value < name_end) | (value_end < value) | (value_end > end);
    *last = value_end;
    return !wrong;
}

/* Puts each field that has one of the first letters for a name into its place. 0 if one comes twice, or one with
 * another name says something; -1 if a row speaks of what is not there. */
static inline int gather_letters(const uint8_t *data, int64_t *pair, int64_t count, int width, int letters,
                                 uint64_t at, uint64_t end, int64_t **found) {
    for (; count > 0; count--, pair += width) {
        if (!pair_within(pair, &at, end)) return -1;
        unsigned number = pair[1] == 1 ? (unsigned)data[pair[0]] - 'a' : (unsigned)letters;
        if (number < (unsigned)letters) {
            if (found[number]) return 0;
            found[number] = pair;
        } else if (pair[3]) {
            return 0;
        }
    }
    return 1;
}

/* Copies until one of two bytes, and gives the place of it in the source, or its end. Up to 15 bytes more than
 * are copied may be written behind them: the target has that much room. */
static inline const uint8_t *copy_until(const uint8_t *p, const uint8_t *end, uint8_t a, uint8_t b, uint8_t **out) {
    uint8_t *to = *out;
#if defined(__SSE2__)
    const __m128i as = _mm_set1_epi8((char)a), bs = _mm_set1_epi8((char)b);
    while (end - p >= 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        _mm_storeu_si128((__m128i *)to, x);
        unsigned stop = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(x, as), _mm_cmpeq_epi8(x, bs)));
        if (stop) {
            int n = __builtin_ctz(stop);
            *out = to + n;
            return p + n;
        }
        p += 16, to += 16;
    }
#endif
    while (p < end && *p != a && *p != b) *to++ = *p++;
    *out = to;
    return p;
}

/* Whether JSON would write the text as it is, and in ASCII. */
static inline int is_safe_text(const uint8_t *p, int64_t size) {
    const uint8_t *end = p + size;
#if defined(__SSE2__)
    const __m128i quotes = _mm_set1_epi8('"'), slashes = _mm_set1_epi8('\\'), blank = _mm_set1_epi8(' ');
    const __m128i last = _mm_set1_epi8('~');
    for (; end - p >= 16; p += 16) { /* As signed numbers, what is not ASCII is below the blank. */
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        __m128i low = _mm_cmplt_epi8(x, blank), high = _mm_cmpgt_epi8(x, last);
        __m128i special = _mm_or_si128(_mm_cmpeq_epi8(x, quotes), _mm_cmpeq_epi8(x, slashes));
        if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(low, high), special))) return 0;
    }
#endif
    for (; p < end; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\') return 0;
    return 1;
}

#define IS(text) (size == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)
#define BEGINS(text) (size >= (int64_t)sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)

/* _sends_py.PLAIN_PROPERTIES and PLAIN_PREFIXES; a test holds them together. The name is not empty. */
static inline int is_plain_property(const uint8_t *name, int64_t size) {
    switch (name[0]) {
    case 'T':
        return BEGINS("TIMER_") || IS("TRAN_MSG") || IS("TRACE_ON") || IS("TRANSACTION_CHECK_TIMES")
               || IS("TRAN_PREPARED_QUEUE_OFFSET");
    case 'I': return BEGINS("INNER_");
    case '_': return BEGINS("__RMQ.TRANSIENT.") || IS("__CRC32#");
    case 'D': return IS("DELAY");
    case 'P': return IS("POP_CK") || IS("POP_CK_OFFSET");
    case 'R': return IS("REAL_TOPIC") || IS("REAL_QID");
    case '1': return IS("1ST_POP_TIME");
    case 'C': return IS("CLUSTER");
    case 'M': return IS("MSG_REGION");
    default: return 0;
    }
}

/* Which of _sends_py._WISHES a property is: its place there from 1 on; 0 if it is none. */
static inline int wish_of(const uint8_t *name, int64_t size) {
    if (name[0] == 'D') return IS("DELAY") ? 1 : 0;
    if (name[0] != 'T') return 0;
    if (IS("TIMER_DELAY_SEC")) return 2;
    if (IS("TIMER_DELAY_MS")) return 3;
    if (IS("TIMER_DELIVER_MS")) return 4;
    return IS("TRAN_MSG") ? 5 : 0;
}

/* _sends_py._TRANSACTION_ID. */
static inline int is_transaction_id(const uint8_t *name, int64_t size) {
    return name[0] == '_' && IS("__transactionId__");
}

/* The number that one to `size_max` digits and nothing else make, or -1. */
static inline int64_t only_digits(const uint8_t *p, int64_t size, int64_t size_max) {
    int64_t value = 0;
    if (size < 1 || size > size_max) return -1;
    for (int64_t i = 0; i < size; i++) {
        if (!is_digit(p[i])) return -1;
        value = value * 10 + (p[i] - '0');
    }
    return value;
}

static inline int hex_digit(uint8_t c) {
    if (is_digit(c)) return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The character that an escape means, with the place behind it; -1 if it means none, or half of one. */
static inline int32_t unescape(const uint8_t **at, const uint8_t *end) {
    const uint8_t *p = *at + 1; /* The backslash. */
    if (end - p >= 5 && memcmp(p, "u000", 4) == 0 && is_digit(p[4])) { /* Most are the separators, 1 and 2. */
        *at = p + 5;
        return p[4] - '0';
    }
    if (p >= end) return -1;
    *at = p + 1;
    switch (*p) {
    case '"': case '\\': case '/': return *p;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return -1;
    }
    if (end - p < 5) return -1;
    int32_t code = 0;
    for (int i = 1; i <= 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    *at = p + 5;
    return code >= 0xD800 && code < 0xE000 ? -1 : code;
}

static inline uint8_t *put_utf8(uint8_t *p, int32_t code) {
    if (code < 0x80) {
        *p++ = (uint8_t)code;
    } else if (code < 0x800) {
        *p++ = (uint8_t)(0xC0 | code >> 6);
        *p++ = (uint8_t)(0x80 | (code & 0x3F));
    } else {
        *p++ = (uint8_t)(0xE0 | code >> 12);
        *p++ = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        *p++ = (uint8_t)(0x80 | (code & 0x3F));
    }
    return p;
}

/* At most 20 characters. */
static inline uint8_t *put_decimal(uint8_t *p, int64_t value) {
    uint8_t digits[20];
    int n = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0) *p++ = '-';
    do digits[n++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    while (n) *p++ = digits[--n];
    return p;
}

static inline uint8_t *put_hex64(uint8_t *p, uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) *p++ = (uint8_t)"0123456789ABCDEF"[value >> shift & 15];
    return p;
}

static inline uint8_t *put_bytes(uint8_t *p, const void *from, int64_t size) {
    memcpy(p, from, (size_t)size);
    return p + size;
}

#endif
