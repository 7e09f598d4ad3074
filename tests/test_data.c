/* test_data.c - data sets: tiny ones that the test writes, damaged ones, and batches. */
#include "data/dataset.h"

#include <math.h>

#include "base/rng.h"
#include "data/images.h"
#include "data/sources.h"
#include "data/text.h"
#include "data_files.h"

#define IMAGES 5
#define SIDE 4

static const uint32_t image_dims[] = {IMAGES, SIDE, SIDE};

/* A training and a test split of IDX files, the first packed. */
static void write_idx_set(void) {
    uint8_t bytes[256];
    size_t size = files_idx(bytes, 3, image_dims, 256);
    files_write_gzip("train-images-idx3-ubyte.gz", bytes, size);
    files_write("t10k-images-idx3-ubyte", bytes, size);
    size = files_idx(bytes, 1, image_dims, 5);
    files_write_gzip("train-labels-idx1-ubyte.gz", bytes, size);
    files_write("t10k-labels-idx1-ubyte", bytes, size);
}

static gw_status open_as(const char *source, gw_split split, int window, gw_dataset **dataset, gw_error *error) {
    gw_dataset_request request = {.source = source, .split = split, .window = window};
    return gw_dataset_open(&request, dataset, error);
}

/* Opening must fail with a sentence that has both texts. */
static void refused(int line, const char *source, gw_split split, int window, const char *piece, const char *other) {
    gw_dataset *dataset;
    gw_error error = {.status = GW_OK};
    gw_status status = open_as(source, split, window, &dataset, &error);
    if (status != GW_OK && strstr(error.text, piece) && strstr(error.text, other)) return;
    test_failures++;
    printf("    line %d: status %d, \"%s\", wanted \"%s\" and \"%s\"\n", line, status, error.text, piece, other);
    if (status == GW_OK) gw_dataset_close(dataset);
}

#define REFUSED(source, split, piece, other) refused(__LINE__, source, split, 8, piece, other)

static void idx_set(void) {
    files_enter();
    write_idx_set();
    for (gw_split split = GW_SPLIT_TRAIN; split <= GW_SPLIT_TEST; split++) {
        gw_dataset *dataset;
        gw_error error = {.status = GW_OK};
        float images[IMAGES * SIDE * SIDE];
        int labels[IMAGES];
        CHECK_EQ(GW_OK, open_as(files_directory, split, 0, &dataset, &error));
        CHECK_STR("", error.text);
        if (error.status != GW_OK) continue;
        const gw_dataset_info *info = gw_dataset_describe(dataset);
        CHECK(info->kind == GW_DATASET_IMAGES && info->count == IMAGES && info->classes == 5);
        CHECK(info->height == SIDE && info->width == SIDE && info->channels == 1);
        gw_dataset_batch(dataset, NULL, NULL, 0, IMAGES, images, labels);
        for (int i = 0; i < IMAGES * SIDE * SIDE; i++) {
            double pixel = i * 7 % 256 / 255.0;
            CHECK(fabs(images[i] - (pixel - info->mean[0]) / info->deviation[0]) < 1e-5);
        }
        for (int i = 0; i < IMAGES; i++) CHECK_EQ(i * 7 % 5, labels[i]);
        gw_dataset_close(dataset);
    }
    files_leave();
}

static void idx_damage(void) {
    files_enter();
    uint8_t bytes[256];
    REFUSED(files_directory, GW_SPLIT_TRAIN, files_directory, "expected was train-images-idx3-ubyte");
    write_idx_set();
    size_t size = files_idx(bytes, 3, image_dims, 256);
    for (size_t cut = 1; cut < size; cut++) {
        files_write("t10k-images-idx3-ubyte", bytes, cut);
        REFUSED(files_directory, GW_SPLIT_TEST, "t10k-images-idx3-ubyte", "truncated");
    }
    files_write("t10k-images-idx3-ubyte", bytes, 0);
    REFUSED(files_directory, GW_SPLIT_TEST, "t10k-images-idx3-ubyte", "is empty");
    files_write("t10k-images-idx3-ubyte", bytes, size + 1);
    REFUSED(files_directory, GW_SPLIT_TEST, "is too long: 97 bytes", "expected were 96");
    bytes[2] = 9;
    files_write("t10k-images-idx3-ubyte", bytes, size);
    REFUSED(files_directory, GW_SPLIT_TEST, "begins with 00 00 09 03", "expected was 00 00 08 03 or 04");
    bytes[2] = 8;
    memset(bytes + 4, 0xff, 12);
    files_write("t10k-images-idx3-ubyte", bytes, size);
    REFUSED(files_directory, GW_SPLIT_TEST, "t10k-images-idx3-ubyte", "truncated");
    memset(bytes + 4, 0, 12);
    files_write("t10k-images-idx3-ubyte", bytes, 16);
    REFUSED(files_directory, GW_SPLIT_TEST, "t10k-images-idx3-ubyte", "no elements");
    files_leave();
}

static void idx_labels_missing_or_few(void) {
    files_enter();
    uint8_t bytes[64];
    write_idx_set();
    size_t size = files_idx(bytes, 1, (const uint32_t[]){4}, 5);
    files_write("t10k-labels-idx1-ubyte", bytes, size);
    REFUSED(files_directory, GW_SPLIT_TEST, "holds 4 labels", "expected were 5");
    unlink(files_path("t10k-labels-idx1-ubyte"));
    REFUSED(files_directory, GW_SPLIT_TEST, files_directory, "has no t10k-labels-idx1-ubyte");
    files_leave();
}

static void gzip_damage(void) {
    files_enter();
    uint8_t bytes[4096], packed[4096];
    write_idx_set();
    FILE *file = fopen(files_path("train-images-idx3-ubyte.gz"), "rb");
    size_t size = fread(packed, 1, sizeof packed, file);
    fclose(file);
    for (size_t cut = 2; cut < size; cut++) {
        files_write("train-images-idx3-ubyte.gz", packed, cut);
        REFUSED(files_directory, GW_SPLIT_TRAIN, "train-images-idx3-ubyte.gz", "truncated");
    }
    for (size_t at = size - 8; at < size; at++) { /* checksum and length */
        memcpy(bytes, packed, size);
        bytes[at] ^= 0x10;
        files_write("train-images-idx3-ubyte.gz", bytes, size);
        REFUSED(files_directory, GW_SPLIT_TRAIN, "train-images-idx3-ubyte.gz", "damaged");
    }
    memcpy(bytes, packed, size);
    strcpy((char *)bytes + size, "more");
    files_write("train-images-idx3-ubyte.gz", bytes, size + 4);
    REFUSED(files_directory, GW_SPLIT_TRAIN, "train-images-idx3-ubyte.gz", "damaged");
    files_leave();
}

/* Two members, and more than the hint at the end says. */
static void gzip_members(void) {
    files_enter();
    static uint8_t text[300000], packed[400000];
    gw_blob blob = {0};
    gw_rng rng = gw_rng_make(1, 1);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)gw_rng_below(&rng, 20);
    files_write_gzip("a", text, 299000);
    FILE *file = fopen(files_path("a"), "rb");
    size_t size = fread(packed, 1, sizeof packed, file);
    fclose(file);
    files_write_gzip("b", text + 299000, 1000);
    file = fopen(files_path("b"), "rb");
    size += fread(packed + size, 1, sizeof packed - size, file);
    fclose(file);
    CHECK_EQ(GW_OK, gw_gunzip(packed, size, "members", &blob, NULL));
    CHECK(blob.size == sizeof text && memcmp(blob.data, text, sizeof text) == 0);
    gw_blob_free(&blob);
    files_leave();
}

/* Two training sheets of 3 and 2 RGB images, one test sheet of 1. */
static void write_sheets(uint8_t *pixels) {
    uint8_t png[4096];
    for (int i = 0; i < 6 * SIDE * SIDE * 3; i++) pixels[i] = (uint8_t)(i * 37);
    size_t row = SIDE * SIDE * 3;
    files_write("data_batch_1.png", png, files_png(png, sizeof png, SIDE * SIDE, 3, PNG_FORMAT_RGB, pixels));
    files_write("data_batch_2.png", png, files_png(png, sizeof png, SIDE * SIDE, 2, PNG_FORMAT_RGB, pixels + 3 * row));
    files_write("test_batch.png", png, files_png(png, sizeof png, SIDE * SIDE, 1, PNG_FORMAT_RGB, pixels + 5 * row));
    files_write("train_lables.json", "[3, 0,\n1,2,3 ]\n", 15);
    files_write("test_lables.json", "[9]", 3);
}

static void sheet_set(void) {
    files_enter();
    uint8_t pixels[6 * SIDE * SIDE * 3];
    gw_images images;
    gw_error error = {.status = GW_OK};
    write_sheets(pixels);
    CHECK_EQ(GW_OK, gw_images_load(files_directory, GW_SPLIT_TRAIN, &images, &error));
    CHECK_STR("", error.text);
    CHECK(images.count == 5 && images.height == SIDE && images.width == SIDE && images.channels == 3);
    CHECK(memcmp(images.pixels, pixels, 5 * SIDE * SIDE * 3) == 0);
    CHECK(memcmp(images.labels, (const uint8_t[]){3, 0, 1, 2, 3}, 5) == 0);
    gw_images_free(&images);
    CHECK_EQ(GW_OK, gw_images_load(files_directory, GW_SPLIT_TEST, &images, &error));
    CHECK(images.count == 1 && images.labels[0] == 9);
    CHECK(memcmp(images.pixels, pixels + 5 * SIDE * SIDE * 3, SIDE * SIDE * 3) == 0);
    gw_images_free(&images);
    files_leave();
}

static void sheet_damage(void) {
    files_enter();
    uint8_t pixels[6 * SIDE * SIDE * 3], png[4096];
    write_sheets(pixels);
    size_t size = files_png(png, sizeof png, SIDE * SIDE, 1, PNG_FORMAT_RGB, pixels);
    for (size_t cut = 1; cut < size - 12; cut++) { /* the last 12 bytes say only that it ends */
        files_write("test_batch.png", png, cut);
        REFUSED(files_directory, GW_SPLIT_TEST, "test_batch.png", "is not a whole PNG picture");
    }
    for (size_t at = 0; at < size - 12; at++) {
        gw_sheet sheet;
        png[at] ^= 0x20;
        gw_status status = gw_sheet_decode(png, size, "flipped", &sheet, NULL);
        png[at] ^= 0x20;
        CHECK(status == GW_INVALID);
        if (status == GW_OK) gw_blob_free(&sheet.pixels);
    }
    size = files_png(png, sizeof png, SIDE * SIDE - 1, 1, PNG_FORMAT_RGB, pixels);
    files_write("test_batch.png", png, size);
    REFUSED(files_directory, GW_SPLIT_TEST, "test_batch.png is 15 pixels wide", "one square image");
    size = files_png(png, sizeof png, SIDE * SIDE, 1, PNG_FORMAT_RGBA, pixels);
    files_write("test_batch.png", png, size);
    REFUSED(files_directory, GW_SPLIT_TEST, "test_batch.png", "alpha");
    size = files_png(png, sizeof png, SIDE * SIDE, 1, PNG_FORMAT_GRAY, pixels);
    files_write("data_batch_3.png", png, size);
    REFUSED(files_directory, GW_SPLIT_TRAIN, "data_batch_3.png", "with 1 channels");
    unlink(files_path("data_batch_3.png"));
    unlink(files_path("data_batch_2.png"));
    REFUSED(files_directory, GW_SPLIT_TRAIN, "holds 5 labels", "hold 3 images");
    files_leave();
}

static void labels(void) {
    static const struct {
        const char *text, *sentence; /* NULL: three labels, 1, 20 and 255 */
    } cases[] = {
        {"[1,20,255]", NULL},
        {" [ 1 ,\t20,\r\n255 ]\n", NULL},
        {"[1,20", "truncated"},
        {"[1,20,", "truncated"},
        {"", "truncated"},
        {"[", "truncated"},
        {"[256]", "at byte 4"},
        {"[-1]", "at byte 1"},
        {"[1 2]", "at byte 3"},
        {"[]", "at byte 1"},
        {"[1,]", "at byte 3"},
        {"[1]x", "at byte 3"},
        {"{\"a\":1}", "at byte 0"},
        {"[1.5]", "at byte 2"},
        {"[99999999999999999999]", "at byte 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_blob blob;
        gw_error error = {.status = GW_OK};
        const char *text = cases[i].text;
        gw_status status = gw_labels_parse((const uint8_t *)text, strlen(text), "labels.json", &blob, &error);
        if (!cases[i].sentence) {
            CHECK_STR("", error.text);
            CHECK(status == GW_OK && blob.size == 3 && memcmp(blob.data, "\1\24\377", 3) == 0);
        } else {
            CHECK_EQ(GW_INVALID, status);
            if (!strstr(error.text, cases[i].sentence) || !strstr(error.text, "labels.json"))
                CHECK_STR(cases[i].sentence, error.text);
        }
        if (status == GW_OK) gw_blob_free(&blob);
    }
}

/* An image moved by hand, pixel by pixel. */
static float moved_pixel(const float *image, float black, int y, int x, int down, int right, int flip) {
    y += down;
    x += right;
    if (y < 0 || y >= SIDE || x < 0 || x >= SIDE) return black;
    return image[y * SIDE + (flip ? SIDE - 1 - x : x)];
}

static bool is_move_of(const float *image, const float *moved, float black, int down, int right, int flip) {
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            if (moved[y * SIDE + x] != moved_pixel(image, black, y, x, down, right, flip)) return false;
    return true;
}

/* Every augmented image is a move of its original; all moves come up; seed, epoch and index decide. */
static void augmented(void) {
    gw_dataset *dataset;
    static float plain[256 * SIDE * SIDE], once[256 * SIDE * SIDE], again[256 * SIDE * SIDE];
    int kinds[256], seen[18] = {0};
    CHECK_EQ(GW_OK, open_as("synthetic:count=256,height=4,width=4", GW_SPLIT_TRAIN, 0, &dataset, NULL));
    const gw_dataset_info *info = gw_dataset_describe(dataset);
    float black = -info->mean[0] / info->deviation[0];
    gw_augment augment = {.pad = 1, .flip = true, .seed = 3, .epoch = 2};
    gw_dataset_batch(dataset, NULL, NULL, 0, 256, plain, kinds);
    gw_dataset_batch(dataset, &augment, NULL, 0, 256, once, kinds);
    for (int i = 0; i < 256; i++) {
        int matches = 0;
        for (int move = 0; move < 18; move++) {
            int down = move / 2 % 3 - 1, right = move / 6 - 1;
            if (!is_move_of(plain + i * 16, once + i * 16, black, down, right, move % 2)) continue;
            matches++;
            seen[move]++;
        }
        CHECK(matches >= 1);
    }
    for (int move = 0; move < 18; move++) CHECK(seen[move] > 0);
    uint32_t order[256]; /* other places in other batches: the same images */
    for (uint32_t i = 0; i < 256; i++) order[i] = 255 - i;
    gw_dataset_batch(dataset, &augment, order, 100, 56, again, kinds);
    for (int i = 0; i < 56; i++) CHECK(memcmp(again + i * 16, once + (155 - i) * 16, 16 * sizeof(float)) == 0);
    augment.epoch = 3;
    gw_dataset_batch(dataset, &augment, NULL, 0, 256, again, kinds);
    CHECK(memcmp(again, once, sizeof once) != 0);
    gw_dataset_close(dataset);
}

static void synthetic(void) {
    gw_dataset *dataset, *other;
    float image[9 * 7 * 3], same[9 * 7 * 3];
    int label;
    CHECK_EQ(GW_OK, open_as("synthetic", GW_SPLIT_TEST, 0, &dataset, NULL));
    const gw_dataset_info *info = gw_dataset_describe(dataset);
    CHECK(info->count == 1024 && info->height == 28 && info->channels == 1 && info->classes == 10);
    gw_dataset_close(dataset);
    const char *name = "synthetic:count=30,height=9,width=7,channels=3,classes=4,seed=8";
    CHECK_EQ(GW_OK, open_as(name, GW_SPLIT_TRAIN, 0, &dataset, NULL));
    name = "synthetic:count=20,height=9,width=7,channels=3,classes=4,seed=8"; /* an example stays what it is */
    CHECK_EQ(GW_OK, open_as(name, GW_SPLIT_TRAIN, 0, &other, NULL));
    gw_dataset_batch(dataset, NULL, NULL, 19, 1, image, &label);
    CHECK_EQ(3, label);
    gw_dataset_batch(other, NULL, NULL, 19, 1, same, &label);
    CHECK(memcmp(image, same, sizeof image) == 0);
    gw_dataset_close(other);
    gw_dataset_close(dataset);
    REFUSED("synthetic:cuont=3", GW_SPLIT_TRAIN, "\"cuont=3\"", "count");
    REFUSED("synthetic:count=0", GW_SPLIT_TRAIN, "\"count=0\"", "from 1 to");
    REFUSED("synthetic:count=4294967295", GW_SPLIT_TRAIN, "4294967295", "more than 4 GiB");
    REFUSED("synthetics", GW_SPLIT_TRAIN, "neither a data set nor a path", "did you mean \"synthetic\"");
}

/* A window's targets are its inputs one further; windows follow one another; the last tenth is the test. */
static void text_windows(void) {
    files_enter();
    uint8_t text[1000];
    int inputs[3 * 16], targets[3 * 16];
    gw_dataset *dataset;
    const uint32_t order[] = {5, 0, 55};
    for (int i = 0; i < 1000; i++) text[i] = (uint8_t)(i * 13 + i / 256);
    files_write("book", text, sizeof text);
    CHECK_EQ(GW_OK, open_as(files_path("book"), GW_SPLIT_TRAIN, 16, &dataset, NULL));
    const gw_dataset_info *info = gw_dataset_describe(dataset);
    CHECK(info->kind == GW_DATASET_TEXT && info->window == 16 && info->classes == 256);
    CHECK_EQ((900 - 1) / 16, info->count);
    gw_dataset_windows(dataset, order, 0, 3, inputs, targets);
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 16; t++) {
            CHECK_EQ(text[order[i] * 16 + (unsigned)t], inputs[i * 16 + t]);
            CHECK_EQ(text[order[i] * 16 + (unsigned)t + 1], targets[i * 16 + t]);
        }
    gw_dataset_close(dataset);
    CHECK_EQ(GW_OK, open_as(files_path("book"), GW_SPLIT_TEST, 16, &dataset, NULL));
    CHECK_EQ((100 - 1) / 16, gw_dataset_describe(dataset)->count);
    gw_dataset_windows(dataset, NULL, 5, 1, inputs, targets);
    CHECK_EQ(text[900 + 5 * 16], inputs[0]);
    gw_dataset_close(dataset);
    refused(__LINE__, files_path("book"), GW_SPLIT_TEST, 100, "book is too short", "an example needs 101");
    refused(__LINE__, files_path("book"), GW_SPLIT_TEST, 0, "book is text", "1 or more");
    files_leave();
}

static void text_directory(void) {
    files_enter();
    gw_blob text;
    files_write("b.txt", "second", 6);
    files_write("a.txt", "first", 5);
    files_write("c.json", "{}", 2);
    CHECK_EQ(GW_OK, gw_text_load(files_directory, &text, NULL));
    CHECK(text.size == 13 && memcmp(text.data, "first\nsecond\n", 13) == 0);
    gw_blob_free(&text);
    files_leave();
}

/* Every pair of bytes once: no string comes twice, so that a window of 64 KiB fills the table. */
static void all_pairs(uint8_t *text, size_t size) {
    size_t used = 0;
    for (int a = 0; used < size; a = (a + 1) % 256) {
        text[used++] = (uint8_t)a;
        for (int b = a + 1; b < 256 && used + 1 < size; b++) {
            text[used++] = (uint8_t)a;
            text[used++] = (uint8_t)b;
        }
    }
}

/* Texts through an encoder and back: runs (a code that names itself), all bytes, tables that fill up, clears. */
static void archives(void) {
    enum { SIZE = 150000, WINDOW = 65536 };
    uint8_t *text = malloc(SIZE), *packed = malloc(4 * SIZE);
    gw_rng rng = gw_rng_make(9, 9);
    for (int kind = 0; kind < 5; kind++) {
        for (size_t clear_at = 0; clear_at <= 30000; clear_at += 15000) {
            gw_blob blob;
            gw_error error = {.status = GW_OK};
            for (int i = 0; i < SIZE; i++) {
                int bound[] = {1, 2, 26, 256, 256};
                text[i] = (uint8_t)gw_rng_below(&rng, (uint64_t)bound[kind]);
            }
            if (kind == 4) all_pairs(text, SIZE);
            memset(packed, 0, 4 * SIZE);
            size_t size = files_archive(text, SIZE, WINDOW, clear_at, packed);
            CHECK_EQ(GW_OK, gw_archive_decode(packed, size, "archive", &blob, &error));
            CHECK_STR("", error.text);
            CHECK(error.status != GW_OK || (blob.size == SIZE && memcmp(blob.data, text, SIZE) == 0));
            if (error.status == GW_OK) gw_blob_free(&blob);
            error = (gw_error){.status = GW_OK};
            CHECK_EQ(GW_INVALID, gw_archive_decode(packed, size - 1, "archive", &blob, &error));
            CHECK(strstr(error.text, "archive is truncated"));
        }
    }
    free(packed);
    free(text);
}

static void unknown_names(void) {
    files_enter();
    setenv("GRADWIRE_CACHE", files_directory, 1);
    REFUSED("fashoin-mnist", GW_SPLIT_TRAIN, "neither a data set nor a path", "did you mean \"fashion-mnist\"");
    REFUSED("/nowhere", GW_SPLIT_TRAIN, "\"/nowhere\"", "nor a path");
    REFUSED("mnist", GW_SPLIT_TRAIN, "the data set mnist is not here", "gradwire data get mnist");
    CHECK(mkdir(files_path("mnist"), 0755) == 0);
    REFUSED("mnist", GW_SPLIT_TRAIN, files_path("mnist"), "expected was train-images");
    unsetenv("GRADWIRE_CACHE");
    files_leave();
}

/* A prepared data set opens by its name and has the same contents. */
static void prepared(void) {
    files_enter();
    uint8_t pixels[6 * SIDE * SIDE * 3];
    gw_images images;
    gw_error error = {.status = GW_OK};
    write_sheets(pixels);
    CHECK(mkdir(files_path("cifar10"), 0755) == 0);
    CHECK_EQ(GW_OK, gw_source_prepare(gw_source_find("cifar10"), files_directory, files_path("cifar10"), &error));
    CHECK_STR("", error.text);
    CHECK_EQ(GW_OK, gw_images_load(files_path("cifar10"), GW_SPLIT_TRAIN, &images, &error));
    CHECK(images.count == 5 && images.channels == 3 && images.pixel_blob.mapped);
    CHECK(memcmp(images.pixels, pixels, 5 * SIDE * SIDE * 3) == 0);
    gw_images_free(&images);
    gw_dataset *dataset;
    setenv("GRADWIRE_CACHE", files_directory, 1);
    CHECK_EQ(GW_OK, open_as("cifar10", GW_SPLIT_TEST, 0, &dataset, &error));
    CHECK_STR("", error.text);
    CHECK(gw_dataset_describe(dataset)->mean[2] > 0.4f);
    gw_dataset_close(dataset);
    unsetenv("GRADWIRE_CACHE");
    files_leave();
}

TEST_MAIN(CASE(idx_set), CASE(idx_damage), CASE(idx_labels_missing_or_few), CASE(gzip_damage), CASE(gzip_members),
          CASE(sheet_set), CASE(sheet_damage), CASE(labels), CASE(augmented), CASE(synthetic), CASE(text_windows),
          CASE(text_directory), CASE(archives), CASE(unknown_names), CASE(prepared))
