/* test_file.c - base/file and base/subprocess: files replaced whole or not at all, programs run to their end. */
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/subprocess.h"

static char directory[] = "/tmp/gradwire-file-XXXXXX", path[64];

static const gw_error none = {.rank = -1};

static void put_text(const void *text, FILE *out) { fputs(text, out); }

/* The disk is full in the middle of it. */
static void put_to_full_disk(const void *text, FILE *out) {
    fputs(text, out);
    if (!freopen("/dev/full", "w", out)) abort();
    fputs("the rest", out);
}

static void check_holds(const char *expected) {
    gw_error error = none;
    char *bytes = NULL;
    size_t size = 0;
    CHECK_EQ(GW_OK, gw_file_read(path, 1 << 10, &bytes, &size, &error));
    CHECK(size == strlen(expected) && memcmp(bytes, expected, size) == 0);
    free(bytes);
}

static void replaces_whole_or_not_at_all(void) {
    gw_error error = none;
    CHECK_EQ(GW_OK, gw_file_replace(path, put_text, "first", &error));
    check_holds("first");
    CHECK_EQ(GW_SYSTEM, gw_file_replace(path, put_to_full_disk, "second", &error));
    CHECK(strstr(error.text, "No space left on device") != NULL);
    check_holds("first");
    CHECK_EQ(GW_OK, gw_file_replace(path, put_text, "third", &error));
    check_holds("third");
    CHECK_EQ(0, unlink(path));
    CHECK_EQ(0, rmdir(directory)); /* nothing is left beside it */
    error = none;
    CHECK_EQ(GW_SYSTEM, gw_file_replace(path, put_text, "fourth", &error));
    CHECK(strstr(error.text, path) != NULL && strstr(error.text, "No such file or directory") != NULL);
    CHECK_EQ(0, mkdir(directory, 0700));
}

static void devices_are_written_in_place(void) {
    gw_error error = none;
    struct stat before, after;
    CHECK_EQ(0, stat("/dev/null", &before));
    CHECK_EQ(GW_OK, gw_file_replace("/dev/null", put_text, "nothing", &error));
    CHECK_EQ(0, stat("/dev/null", &after));
    CHECK(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    CHECK_EQ(GW_SYSTEM, gw_file_replace("/dev/full", put_text, "nothing", &error));
}

static void reads_no_more_than_it_may(void) {
    gw_error error = none;
    char *bytes = NULL;
    size_t size = 0;
    CHECK_EQ(GW_OK, gw_file_replace(path, put_text, "12345", &error));
    CHECK_EQ(GW_OK, gw_file_read(path, 5, &bytes, &size, &error));
    CHECK_EQ(5, size);
    free(bytes);
    CHECK_EQ(GW_INVALID, gw_file_read(path, 4, &bytes, &size, &error));
    CHECK_EQ(GW_SYSTEM, gw_file_read(directory, 4, &bytes, &size, &error));
    CHECK_EQ(0, unlink(path));
    CHECK_EQ(GW_SYSTEM, gw_file_read(path, 4, &bytes, &size, &error));
}

static gw_status shell(const char *script, double seconds, gw_error *error) {
    if (error) *error = none;
    return gw_subprocess_run(
        &(gw_subprocess){.words = (const char *const[]){"sh", "-c", script, NULL}, .seconds = seconds}, error);
}

static void tools_run_to_their_end(void) {
    gw_error error = none;
    CHECK_EQ(GW_OK, shell("exit 0", 20, &error));
    CHECK_EQ(GW_SYSTEM, shell("echo first; echo; echo last >&2; exit 3", 20, &error));
    CHECK_STR("\"sh -c echo first; echo; echo last >&2; exit 3\" failed: last", error.text);
    CHECK_EQ(GW_SYSTEM, shell("echo 'Error: argument'; echo more; exit 1", 20, &error));
    CHECK(strstr(error.text, "failed: Error: argument") != NULL);
    CHECK_EQ(GW_SYSTEM, shell("kill -9 $$", 20, &error));
    CHECK(strstr(error.text, "it said nothing") != NULL);
    CHECK_EQ(GW_SYSTEM, shell("exit 1", 20, NULL));
    error = none;
    CHECK_EQ(GW_UNSUPPORTED,
             gw_subprocess_run(&(gw_subprocess){.words = (const char *const[]){"gw-no-such-tool", NULL}, .seconds = 20},
                               &error));
    CHECK_STR("there is no gw-no-such-tool on this machine", error.text);
}

static void tools_have_a_deadline(void) {
    gw_error error = none;
    gw_time began = gw_clock_now();
    CHECK_EQ(GW_TIMEOUT, shell("exec sleep 60", 0.1, &error));
    CHECK(gw_clock_now() - began < 4 * GW_SECOND);
    CHECK(strstr(error.text, "has been ended") != NULL);
}

static void in_a_folder(void) {
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
}
static void and_leaves_it(void) { CHECK_EQ(0, rmdir(directory)); }

TEST_MAIN(CASE(in_a_folder), CASE(replaces_whole_or_not_at_all), CASE(devices_are_written_in_place),
          CASE(reads_no_more_than_it_may), CASE(tools_run_to_their_end), CASE(tools_have_a_deadline),
          CASE(and_leaves_it))
