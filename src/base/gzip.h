/* The parts of gzip that a writer needs: CRC-32, and one compressed deflate block. Not thread-safe; allocates nothing.
 *
 * For many short texts of one kind: each match looks at one earlier place (LZ77), and the Huffman codes are those that
 * fitted the texts before. RFC 1951 and 1952 describe the format. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The longest text, and how much longer than its text a stream may be at worst. */
enum { VP_DEFLATE_MOST = 65535, VP_DEFLATE_EXTRA = 512 };

/* Two CRCs, each continued from an earlier value (0 at the start) over the same `n` bytes: two take hardly longer than
 * one. `data` must have 8 readable bytes behind its end. */
struct vp_crc32 {
    uint32_t a, b;
};

struct vp_crc32 vp_crc32(struct vp_crc32 crc, const void *data, size_t n);

struct vp_deflate;

/* Bytes of a `struct vp_deflate`; the caller provides them, zeroed, and need not clean up. */
size_t vp_deflate_size(void);

/* Writes a whole deflate stream of `n` bytes of text, at most VP_DEFLATE_MOST. Returns its length, at most n +
 * VP_DEFLATE_EXTRA, for which `out` must have room. `text` must have 16 readable bytes behind its end. */
size_t vp_deflate(struct vp_deflate *d, uint8_t *out, const uint8_t *text, size_t n);
