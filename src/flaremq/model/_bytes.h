/* Big-endian integers, CRC-32 and Java's string hash for the compiled twins.
 *
 * Plain C because every twin needs these few lines and none may import another. The Python twins
 * have struct, zlib.crc32 and model.tags for the same.
 */
#ifndef FLAREMQ_BYTES_H
#define FLAREMQ_BYTES_H

#include <stdint.h>
#include <string.h>

static inline int64_t get64(const uint8_t *p) {
    uint64_t raw;
    memcpy(&raw, p, 8);
    return (int64_t)__builtin_bswap64(raw);
}

static inline int32_t get32(const uint8_t *p) {
    uint32_t raw;
    memcpy(&raw, p, 4);
    return (int32_t)__builtin_bswap32(raw);
}

static inline int16_t get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

static inline void put64(uint8_t *p, int64_t value) {
    uint64_t raw = __builtin_bswap64((uint64_t)value);
    memcpy(p, &raw, 8);
}

static inline void put32(uint8_t *p, int32_t value) {
    uint32_t raw = __builtin_bswap32((uint32_t)value);
    memcpy(p, &raw, 4);
}

/* Written after everything before it, also in the eyes of another process that maps the file: the
 * magic of a record appears only when the record is whole. */
static inline void publish32(uint8_t *p, int32_t value) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put32(p, value);
}

static inline void put16(uint8_t *p, int16_t value) {
    p[0] = (uint8_t)((uint16_t)value >> 8);
    p[1] = (uint8_t)value;
}

/* Sixteen bytes a step: table k holds the effect of a byte that k more bytes follow. */
static uint32_t crc_table[16][256];

static inline void crc_fill_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0);
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 16; k++) {
            uint32_t c = crc_table[k - 1][i];
            crc_table[k][i] = (c >> 8) ^ crc_table[0][c & 0xFF];
        }
}

static inline uint32_t crc_by_table(uint32_t c, const uint8_t *p, int64_t size) {
    for (; size >= 16; size -= 16, p += 16) {
        uint8_t b[16];
        memcpy(b, p, 16);
        b[0] ^= (uint8_t)c, b[1] ^= (uint8_t)(c >> 8), b[2] ^= (uint8_t)(c >> 16), b[3] ^= (uint8_t)(c >> 24);
        c = 0;
        for (int k = 0; k < 16; k++) c ^= crc_table[15 - k][b[k]];
    }
    for (; size > 0; size--, p++) c = crc_table[0][(c ^ *p) & 0xFF] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* The remainder of x^n is taken by carry-less multiplication: 128 bits of message are folded onto the bits
 * that follow them, four strands at a time, and what is left is reduced at the end (Barrett). The
 * constants are powers of x modulo the polynomial, bits reversed: x^(4*128+32) and x^(4*128-32) for the
 * four strands, x^(128+32) and x^(128-32) for one, x^64, the polynomial and its reciprocal. */
#define CRC_FOLD_MIN 64

__attribute__((target("pclmul,sse4.1"))) static inline __m128i crc_folded(__m128i x, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_folding(uint32_t c, const uint8_t *p, int64_t size) {
    const __m128i by_four = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i last_fold = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i reduce = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_word = _mm_set_epi32(0, 0, 0, -1);
    __m128i x[4];
    for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128((const __m128i *)p + i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)c));
    for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
        for (int i = 0; i < 4; i++) x[i] = crc_folded(x[i], by_four, _mm_loadu_si128((const __m128i *)p + i));
    __m128i y = x[0];
    for (int i = 1; i < 4; i++) y = crc_folded(y, by_one, x[i]);
    for (; size >= 16; p += 16, size -= 16) y = crc_folded(y, by_one, _mm_loadu_si128((const __m128i *)p));
    y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by_one, 0x10));
    y = _mm_xor_si128(_mm_srli_si128(y, 4), _mm_clmulepi64_si128(_mm_and_si128(y, low_word), last_fold, 0x00));
    __m128i z = _mm_clmulepi64_si128(_mm_and_si128(y, low_word), reduce, 0x10);
    z = _mm_clmulepi64_si128(_mm_and_si128(z, low_word), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, z), 1);
}
#endif

/* CRC-32 with the sign bit cleared. Needs crc_fill_table() once. */
static inline uint32_t crc31_of(const uint8_t *p, int64_t size) {
    uint32_t c = 0xFFFFFFFFu;
#ifdef CRC_FOLD_MIN
    if (size >= CRC_FOLD_MIN && __builtin_cpu_supports("pclmul")) {
        int64_t whole = size & ~(int64_t)15;
        c = crc_by_folding(c, p, whole);
        p += whole, size -= whole;
    }
#endif
    return ~crc_by_table(c, p, size) & 0x7FFFFFFFu;
}

/* The CRC property that ends a record: a name, ten digits with the least significant first. */
#define CRC_TAIL_SIZE_C 20

static inline void put_crc_tail(const uint8_t *start, int64_t size, uint8_t *p) {
    uint32_t crc = crc31_of(start, size);
    memcpy(p, "__CRC32#\x01", 9);
    for (int i = 0; i < 10; i++, crc /= 10) p[9 + i] = (uint8_t)('0' + crc % 10);
    p[19] = 2;
}

/* Whether a record of this size, tail included, ends in the right CRC property. */
static inline int crc_tail_agrees(const uint8_t *start, int64_t size) {
    uint8_t wanted[CRC_TAIL_SIZE_C];
    put_crc_tail(start, size - CRC_TAIL_SIZE_C, wanted);
    return memcmp(start + size - CRC_TAIL_SIZE_C, wanted, CRC_TAIL_SIZE_C) == 0;
}

/* Java's String.hashCode goes on over ASCII; the place of the first byte that is none, or size. */
static inline int64_t hash_ascii(const uint8_t *p, int64_t size, uint32_t *h) {
    uint32_t value = *h;
    int64_t i = 0;
    for (; i < size && p[i] < 0x80; i++) value = 31 * value + p[i];
    *h = value;
    return i;
}

#endif
