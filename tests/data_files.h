/* data_files.h - tiny data sets that tests write themselves: IDX files, gzip, PNG sheets, archives of windows. */
#ifndef GW_TEST_DATA_FILES_H
#define GW_TEST_DATA_FILES_H

#include <ftw.h>
#include <png.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <zlib.h>

#include "test.h"

static char files_directory[64];

__attribute__((unused)) static void files_enter(void) {
    strcpy(files_directory, "/tmp/gradwire-data-XXXXXX");
    CHECK(mkdtemp(files_directory) != NULL);
}

static int files_remove(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)about, (void)type, (void)where;
    return remove(path);
}

__attribute__((unused)) static void files_leave(void) {
    CHECK(nftw(files_directory, files_remove, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

/* A path in the directory; four may be in use at a time. */
__attribute__((unused)) static const char *files_path(const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", files_directory, name);
    return path;
}

__attribute__((unused)) static void files_write(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(files_path(name), "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size);
    if (file) fclose(file);
}

__attribute__((unused)) static void files_write_gzip(const char *name, const void *bytes, size_t size) {
    gzFile file = gzopen(files_path(name), "wb");
    CHECK(file && gzwrite(file, bytes, (unsigned)size) == (int)size);
    if (file) gzclose(file);
}

/* An IDX file in bytes; gives its size. The elements are 0, 7, 14, ... modulo modulus. */
__attribute__((unused)) static size_t files_idx(uint8_t *bytes, int dims, const uint32_t *dim, int modulus) {
    size_t used = 4, count = 1;
    memcpy(bytes, (const uint8_t[]){0, 0, 8, (uint8_t)dims}, 4);
    for (int i = 0; i < dims; i++) {
        for (int shift = 24; shift >= 0; shift -= 8) bytes[used++] = (uint8_t)(dim[i] >> shift);
        count *= dim[i];
    }
    for (size_t i = 0; i < count; i++) bytes[used++] = (uint8_t)(i * 7 % (size_t)modulus);
    return used;
}

__attribute__((unused)) static size_t files_png(uint8_t *bytes, size_t room, unsigned columns, unsigned rows,
                                                unsigned format, const uint8_t *pixels) {
    png_image png = {.version = PNG_IMAGE_VERSION, .width = columns, .height = rows, .format = format};
    png_alloc_size_t size = room;
    CHECK(png_image_write_to_memory(&png, bytes, &size, 0, pixels, 0, NULL));
    return size;
}

/* ---- an archive of windows, compressed as compress(1) does ---- */

typedef struct files_coder {
    uint8_t *out;
    size_t group; /* byte where the present groups of codes begin */
    size_t bit;   /* after it */
    int width;
    int known; /* the decoder's next free code */
    int first; /* no code since the start or a clear */
} files_coder;

static void files_code(files_coder *coder, int code) {
    if (coder->known >= 1 << coder->width && coder->width < 16) {
        size_t group_bits = (size_t)coder->width * 8;
        coder->group += (coder->bit + group_bits - 1) / group_bits * (size_t)coder->width;
        coder->bit = 0;
        coder->width++;
    }
    for (int i = 0; i < coder->width; i++, coder->bit++)
        if (code >> i & 1) coder->out[coder->group + coder->bit / 8] |= (uint8_t)(1 << coder->bit % 8);
    if (!coder->first && coder->known < 65536) coder->known++;
    coder->first = 0;
}

/* One window; gives its size. The out bytes must be zero. clear_at: a clear code once so many bytes are in, 0: none. */
__attribute__((unused)) static size_t files_lzw(const uint8_t *text, size_t size, size_t clear_at, uint8_t *out) {
    uint16_t(*next)[256] = calloc(65536, sizeof *next);
    files_coder coder = {.out = out, .width = 9, .known = 257, .first = 1};
    int made = 257, code = text[0];
    for (size_t i = 1; i < size; i++) {
        if (next[code][text[i]]) {
            code = next[code][text[i]];
            continue;
        }
        files_code(&coder, code);
        if (made < 65536) next[code][text[i]] = (uint16_t)made++;
        code = text[i];
        if (clear_at && i >= clear_at) {
            files_code(&coder, 256);
            size_t group_bits = (size_t)coder.width * 8;
            coder.group += (coder.bit + group_bits - 1) / group_bits * (size_t)coder.width;
            coder = (files_coder){.out = out, .group = coder.group, .width = 9, .known = 257, .first = 1};
            memset(next, 0, 65536 * sizeof *next);
            made = 257;
            clear_at = 0;
        }
    }
    files_code(&coder, code);
    free(next);
    return coder.group + (coder.bit + 7) / 8;
}

static void files_big_endian(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* The archive of a text in windows; gives its size. out must be zero and have room. */
__attribute__((unused)) static size_t files_archive(const uint8_t *text, size_t size, size_t window, size_t clear_at,
                                                    uint8_t *out) {
    size_t count = (size + window - 1) / window, at = 92 + 4 * (count + 1);
    strcpy((char *)out, "EC02Compressed Data File");
    files_big_endian(out + 84, (uint32_t)window);
    files_big_endian(out + 88, (uint32_t)count);
    memcpy(out + at, "\x1f\x9d\x90", 3);
    at += 3;
    for (size_t i = 0; i < count; i++) {
        size_t length = i + 1 < count ? window : size - i * window;
        files_big_endian(out + 92 + 4 * i, (uint32_t)at);
        at += files_lzw(text + i * window, length, clear_at, out + at);
    }
    files_big_endian(out + 92 + 4 * count, (uint32_t)at);
    return at;
}

#endif
