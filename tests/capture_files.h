/* capture_files.h - for tests of recordings: captures in a folder of their own, written by ranks of this process. */
#ifndef GW_TEST_CAPTURE_FILES_H
#define GW_TEST_CAPTURE_FILES_H

#include <sys/stat.h>

#include "insight/analyses.h"
#include "test.h"
#include "trace/trace.h"

static char folder[] = "/tmp/gradwire-trace-XXXXXX";

static inline const char *place(const char *name) {
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline void remove_file(const char *name) { unlink(place(name)); }

static inline uint8_t *slurp(const char *name, size_t *size) {
    FILE *file = fopen(place(name), "re");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0) abort();
    uint8_t *bytes = malloc((size_t)info.st_size + 1);
    if (!bytes || fread(bytes, 1, (size_t)info.st_size, file) != (size_t)info.st_size) abort();
    bytes[info.st_size] = 0;
    *size = (size_t)info.st_size;
    fclose(file);
    return bytes;
}

/* A rank on a host of its own, as recorded in the run that began at `origin`. */
static inline gw_trace *begin_on_host(int rank, int world, int host, gw_time origin) {
    gw_error error = {.rank = -1};
    gw_trace *trace = NULL;
    char path[128];
    snprintf(path, sizeof path, host ? "%s.host%d" : "%s", place("c.gwt"), host);
    gw_trace_config config = {.rank = rank, .capture = path,
                              .about = {.world = world, .host_number = host, .origin = origin, .host = "here",
                                        .strategy = "arch=ring"}};
    CHECK_EQ(GW_OK, gw_trace_create(NULL, path, &error));
    CHECK_EQ(GW_OK, gw_trace_open(&trace, &config, &error));
    return trace;
}

static inline gw_trace *begin(int rank, int world, int64_t offset, bool timeline, size_t places) {
    gw_error error = {.rank = -1};
    gw_trace *trace = NULL;
    char paths[2][128];
    snprintf(paths[0], sizeof paths[0], "%s", place("t.json"));
    snprintf(paths[1], sizeof paths[1], "%s", place("c.gwt"));
    gw_trace_config config = {.rank = rank, .timeline = timeline ? paths[0] : NULL, .capture = paths[1],
                              .about = {.world = world, .offset = offset, .origin = 1000, .host = "here",
                                        .strategy = "arch=ring"},
                              .places = places};
    if (rank == 0) CHECK_EQ(GW_OK, gw_trace_create(config.timeline, config.capture, &error));
    CHECK_EQ(GW_OK, gw_trace_open(&trace, &config, &error));
    return trace;
}

static inline gw_view look(void) {
    gw_error error = {.rank = -1};
    gw_view view = {0};
    CHECK_EQ(GW_OK, gw_view_load(place("c.gwt"), &view, &error));
    return view;
}

static inline void in_a_folder(void) { CHECK(mkdtemp(folder) != NULL); }

static inline void clean_up(void) {
    static const char *const files[] = {"c.gwt", "t.json", "r.html"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) remove_file(files[i]);
    CHECK(rmdir(folder) == 0);
}

#endif
