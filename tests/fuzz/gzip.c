/* The recorder's compression: zlib, where there is one, is the judge of every stream and of the checksums. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gzip.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#ifdef VP_HAVE_ZLIB
#include <zlib.h>

static void judge(const uint8_t *stream, size_t length, const uint8_t *text, size_t n, uint32_t crc) {
    static uint8_t out[VP_DEFLATE_MOST + 1];
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)stream,
                  .avail_in = (unsigned)length,
                  .next_out = out,
                  .avail_out = sizeof out};
    if (inflateInit2(&z, -15) != Z_OK)
        abort();
    int end = inflate(&z, Z_FINISH);
    if (end != Z_STREAM_END || z.total_out != n || z.total_in != length || memcmp(out, text, n))
        fuzz_fail("zlib: %d, %lu of %zu bytes read, %lu of %zu written", end, z.total_in, length, z.total_out, n);
    inflateEnd(&z);
    if (crc != crc32(0, text, (unsigned)n))
        fuzz_fail("a CRC of %08x", crc);
}
#else
static void judge(const uint8_t *stream, size_t length, const uint8_t *text, size_t n, uint32_t crc) {
}
#endif

/* The input is cut into texts, as the recorder's lines are: codes fit the texts before. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t text[VP_DEFLATE_MOST + 16], out[VP_DEFLATE_MOST + VP_DEFLATE_EXTRA];
    struct vp_deflate *d = calloc(1, vp_deflate_size());
    struct fuzz_input in = {data, size, 0};
    if (!d)
        abort();
    for (int i = 0; i < 16 && in.at < size; i++) {
        unsigned times = 1 + fuzz_byte(&in) % 64;
        size_t length = 1 + fuzz_byte(&in), n = 0;
        if (length > size - in.at)
            length = size - in.at;
        memset(text, 0, sizeof text);
        /* A part of the input, again and again, not quite the same each time. */
        for (unsigned k = 0; k < times && n + length <= VP_DEFLATE_MOST; k++, n += length) {
            memcpy(text + n, data + in.at, length);
            if (length)
                text[n + k % length] ^= (uint8_t)(k >> 2);
        }
        in.at += length;
        size_t made = vp_deflate(d, out, text, n);
        if (made > n + VP_DEFLATE_EXTRA)
            fuzz_fail("%zu bytes for %zu", made, n);
        struct vp_crc32 crc = vp_crc32((struct vp_crc32){0, 0}, text, n);
        if (crc.a != crc.b)
            fuzz_fail("two CRCs of the same bytes differ");
        judge(out, made, text, n, crc.a);
    }
    free(d);
    fuzz_count(0);
    return 0;
}
