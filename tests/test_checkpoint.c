/* test_checkpoint.c - checkpoints: round trips, refusal of damage in every byte, use of the previous file.
 */
#include <sys/stat.h>

#include "base/rng.h"
#include "store/checkpoint.h"
#include "store/checkpoint_format.h"
#include "test.h"

#define FILE_BYTES_MAX 4096

static char directory[] = "/tmp/gradwire-checkpoint-XXXXXX";
static char path[128], previous[160], beside[160];

static void enter(void) {
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/model", directory);
    snprintf(previous, sizeof previous, "%s.previous", path);
    snprintf(beside, sizeof beside, "%s.writing", path);
}

static void leave(void) {
    unlink(path);
    unlink(previous);
    unlink(beside);
    CHECK(rmdir(directory) == 0); /* nothing else was left behind */
}

/* A checkpoint whose section "step" holds the number. */
static gw_status save(int step, gw_error *error) {
    gw_checkpoint_writer *writer;
    float weights[37];
    for (int i = 0; i < 37; i++) weights[i] = (float)(i + step);
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    if (status != GW_OK) return status;
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, "step", &step, sizeof step, error));
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, "nothing", NULL, 0, error));
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, "weights", weights, sizeof weights, error));
    return gw_checkpoint_commit(writer, error);
}

/* The number in the checkpoint, -1 where there is none. */
static int saved_step(gw_error *error) {
    gw_checkpoint *checkpoint;
    size_t bytes = 0;
    int step = -1;
    if (gw_checkpoint_open(path, &checkpoint, error) != GW_OK) return -1;
    const int *section = gw_checkpoint_find(checkpoint, "step", &bytes);
    CHECK(section && bytes == sizeof step);
    if (section) step = *section;
    gw_checkpoint_close(checkpoint);
    return step;
}

static size_t slurp(const char *name, uint8_t bytes[FILE_BYTES_MAX]) {
    FILE *file = fopen(name, "rb");
    size_t size = file ? fread(bytes, 1, FILE_BYTES_MAX, file) : 0;
    if (file) fclose(file);
    CHECK(size > 0 && size < FILE_BYTES_MAX);
    return size;
}

static void spill(const char *name, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(name, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size);
    if (file) fclose(file);
}

static void round_trip(void) {
    enter();
    gw_error error = {.status = GW_OK};
    gw_checkpoint *checkpoint;
    size_t bytes = 1;
    CHECK_EQ(GW_OK, save(7, &error));
    CHECK(access(beside, F_OK) != 0);
    CHECK_EQ(GW_OK, gw_checkpoint_open(path, &checkpoint, &error));
    CHECK_STR(path, gw_checkpoint_path(checkpoint));
    CHECK_EQ(3, gw_checkpoint_sections(checkpoint));
    CHECK_STR("nothing", gw_checkpoint_section_name(checkpoint, 1));
    CHECK(gw_checkpoint_find(checkpoint, "nothing", &bytes) != NULL);
    CHECK_EQ(0, bytes);
    const float *weights = gw_checkpoint_find(checkpoint, "weights", &bytes);
    CHECK(weights && bytes == 37 * sizeof *weights && weights[36] == 43.0f);
    CHECK_EQ(0, (uintptr_t)weights % GW_CHECKPOINT_ALIGN);
    CHECK(gw_checkpoint_find(checkpoint, "weight", &bytes) == NULL);
    gw_checkpoint_close(checkpoint);
    leave();
}

static void no_sections(void) {
    enter();
    gw_error error = {.status = GW_OK};
    gw_checkpoint_writer *writer;
    gw_checkpoint *checkpoint;
    CHECK_EQ(GW_OK, gw_checkpoint_begin(path, &writer, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_commit(writer, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_open(path, &checkpoint, &error));
    CHECK_EQ(0, gw_checkpoint_sections(checkpoint));
    gw_checkpoint_close(checkpoint);
    leave();
}

/* A section large enough to be written in parts, and many small ones. */
static void large_and_many(void) {
    enter();
    gw_error error = {.status = GW_OK};
    gw_checkpoint_writer *writer;
    gw_checkpoint *checkpoint;
    size_t size = ((size_t)9 << 20) + 13, bytes;
    uint8_t *data = malloc(size);
    char name[32];
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 31 + (i >> 8));
    CHECK_EQ(GW_OK, gw_checkpoint_begin(path, &writer, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, "large", data, size, &error));
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        CHECK_EQ(GW_OK, gw_checkpoint_add(writer, name, &i, sizeof i, &error));
    }
    CHECK_EQ(GW_OK, gw_checkpoint_commit(writer, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_open(path, &checkpoint, &error));
    const void *large = gw_checkpoint_find(checkpoint, "large", &bytes);
    CHECK(large && bytes == size && memcmp(large, data, size) == 0);
    const int *last = gw_checkpoint_find(checkpoint, "layer299", &bytes);
    CHECK(last && *last == 299);
    gw_checkpoint_close(checkpoint);
    free(data);
    leave();
}

static void wrong_names(void) {
    enter();
    gw_error error = {.status = GW_OK}, second = {.status = GW_OK};
    gw_checkpoint_writer *writer;
    char name[GW_SECTION_NAME_BYTES + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_EQ(GW_OK, save(1, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_begin(path, &writer, &error));
    CHECK_EQ(GW_INVALID, gw_checkpoint_add(writer, name, "", 0, NULL));
    CHECK_EQ(GW_INVALID, gw_checkpoint_add(writer, "", "", 0, NULL));
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, name + 1, "", 0, &error));
    CHECK_EQ(GW_INVALID, gw_checkpoint_add(writer, name + 1, "", 0, &error));
    CHECK(strstr(error.text, "already"));
    CHECK_EQ(GW_INVALID, gw_checkpoint_commit(writer, &second)); /* after an error nothing is replaced */
    CHECK_EQ(1, saved_step(NULL));
    CHECK(access(beside, F_OK) != 0);
    leave();
}

static void previous_is_kept(void) {
    enter();
    gw_error error = {.status = GW_OK};
    for (int step = 1; step <= 3; step++) CHECK_EQ(GW_OK, save(step, &error));
    CHECK_EQ(3, saved_step(&error));
    unlink(path); /* as between the two renames */
    CHECK_EQ(2, saved_step(&error));
    leave();
}

static void abandoned(void) {
    enter();
    gw_error error = {.status = GW_OK};
    gw_checkpoint_writer *writer;
    CHECK_EQ(GW_OK, save(1, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_begin(path, &writer, &error));
    CHECK_EQ(GW_OK, gw_checkpoint_add(writer, "step", "oops", 4, &error));
    gw_checkpoint_abandon(writer);
    CHECK(access(beside, F_OK) != 0);
    CHECK_EQ(1, saved_step(&error));
    leave();
}

/* The unfinished file of a killed writer is overwritten and never read. */
static void writer_died(void) {
    enter();
    gw_error error = {.status = GW_OK};
    uint8_t rubbish[2000];
    memset(rubbish, 0xaa, sizeof rubbish);
    CHECK_EQ(GW_OK, save(1, &error));
    spill(beside, rubbish, sizeof rubbish);
    CHECK_EQ(1, saved_step(&error));
    CHECK_EQ(GW_OK, save(2, &error));
    CHECK_EQ(2, saved_step(&error));
    leave();
}

/* Cut at every byte: refused by name, and the previous one is used. */
static void every_cut(void) {
    enter();
    gw_error error = {.status = GW_OK};
    uint8_t bytes[FILE_BYTES_MAX];
    gw_checkpoint *checkpoint;
    CHECK_EQ(GW_OK, save(1, &error));
    CHECK_EQ(GW_OK, save(2, &error));
    size_t size = slurp(path, bytes);
    for (size_t cut = 0; cut < size; cut++) {
        gw_error damage = {.status = GW_OK};
        spill(path, bytes, cut);
        CHECK_EQ(GW_INVALID, gw_checkpoint_open_only(path, &checkpoint, &damage));
        CHECK(strstr(damage.text, path));
        CHECK_EQ(1, saved_step(&error));
    }
    leave();
}

static void every_flip(void) {
    enter();
    gw_error error = {.status = GW_OK};
    uint8_t bytes[FILE_BYTES_MAX];
    gw_checkpoint *checkpoint;
    CHECK_EQ(GW_OK, save(1, &error));
    size_t size = slurp(path, bytes);
    for (size_t bit = 0; bit < size * 8; bit++) {
        gw_error damage = {.status = GW_OK};
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQ(GW_INVALID, gw_checkpoint_parse(bytes, size, "altered", &checkpoint, &damage));
        CHECK(strstr(damage.text, "altered"));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK_EQ(GW_OK, gw_checkpoint_parse(bytes, size, "whole", &checkpoint, &error));
    gw_checkpoint_close(checkpoint);
    leave();
}

/* Random blocks of zeros, as a loss of power leaves them where a file system promises little. */
static void torn(void) {
    enter();
    gw_error error = {.status = GW_OK};
    uint8_t bytes[FILE_BYTES_MAX], copy[FILE_BYTES_MAX];
    gw_checkpoint *checkpoint;
    gw_rng rng = gw_rng_make(5, 0);
    CHECK_EQ(GW_OK, save(1, &error));
    size_t size = slurp(path, bytes);
    for (int i = 0; i < 2000; i++) {
        size_t first = gw_rng_below(&rng, size), length = gw_rng_below(&rng, size - first + 1);
        memcpy(copy, bytes, size);
        memset(copy + first, 0, length);
        if (memcmp(copy, bytes, size) == 0) continue;
        CHECK_EQ(GW_INVALID, gw_checkpoint_parse(copy, size, "torn", &checkpoint, NULL));
    }
    leave();
}

/* Saving over a damaged file must not push out the good one before it. */
static void damage_is_not_kept(void) {
    enter();
    gw_error error = {.status = GW_OK};
    uint8_t bytes[FILE_BYTES_MAX];
    CHECK_EQ(GW_OK, save(1, &error));
    CHECK_EQ(GW_OK, save(2, &error));
    size_t size = slurp(path, bytes);
    bytes[size / 2] ^= 1;
    spill(path, bytes, size);
    CHECK_EQ(GW_OK, save(3, &error));
    CHECK_EQ(3, saved_step(&error));
    unlink(path);
    CHECK_EQ(1, saved_step(&error));
    leave();
}

static void nothing_there(void) {
    enter();
    gw_error error = {.status = GW_OK};
    gw_checkpoint *checkpoint;
    CHECK_EQ(GW_SYSTEM, gw_checkpoint_open(path, &checkpoint, &error));
    CHECK(strstr(error.text, path) && strstr(error.text, "nor can the one before it be used"));
    error = (gw_error){.status = GW_OK};
    CHECK_EQ(GW_INVALID, gw_checkpoint_open_only(directory, &checkpoint, &error));
    CHECK(strstr(error.text, "is not a file"));
    gw_checkpoint_writer *writer;
    CHECK_EQ(GW_SYSTEM, gw_checkpoint_begin("/nowhere/at/all", &writer, NULL));
    leave();
}

int main(int argc, char **argv) {
    setenv("GRADWIRE_LOG", "error", 0); /* thousands of warnings are wanted here, but not to be read */
    static const test_case cases[] = {CASE(round_trip),  CASE(no_sections),        CASE(large_and_many),
                                      CASE(wrong_names), CASE(previous_is_kept),   CASE(abandoned),
                                      CASE(writer_died), CASE(every_cut),          CASE(every_flip),
                                      CASE(torn),        CASE(damage_is_not_kept), CASE(nothing_there)};
    return test_main(argc, argv, cases, (int)(sizeof cases / sizeof cases[0]));
}
