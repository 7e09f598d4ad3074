/* archive.c - the archives of Debian's bible-kjv-text: a text cut into windows of 64 KiB, each compressed separately
 * with the LZW of compress(1) (Welch 1984, "A technique for high-performance data compression", codes of 9 to 16 bits,
 * 256 clears the table).
 *
 * All numbers are big-endian. Offset 0: MAGIC; 84: bytes of a window; 88: number n of windows; 92: n + 1 offsets: the
 * start of each window, and the end of the last. The three-byte header of compress(1) precedes the first window.
 *
 * Each string of the table occurs in the text decoded so far, so the table holds offsets into it, not copies. */
#include <stdlib.h>
#include <string.h>

#include "data/text.h"

#define MAGIC "EC02Compressed Data File"
#define WINDOW_AT 84
#define COUNT_AT 88
#define OFFSETS_AT 92
#define WINDOW_BYTES_MAX 65536
#define BITS_MIN 9
#define BITS_MAX 16
#define CODE_CLEAR 256
#define CODES (1 << BITS_MAX)

typedef struct string {
    uint32_t start, length; /* in the window's text */
} string;

typedef struct code_reader {
    const uint8_t *bytes; /* start of the current (or an earlier) group of eight codes of one width */
    size_t size;
    size_t bit; /* of the next code */
    int width;  /* bits of a code */
} code_reader;

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Codes come in groups of eight; when the width changes, the rest of the group is padding. */
static void set_width(code_reader *reader, int width) {
    size_t group = (size_t)reader->width * 8;
    size_t skip = (reader->bit + group - 1) / group * (size_t)reader->width;
    if (skip > reader->size) skip = reader->size;
    reader->bytes += skip;
    reader->size -= skip;
    reader->bit = 0;
    reader->width = width;
}

/* -1: no complete code is left. */
static int next_code(code_reader *reader) {
    if (reader->bit + (size_t)reader->width > reader->size * 8) return -1;
    size_t byte = reader->bit / 8;
    uint32_t word = 0;
    for (size_t i = 0; i < 3 && byte + i < reader->size; i++) word |= (uint32_t)reader->bytes[byte + i] << (8 * i);
    int code = (int)(word >> (reader->bit % 8) & ((1u << reader->width) - 1));
    reader->bit += (size_t)reader->width;
    return code;
}

/* Decodes one window into text (window bytes long); returns the decoded bytes, or -1 if the window is damaged. */
static int64_t decode_window(code_reader reader, string *table, uint8_t *text, size_t window) {
    size_t used = 0;
    int free_code = CODE_CLEAR + 1;
    string last = {0}; /* length 0: the table has just been cleared */
    for (;;) {
        if (free_code >= 1 << reader.width && reader.width < BITS_MAX) set_width(&reader, reader.width + 1);
        int code = next_code(&reader);
        if (code < 0) return (int64_t)used;
        if (code == CODE_CLEAR) {
            set_width(&reader, BITS_MIN);
            free_code = CODE_CLEAR + 1;
            last.length = 0;
            continue;
        }
        if (last.length && free_code < CODES) table[free_code++] = (string){last.start, last.length + 1};
        if (code >= free_code) return -1;
        last = code < CODE_CLEAR ? (string){(uint32_t)used, 1} : table[code];
        if (last.length > window - used) return -1;
        if (code < CODE_CLEAR) text[used] = (uint8_t)code;
        else /* byte by byte, because source and destination may overlap by one byte */
            for (uint32_t i = 0; i < last.length; i++) text[used + i] = text[last.start + i];
        last.start = (uint32_t)used;
        used += last.length;
    }
}

bool gw_archive_is(const uint8_t *bytes, size_t size) {
    return size >= OFFSETS_AT && memcmp(bytes, MAGIC, strlen(MAGIC)) == 0;
}

/* The number of windows; 0: the header is not valid. */
static uint32_t windows_of(const uint8_t *bytes, size_t size) {
    uint32_t count = big_endian(bytes + COUNT_AT), window = big_endian(bytes + WINDOW_AT);
    if (window == 0 || window > WINDOW_BYTES_MAX || count > (size - OFFSETS_AT) / 4) return 0;
    size_t end_of_offsets = OFFSETS_AT + 4 * ((size_t)count + 1);
    if (end_of_offsets > size) return 0;
    uint32_t before = (uint32_t)end_of_offsets;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t offset = big_endian(bytes + OFFSETS_AT + 4 * (size_t)i);
        if (offset < before || offset > size) return 0;
        before = offset;
    }
    return count;
}

static gw_status decode(const uint8_t *bytes, uint32_t count, string *table, const char *name, gw_blob *text,
                        gw_error *error) {
    size_t window = big_endian(bytes + WINDOW_AT);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *offset = bytes + OFFSETS_AT + 4 * (size_t)i;
        uint32_t start = big_endian(offset), end = big_endian(offset + 4);
        code_reader reader = {.bytes = bytes + start, .size = end - start, .width = BITS_MIN};
        int64_t got = decode_window(reader, table, text->data + text->size, window);
        if (got < 0 || (i + 1 < count && got != (int64_t)window))
            return gw_fail(error, GW_INVALID, "%s is damaged: window %u of %u does not unpack to %zu bytes", name,
                           i + 1, count, window);
        text->size += (size_t)got;
    }
    return GW_OK;
}

gw_status gw_archive_decode(const uint8_t *bytes, size_t size, const char *name, gw_blob *text, gw_error *error) {
    gw_blob decoded = {0};
    uint32_t count = gw_archive_is(bytes, size) ? windows_of(bytes, size) : 0;
    if (count == 0 || big_endian(bytes + OFFSETS_AT + 4 * (size_t)count) != size)
        return gw_fail(error, GW_INVALID,
                       "%s is truncated or damaged: expected was an archive whose %u windows end at its own end, %zu",
                       name, count, size);
    string *table = malloc(CODES * sizeof *table);
    gw_status status = gw_blob_allocate((size_t)count * big_endian(bytes + WINDOW_AT), &decoded, error);
    if (status == GW_OK && !table) status = gw_fail(error, GW_MEMORY, "no memory to unpack %s", name);
    if (status == GW_OK) {
        decoded.size = 0;
        status = decode(bytes, count, table, name, &decoded, error);
    }
    if (status == GW_OK) *text = decoded;
    else gw_blob_free(&decoded);
    free(table);
    return status;
}
