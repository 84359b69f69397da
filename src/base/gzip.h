/*
 * What of gzip a writer needs: CRC-32, and one compressed deflate block. Not thread-safe; allocates nothing.
 *
 * For short texts of few different characters: one look at one earlier place for each match (LZ77), Huffman codes made for each text.
 * RFC 1951 and 1952 describe the format.
 */
#ifndef VP_GZIP_H
#define VP_GZIP_H

#include <stddef.h>
#include <stdint.h>

/* The longest text, and how much longer than its text a stream may be at worst. */
enum { VP_DEFLATE_MOST = 65535, VP_DEFLATE_EXTRA = 512 };

/* The CRC of what came before (0 at the beginning) and `n` bytes more. */
uint32_t vp_crc32(uint32_t crc, const void *data, size_t n);

struct vp_deflate;

/* Bytes of memory that a `struct vp_deflate` takes; the caller provides it, zeroed, and need not clean up. */
size_t vp_deflate_size(void);

/* Writes a whole deflate stream of `n` bytes of text, at most VP_DEFLATE_MOST, and returns its length: at most n + VP_DEFLATE_EXTRA, which
 * `out` must have room for. `text` must have 16 readable bytes behind its end. */
size_t vp_deflate(struct vp_deflate *d, uint8_t *out, const uint8_t *text, size_t n);

#endif
