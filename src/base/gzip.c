/* Compressing to gzip without a library: see gzip.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gzip.h"

#include <stdbool.h>
#include <string.h>

/* ---- CRC-32, eight bytes at a step ---- */

static uint32_t crc_table[8][256];

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
        crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc_table[t][i] = crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
}

static uint64_t load64(const uint8_t *at) {
    uint64_t n;
    memcpy(&n, at, sizeof n);
    return n;
}

static inline uint32_t eight_more(uint32_t crc, uint64_t bytes) {
    uint64_t v = bytes ^ crc;
    return crc_table[7][v & 255] ^ crc_table[6][v >> 8 & 255] ^ crc_table[5][v >> 16 & 255] ^
           crc_table[4][v >> 24 & 255] ^ crc_table[3][v >> 32 & 255] ^ crc_table[2][v >> 40 & 255] ^
           crc_table[1][v >> 48 & 255] ^ crc_table[0][v >> 56];
}

/* The same for only the first `n` of eight bytes, 0 to 7. Leading zero bytes change nothing in a register of zero. So
 * with the register put into its first four bytes, a text may get as many zeros in front as make it eight bytes. */
static inline uint32_t few_more(uint32_t crc, uint64_t bytes, size_t n) {
    return eight_more(0, (bytes ^ crc) << (63 - 8 * n) << 1) ^ (uint32_t)((uint64_t)crc >> 8 * n);
}

struct vp_crc32 vp_crc32(struct vp_crc32 crc, const void *data, size_t n) {
    const uint8_t *at = data;
    if (!crc_table[0][1])
        make_crc_table();
    uint64_t bytes = load64(at);
    uint32_t a = few_more(~crc.a, bytes, n % 8), b = few_more(~crc.b, bytes, n % 8);
    for (at += n % 8, n /= 8; n--; at += 8) {
        bytes = load64(at);
        a = eight_more(a, bytes);
        b = eight_more(b, bytes);
    }
    return (struct vp_crc32){~a, ~b};
}

/* ---- symbols ---- */

enum { END_OF_BLOCK = 256, LITERALS = 286, DISTANCES = 30, LONGEST_CODE = 15 };

/* A match shorter than six digits takes more bits than the digits themselves. */
enum { SHORTEST_MATCH = 6, LONGEST_MATCH = 258, FARTHEST_MATCH = 32768, HASH_BITS = 12 };

/* Making codes takes as long as compressing some kilobytes, and texts of one kind change slowly. */
enum { TEXTS_A_CODE = 8 };

struct code {
    uint16_t bits; /* the first bit to be written is the lowest */
    uint8_t length;
};

struct vp_deflate {
    uint16_t last[1 << HASH_BITS]; /* where the characters with this hash were last seen */
    uint32_t literal_count[LITERALS], distance_count[DISTANCES];
    struct code literal[LITERALS], distance[DISTANCES];
    unsigned texts; /* compressed since the codes were made */
};

size_t vp_deflate_size(void) {
    return sizeof(struct vp_deflate);
}

/* Lengths and distances are both coded as a power of two with the `kept` bits below it, which make the symbol, and
 * extra bits for the rest. */
static inline unsigned extra_bits(unsigned n, unsigned kept) {
    return n < 2u << kept ? 0 : 31 - (unsigned)__builtin_clz(n) - kept;
}

static inline unsigned symbol_of(unsigned n, unsigned kept, unsigned extra) {
    return (extra << kept) + (n >> extra);
}

/* ---- Huffman codes ---- */

/* Finds the depth of each symbol in the tree that repeatedly joins the two rarest nodes. False: deeper than codes may
 * be. */
static bool find_depths(const uint32_t *count, size_t symbols, uint8_t *depth) {
    uint32_t weight[2 * LITERALS];
    uint16_t leaf[LITERALS], parent[2 * LITERALS];
    size_t leaves = 0;
    for (size_t s = 0; s < symbols; s++) {
        if (!count[s])
            continue;
        size_t at = leaves++;
        for (; at && count[leaf[at - 1]] > count[s]; at--)
            leaf[at] = leaf[at - 1];
        leaf[at] = (uint16_t)s;
    }
    for (size_t i = 0; i < leaves; i++)
        weight[i] = count[leaf[i]];
    /* Joints are made in order of weight, too, so the two rarest nodes are at the heads of two queues. */
    size_t next_leaf = 0, next_joint = leaves, nodes = leaves;
    while (nodes < 2 * leaves - 1) {
        uint32_t sum = 0;
        for (int i = 0; i < 2; i++) {
            bool is_leaf = next_leaf < leaves && (next_joint == nodes || weight[next_leaf] <= weight[next_joint]);
            size_t taken = is_leaf ? next_leaf++ : next_joint++;
            parent[taken] = (uint16_t)nodes;
            sum += weight[taken];
        }
        weight[nodes++] = sum;
    }
    uint8_t depths[2 * LITERALS];
    depths[nodes - 1] = 0;
    for (size_t i = nodes - 1; i-- > 0;)
        if ((depths[i] = (uint8_t)(depths[parent[i]] + 1)) > LONGEST_CODE)
            return false;
    memset(depth, 0, symbols);
    for (size_t i = 0; i < leaves; i++)
        depth[leaf[i]] = depths[i];
    return true;
}

static void make_codes(uint32_t *count, size_t symbols, struct code *code) {
    uint8_t depth[LITERALS];
    /* next[n]: first the number of codes of n - 1 bits, later the next code of n bits. */
    uint16_t next[LONGEST_CODE + 2] = {0};
    /* If rare symbols are too rare, flatten the tree. */
    while (!find_depths(count, symbols, depth))
        for (size_t s = 0; s < symbols; s++)
            count[s] = count[s] ? count[s] / 2 + 1 : 0;
    for (size_t s = 0; s < symbols; s++)
        if (depth[s])
            next[depth[s] + 1]++;
    for (int bits = 1; bits <= LONGEST_CODE; bits++)
        next[bits] = (uint16_t)((next[bits - 1] + next[bits]) << 1);
    for (size_t s = 0; s < symbols; s++) {
        unsigned value = depth[s] ? next[depth[s]]++ : 0u, reversed = 0;
        for (int bit = 0; bit < depth[s]; bit++)
            reversed |= (value >> bit & 1) << (depth[s] - 1 - bit);
        code[s] = (struct code){.bits = (uint16_t)reversed, .length = depth[s]};
    }
}

/* ---- bits ---- */

struct bits {
    uint8_t *at;
    uint64_t held;
    unsigned count; /* of `held`; under 8 after a flush */
};

static inline void put(struct bits *b, uint64_t value, unsigned count) {
    b->held |= value << b->count;
    b->count += count;
}

/* Writes whole bytes. Fewer than 64 bits are held, as a shift by 64 would do nothing. */
static inline void flush(struct bits *b) {
    memcpy(b->at, &b->held, 8);
    b->at += b->count / 8;
    b->held >>= b->count & ~7u;
    b->count &= 7;
}

/* Writes the codes as their lengths, four bits each. The code for the lengths themselves, which comes first, is the
 * simplest: all 16 are equally long, and the abbreviations for repeats are unused. 170 bytes in all. */
static void put_codes(struct bits *b, const struct vp_deflate *d) {
    put(b, 1 | 2 << 1, 3); /* the last block; codes of its own */
    put(b, LITERALS - 257, 5);
    put(b, DISTANCES - 1, 5);
    put(b, 19 - 4, 4);
    for (int i = 0; i < 19; i++) {
        put(b, i < 3 ? 0 : 4, 3); /* the first three are the abbreviations */
        flush(b);
    }
    for (int i = 0; i < LITERALS + DISTANCES; i++) {
        unsigned n = i < LITERALS ? d->literal[i].length : d->distance[i - LITERALS].length;
        put(b, (n & 1) << 3 | (n & 2) << 1 | (n & 4) >> 1 | n >> 3, 4);
        flush(b);
    }
}

/* ---- matches ---- */

/* The number of equal bytes, up to `most`; `differ`: the difference of the first eight. Most matches end within
 * sixteen, which takes no branch. */
static inline size_t match_length(const uint8_t *here, const uint8_t *before, uint64_t differ, size_t most) {
    uint64_t more = load64(here + 8) ^ load64(before + 8);
    size_t length = differ ? (size_t)__builtin_ctzll(differ) / 8
                           : 8 + (size_t)__builtin_ctzll(more | UINT64_C(1) << 63) / 8;
    if (!(differ | more)) {
        for (length = 16; length + 8 <= most && !more; length += 8)
            more = load64(here + length) ^ load64(before + length);
        if (more)
            length -= 8 - (size_t)__builtin_ctzll(more) / 8;
        else
            while (length < most && here[length] == before[length])
                length++;
    }
    return length < most ? length : most;
}

static inline void put_literal(struct bits *b, struct vp_deflate *d, unsigned symbol) {
    d->literal_count[symbol]++;
    put(b, d->literal[symbol].bits, d->literal[symbol].length);
}

static inline void put_match(struct bits *b, struct vp_deflate *d, unsigned length, unsigned distance) {
    const bool longest = length == LONGEST_MATCH; /* has a symbol of its own */
    unsigned n = length - 3, extra = longest ? 0 : extra_bits(n, 2);
    put_literal(b, d, longest ? LITERALS - 1 : END_OF_BLOCK + 1 + symbol_of(n, 2, extra));
    put(b, n & ((1u << extra) - 1), extra);
    n = distance - 1;
    extra = extra_bits(n, 1);
    unsigned symbol = symbol_of(n, 1, extra);
    d->distance_count[symbol]++;
    put(b, d->distance[symbol].bits, d->distance[symbol].length);
    put(b, n & ((1u << extra) - 1), extra);
}

/* One pass: finds matches, writes them in the present codes, and counts symbols for better ones. Matches are looked for
 * only where a word or number begins, which takes half the time and misses few. Returns the length; 0: longer than the
 * text. */
static size_t compress(struct vp_deflate *d, uint8_t *out, const uint8_t *text, size_t n) {
    struct bits b = {.at = out};
    size_t i = 0;
    memset(d->last, 0, sizeof d->last);
    put_codes(&b, d);
    while (i < n) {
        uint64_t here = load64(text + i);
        unsigned hash = (unsigned)((here << 16) * 0x9e3779b97f4a7c15u >> (64 - HASH_BITS));
        size_t before = d->last[hash], most = n - i < LONGEST_MATCH ? n - i : LONGEST_MATCH;
        uint64_t differ = here ^ load64(text + before);
        d->last[hash] = (uint16_t)i;
        if (differ << 16 || before >= i || i - before > FARTHEST_MATCH || most < SHORTEST_MATCH) {
            do {
                put_literal(&b, d, text[i++]);
                if (b.count >= 64 - LONGEST_CODE)
                    flush(&b);
            } while (text[i - 1] >= '0' && i < n && (size_t)(b.at - out) <= n);
            flush(&b);
        } else {
            size_t length = match_length(text + i, text + before, differ, most);
            put_match(&b, d, (unsigned)length, (unsigned)(i - before));
            flush(&b);
            i += length;
        }
        if ((size_t)(b.at - out) > n)
            return 0;
    }
    put_literal(&b, d, END_OF_BLOCK);
    flush(&b);
    return (size_t)(b.at - out) + (b.count != 0);
}

/* Makes codes for later texts from the counts. Each symbol gets one, as those texts may have others. */
static void learn(struct vp_deflate *d) {
    d->texts = 0;
    for (int i = 0; i < LITERALS; i++)
        d->literal_count[i] += 1;
    for (int i = 0; i < DISTANCES; i++)
        d->distance_count[i] += 1;
    make_codes(d->literal_count, LITERALS, d->literal);
    make_codes(d->distance_count, DISTANCES, d->distance);
    memset(d->literal_count, 0, sizeof d->literal_count);
    memset(d->distance_count, 0, sizeof d->distance_count);
}

static size_t store(uint8_t *out, const uint8_t *text, size_t n) {
    const uint8_t head[] = {1, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, text, n);
    return sizeof head + n;
}

size_t vp_deflate(struct vp_deflate *d, uint8_t *out, const uint8_t *text, size_t n) {
    if (!d->literal[END_OF_BLOCK].length) {
        learn(d);
        compress(d, out, text, n);
        learn(d);
    }
    size_t size = compress(d, out, text, n);
    if (++d->texts == TEXTS_A_CODE)
        learn(d);
    return size && size < n ? size : store(out, text, n);
}
