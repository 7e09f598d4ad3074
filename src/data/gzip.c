/* gzip.c - decompresses gzip files with zlib. */
#include <stdlib.h>
#include <zlib.h>

#include "data/blob.h"

#define DEFLATE_RATIO_MAX 1032        /* largest expansion of a deflate stream */
#define CHUNK_BYTES ((size_t)1 << 30) /* zlib counts in 32 bits */

static gw_status grow(gw_blob *blob, size_t used, gw_error *error) {
    size_t size = blob->size * 2;
    uint8_t *data = used < GW_BLOB_BYTES_MAX ? realloc(blob->data, size) : NULL;
    if (!data) return gw_fail(error, GW_MEMORY, "no memory to unpack more than %zu bytes of a data set", used);
    blob->data = data;
    blob->size = size;
    return GW_OK;
}

/* Bytes for the next call of zlib. */
static uInt chunk(size_t left) { return (uInt)(left < CHUNK_BYTES ? left : CHUNK_BYTES); }

/* Decompresses all members into blob and sets its size. */
static gw_status inflate_all(z_stream *stream, size_t size, const char *name, gw_blob *blob, gw_error *error) {
    const uint8_t *end = stream->next_in + size;
    size_t used = 0;
    for (;;) {
        if (used == blob->size && grow(blob, used, error) != GW_OK) return GW_MEMORY;
        stream->avail_in = chunk((size_t)(end - stream->next_in));
        stream->next_out = blob->data + used;
        stream->avail_out = chunk(blob->size - used);
        int result = inflate(stream, Z_NO_FLUSH);
        used = (size_t)(stream->next_out - blob->data);
        bool at_end = stream->next_in == end;
        if (result == Z_STREAM_END && at_end) break;
        if (result == Z_STREAM_END) inflateReset(stream);
        else if (result != Z_OK && result != Z_BUF_ERROR)
            return gw_fail(error, GW_INVALID, "%s is damaged: not valid gzip after %zu unpacked bytes (%s)", name, used,
                           stream->msg ? stream->msg : "no reason given");
        else if (at_end && stream->avail_out > 0)
            return gw_fail(error, GW_INVALID, "%s is truncated: it is a gzip file without its end", name);
    }
    blob->size = used;
    return GW_OK;
}

/* The last four bytes of a gzip file are the unpacked size. It is only a hint, bounded by deflate's largest ratio. */
static size_t size_hint(const uint8_t *packed, size_t size) {
    if (size < 18) return 64;
    const uint8_t *tail = packed + size - 4;
    size_t hint = (size_t)tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 | (size_t)tail[3] << 24;
    size_t most = size * DEFLATE_RATIO_MAX;
    return (hint < most ? hint : most) + 1;
}

gw_status gw_gunzip(const uint8_t *packed, size_t size, const char *name, gw_blob *blob, gw_error *error) {
    gw_blob unpacked = {0};
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed};
    gw_status status = gw_blob_allocate(size_hint(packed, size), &unpacked, error);
    if (status != GW_OK) return status;
    if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) { /* + 16: gzip, not zlib */
        status = gw_fail(error, GW_MEMORY, "no memory to unpack %s", name);
        goto fail;
    }
    status = inflate_all(&stream, size, name, &unpacked, error);
    inflateEnd(&stream);
    if (status != GW_OK) goto fail;
    *blob = unpacked;
    return GW_OK;
fail:
    gw_blob_free(&unpacked);
    return status;
}
