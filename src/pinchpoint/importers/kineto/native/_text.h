/* Steps over JSON text, and numbers in it, as lenient.py defines them.

   All functions read between p and e, never at e or behind it. A result of NULL means that the
   text ends before what was looked for does. */

#ifndef PINCHPOINT_TEXT_H
#define PINCHPOINT_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define PP_WIDE 16
typedef __m128i pp_block;
#define PP_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define PP_IS(block, c) _mm_cmpeq_epi8(block, _mm_set1_epi8(c))
#define PP_OR(a, b) _mm_or_si128(a, b)
/* Quotes, brackets, backslashes, and '|', which lies between the brackets. */
#define PP_SIGNS(block)                                                                        \
    PP_OR(PP_IS(block, '"'),                                                                   \
          PP_IS(_mm_subs_epu8(_mm_sub_epi8(_mm_or_si128(block, _mm_set1_epi8(32)),             \
                                           _mm_set1_epi8('{')),                                \
                              _mm_set1_epi8(2)),                                               \
                0))
#define PP_BLANKS(block) PP_IS(_mm_subs_epu8(block, _mm_set1_epi8(32)), 0)
#define PP_MASK(hits) ((unsigned)_mm_movemask_epi8(hits))
#define PP_ALL 0xFFFFu
#endif

#if defined(_MSC_VER)
#include <intrin.h>
static __inline int pp_first(unsigned mask) {
    unsigned long at;
    _BitScanForward(&at, mask);
    return (int)at;
}
static __inline int pp_first_of_64(uint64_t mask) {
    return (unsigned)mask ? pp_first((unsigned)mask) : 32 + pp_first((unsigned)(mask >> 32));
}
#else
#define pp_first(mask) __builtin_ctz(mask)
#define pp_first_of_64(mask) __builtin_ctzll(mask)
#endif

typedef const uint8_t *pp_bytes;

static const uint64_t PP_POWERS[20] = {
    1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL, 100000000ULL,
    1000000000ULL, 10000000000ULL, 100000000000ULL, 1000000000000ULL, 10000000000000ULL,
    100000000000000ULL, 1000000000000000ULL, 10000000000000000ULL, 100000000000000000ULL,
    1000000000000000000ULL, 10000000000000000000ULL};

static inline uint64_t pp_word(pp_bytes p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t pp_half_word(pp_bytes p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

/* ---- text ---- */

/* p is after an opening quote; the closing one. */
static inline pp_bytes pp_string_end(pp_bytes p, pp_bytes e) {
    for (;;) {
#ifdef PP_WIDE
        while (e - p >= PP_WIDE) {
            pp_block block = PP_LOAD(p);
            unsigned hits = PP_MASK(PP_OR(PP_IS(block, '"'), PP_IS(block, '\\')));
            if (!hits) {
                p += PP_WIDE;
                continue;
            }
            p += pp_first(hits);
            if (*p == '"') return p;
            p += 2;
        }
#endif
        while (p < e && *p != '"' && *p != '\\') p++;
        if (p >= e) return NULL;
        if (*p == '"') return p;
        p += 2;
    }
}

/* The next position that is no blank (a byte up to 32); may be e. */
static inline pp_bytes pp_skip_blanks(pp_bytes p, pp_bytes e) {
    if (p < e && *p > 32) return p;
    if (e - p > 1 && p[1] > 32) return p + 1;
#ifdef PP_WIDE
    while (e - p >= PP_WIDE) {
        unsigned hits = PP_MASK(PP_BLANKS(PP_LOAD(p))) ^ PP_ALL;
        if (hits) return p + pp_first(hits);
        p += PP_WIDE;
    }
#endif
    while (p < e && *p <= 32) p++;
    return p;
}

/* The next position that is neither blank nor comma; may be e. */
static inline pp_bytes pp_skip_separators(pp_bytes p, pp_bytes e) {
    for (;;) {
        p = pp_skip_blanks(p, e);
        if (p >= e || *p != ',') return p;
        p++;
    }
}

/* p is at an opening bracket; what follows its closing one. Both kinds of brackets count alike:
   '[' and ']' differ from '{' and '}' by one bit. */
static inline pp_bytes pp_skip_brackets(pp_bytes p, pp_bytes e) {
    int64_t depth = 0;
    int in_string = 0;
#ifdef PP_WIDE
    while (e - p >= PP_WIDE) {
        unsigned hits = PP_MASK(PP_SIGNS(PP_LOAD(p)));
        int escaped = 0; /* the first byte of the next block */
        while (hits) {
            int at = pp_first(hits);
            uint8_t c = p[at];
            hits &= hits - 1;
            if (c == '"') {
                in_string = !in_string;
            } else if (in_string) {
                if (c != '\\') continue;
                hits &= ~(2u << at);
                escaped = at == PP_WIDE - 1;
            } else if ((c | 32) == '{') {
                depth++;
            } else if ((c | 32) == '}' && --depth == 0) {
                return p + at + 1;
            }
        }
        p += PP_WIDE + escaped;
    }
#endif
    for (; p < e; p++) {
        uint8_t c = *p;
        if (c == '"') {
            in_string = !in_string;
        } else if (in_string) {
            p += c == '\\';
        } else if ((c | 32) == '{') {
            depth++;
        } else if ((c | 32) == '}' && --depth == 0) {
            return p + 1;
        }
    }
    return NULL;
}

static inline int pp_ends_scalar(uint8_t c) {
    return c == ',' || c == '}' || c == ']' || c == '\n' || c == '\r';
}

/* The end of the value at p; *after is where reading goes on. */
static inline pp_bytes pp_value_end(pp_bytes p, pp_bytes e, pp_bytes *after) {
    pp_bytes q = p;
    if (*p == '"') {
        q = pp_string_end(p + 1, e);
        return *after = q ? q + 1 : NULL;
    }
    if ((*p | 32) == '{') return *after = pp_skip_brackets(p, e);
    while (q < e && !pp_ends_scalar(*q)) q++;
    if (q >= e) return NULL;
    *after = q;
    while (q > p && q[-1] <= 32) q--;
    return q;
}

/* ---- numbers ---- */

static inline int pp_digit(uint8_t c) { return (uint8_t)(c - '0') <= 9; }

/* kept * 10 ** power, halves rounded up; 0 if it needs more than 64 bits. */
static inline int pp_scaled(uint64_t kept, int64_t power, uint64_t *out) {
    if (kept == 0 || power < -19) {
        *out = 0;
        return 1;
    }
    if (power < 0) {
        uint64_t unit = PP_POWERS[-power];
        *out = kept / unit + (kept % unit >= unit / 2);
        return 1;
    }
    if (power > 19 || kept > UINT64_MAX / PP_POWERS[power]) return 0;
    *out = kept * PP_POWERS[power];
    return 1;
}

/* The digits after an "e"; 0 if there is anything else. */
static inline int pp_exponent(pp_bytes p, pp_bytes e, int64_t *power) {
    int minus = p < e && *p == '-';
    int64_t size = 0;
    if (p < e && (*p == '-' || *p == '+')) p++;
    if (p >= e) return 0;
    for (; p < e; p++) {
        if (!pp_digit(*p)) return 0;
        if (size < 1000000) size = size * 10 + (*p - '0');
    }
    if (size > 99999) size = 99999;
    *power = minus ? -size : size;
    return 1;
}

/* The text from p to e as a number times 10 ** shift; 0 if it is none. */
static inline int pp_decimal(pp_bytes p, pp_bytes e, int shift, uint64_t *out, int *negative) {
    uint64_t kept = 0;
    int64_t digits = 0, dropped = 0, decimals = 0, power = 0;
    int seen = 0, in_fraction = 0;
    *negative = p < e && *p == '-';
    if (*negative) p++;
    for (; p < e; p++) {
        if (pp_digit(*p)) {
            seen = 1;
            decimals += in_fraction;
            if (digits == 0 && *p == '0') continue;
            unsigned digit = *p - '0';
            if (digits < 19 || (digits == 19 && kept <= (UINT64_MAX - digit) / 10)) {
                kept = kept * 10 + digit;
                digits++;
            } else {
                dropped++;
                digits = 20;
            }
        } else if (*p == '.' && !in_fraction) {
            in_fraction = 1;
        } else {
            break;
        }
    }
    if (!seen) return 0;
    if (p < e && ((*p | 32) != 'e' || !pp_exponent(p + 1, e, &power))) return 0;
    power += shift - decimals + dropped;
    if (dropped && power > 0) return 0;
    return pp_scaled(kept, power, out);
}

/* The value of the token from p to e, which may stand in quotes; null if it has none.
   An address is an unsigned number, kept as the signed one with the same bits. */
static inline int64_t pp_number(pp_bytes p, pp_bytes e, int shift, int address, int64_t null) {
    uint64_t size = 0;
    int negative = 0;
    if (p < e && *p == '"') {
        p++;
        e--;
    }
    if (!pp_decimal(p, e, shift, &size, &negative)) return null;
    if (!address && size > INT64_MAX) return null;
    return (int64_t)(negative ? 0 - size : size);
}

/* The digits at p, eight at most, as a number; their count. Eight bytes are read, least one first. */
static inline int pp_eight_digits(pp_bytes p, uint64_t *out) {
    uint64_t word = pp_word(p), digits = word - 0x3030303030303030ULL;
    /* The top bit of the first byte that is no digit; those behind it may be wrong. */
    uint64_t others = (digits | (word + 0x4646464646464646ULL)) & 0x8080808080808080ULL;
    int count = others ? pp_first_of_64(others) >> 3 : 8;
    *out = 0;
    if (count == 0) return 0;
    digits <<= 64 - 8 * count; /* zeros in front */
    digits = digits * 10 + (digits >> 8); /* pairs, in every other byte */
    *out = ((digits & 0x000000FF000000FFULL) * 0x000F424000000064ULL +
            ((digits >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL) >> 32;
    return count;
}

/* The usual spelling: up to 15 digits, up to `places` decimals, then the end of the value.
   *after is where reading goes on; 0 if the text is spelt otherwise. */
static inline int pp_plain_number(pp_bytes p, pp_bytes e, int places, int64_t *out,
                                  pp_bytes *after) {
    uint64_t value, more;
    int count;
    if (e - p < 32) return 0; /* at the very end of a text */
    count = pp_eight_digits(p, &value);
    if (count == 0) return 0;
    p += count;
    if (count == 8) {
        count = pp_eight_digits(p, &more);
        if (count == 8) return 0;
        value = value * PP_POWERS[count] + more;
        p += count;
    }
    if (places && *p == '.') {
        p++;
        count = pp_eight_digits(p, &more);
        if (count > places) return 0;
        value = value * PP_POWERS[count] + more;
        p += count;
        places -= count;
    }
    if (!pp_ends_scalar(*p)) return 0;
    *out = (int64_t)(value * PP_POWERS[places]);
    *after = p;
    return 1;
}

#endif
