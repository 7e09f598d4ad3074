/* capture_index.c - see capture_index.h. */
#include "insight/capture_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "insight/capture_read.h"

#define SPAN_MAX (INT64_C(1) << 53) /* ns from the beginning to any event: about a hundred days */

/* ---- sorting events ---- */

static int by_rank_kind_begin(const void *a, const void *b) {
    const gw_insight_event *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->is.kind != y->is.kind) return x->is.kind < y->is.kind ? -1 : 1;
    if (x->is.begin != y->is.begin) return x->is.begin < y->is.begin ? -1 : 1;
    return x->is.end < y->is.end ? -1 : x->is.end > y->is.end;
}

/* The origin of any rank with a RANK block; if there is none, the earliest event. */
static uint64_t find_origin(const gw_insight *in) {
    for (int r = 0; r < in->rank_count; r++)
        if (in->ranks[r].introduced) return in->ranks[r].about.origin;
    uint64_t earliest = UINT64_MAX;
    for (size_t i = 0; i < in->event_count; i++)
        if (in->events[i].is.begin < earliest) earliest = in->events[i].is.begin;
    return in->event_count ? earliest : 0;
}

/* Converts times to the common clock, none negative; drops events with impossible times. */
static void align(gw_insight *in) {
    uint64_t origin = find_origin(in);
    int64_t lowest = 0;
    size_t kept = 0;
    for (size_t i = 0; i < in->event_count; i++) {
        gw_insight_event e = in->events[i];
        uint64_t shift = (uint64_t)in->ranks[e.rank].about.offset - origin;
        int64_t begin = (int64_t)(e.is.begin + shift), took = (int64_t)(e.is.end - e.is.begin);
        if (begin < -SPAN_MAX || begin > SPAN_MAX || took > SPAN_MAX) continue;
        if (begin < lowest) lowest = begin;
        e.is.begin = (uint64_t)begin;
        e.is.end = (uint64_t)(begin + took);
        in->events[kept++] = e;
    }
    in->odd_events = in->event_count - kept;
    in->event_count = kept;
    for (size_t i = 0; i < kept; i++) {
        in->events[i].is.begin -= (uint64_t)lowest;
        in->events[i].is.end -= (uint64_t)lowest;
        if (in->events[i].is.end > in->end) in->end = in->events[i].is.end;
    }
}

static bool index_events(gw_insight *in) {
    size_t cells = (size_t)in->rank_count * GW_TRACE_KINDS, at = 0;
    in->first = calloc(cells + 1, sizeof *in->first);
    in->reach = calloc(in->event_count + 1, sizeof *in->reach);
    if (!in->events) in->events = calloc(1, sizeof *in->events); /* so that pointers into it are valid */
    if (!in->first || !in->reach || !in->events) return false;
    if (in->event_count) qsort(in->events, in->event_count, sizeof *in->events, by_rank_kind_begin);
    for (size_t cell = 0; cell <= cells; cell++) {
        while (at < in->event_count && (size_t)in->events[at].rank * GW_TRACE_KINDS + in->events[at].is.kind < cell)
            at++;
        in->first[cell] = at;
    }
    for (size_t cell = 0; cell < cells; cell++) {
        gw_time latest = 0;
        for (size_t i = in->first[cell]; i < in->first[cell + 1]; i++) {
            if (in->events[i].is.end > latest) latest = in->events[i].is.end;
            in->reach[i] = latest;
        }
    }
    return true;
}

/* ---- opening ---- */

static gw_status finish(gw_capture_reader *r, bool any, const char *name, gw_insight **out, gw_error *error) {
    gw_insight *in = r->insight;
    gw_status status = GW_OK;
    gw_capture_reader_name(r, "");
    gw_capture_reader_free(r);
    if (!any)
        status = gw_fail(error, GW_INVALID,
                         "%s is not a capture: there is no block of one in it (one is recorded with "
                         "--capture FILE; a file of --timeline is opened by Perfetto)",
                         name);
    if (!status) align(in);
    if (!status && (r->no_memory || !index_events(in)))
        status = gw_fail(error, GW_MEMORY, "%s does not fit in memory", name);
    if (status) gw_insight_close(in);
    else *out = in;
    return status;
}

gw_status gw_insight_parse(const uint8_t *bytes, size_t size, const char *name, gw_insight **out, gw_error *error) {
    gw_capture_reader reading = {.insight = calloc(1, sizeof *reading.insight)};
    if (!reading.insight) return gw_fail(error, GW_MEMORY, "no memory to read %s", name);
    bool any = gw_capture_reader_blocks(&reading, bytes, size);
    return finish(&reading, any, name, out, error);
}

/* False if the ranks that are known so far are of another run. A file without a whole RANK block may be of any. */
static bool same_run(const gw_insight *in, const uint8_t *bytes, size_t size) {
    gw_capture_rank theirs;
    if (!gw_capture_reader_first(bytes, size, &theirs)) return true;
    for (int r = 0; r < in->rank_count; r++)
        if (in->ranks[r].introduced)
            return in->ranks[r].about.origin == theirs.origin && in->ranks[r].about.wall == theirs.wall;
    return true;
}

static void leave_out(gw_insight *in, const char *path) {
    if (!in->other_runs++) snprintf(in->other_run, sizeof in->other_run, "%s", path);
}

/* A missing file is GW_OK, with *there false. */
static gw_status add_file(gw_capture_reader *r, const char *path, bool *there, bool *any, gw_error *error) {
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *there = fd >= 0;
    if (fd < 0) return GW_OK;
    gw_status status = GW_OK;
    void *bytes = NULL;
    if (fstat(fd, &file) != 0) status = gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    else if (!S_ISREG(file.st_mode)) status = gw_fail(error, GW_INVALID, "%s is not a file", path);
    else if (file.st_size > 0) {
        bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) status = gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
        else if (!same_run(r->insight, bytes, (size_t)file.st_size)) leave_out(r->insight, path);
        else *any |= gw_capture_reader_blocks(r, bytes, (size_t)file.st_size);
        if (!status) munmap(bytes, (size_t)file.st_size);
    }
    close(fd);
    return status;
}

gw_status gw_insight_load(const char *path, gw_insight **out, gw_error *error) {
    gw_capture_reader reading = {.insight = calloc(1, sizeof *reading.insight)};
    if (!reading.insight) return gw_fail(error, GW_MEMORY, "no memory to read %s", path);
    bool any = false, there = false;
    gw_status status = add_file(&reading, path, &there, &any, error);
    if (!status && !there) status = gw_fail(error, GW_INVALID, "%s cannot be read: %s", path, strerror(errno));
    int ranks = gw_insight_world(reading.insight); /* at most one host each; unknown: up to the first missing file */
    for (int host = 1; !status && (ranks ? host < ranks && host < GW_INSIGHT_RANKS_MAX : there); host++) {
        char beside[4096];
        snprintf(beside, sizeof beside, "%.4000s.host%d", path, host);
        status = add_file(&reading, beside, &there, &any, error);
    }
    if (!status) return finish(&reading, any, path, out, error);
    gw_capture_reader_free(&reading);
    gw_insight_close(reading.insight);
    return status;
}

void gw_insight_close(gw_insight *in) {
    if (!in) return;
    for (uint32_t i = 0; i < in->name_count; i++) free(in->names[i]);
    free(in->names);
    free(in->ranks);
    free(in->events);
    free(in->first);
    free(in->reach);
    free(in);
}

/* ---- queries ---- */

int gw_insight_world(const gw_insight *in) {
    for (int r = 0; r < in->rank_count; r++)
        if (in->ranks[r].introduced) return in->ranks[r].about.world;
    return 0;
}

int gw_insight_ranks(const gw_insight *in) {
    int ranks = 0;
    for (int r = 0; r < in->rank_count; r++) ranks += in->ranks[r].introduced;
    return ranks;
}

int gw_insight_hosts(const gw_insight *in) {
    int hosts = 0;
    for (int r = 0; r < in->rank_count; r++) {
        int before = 0;
        while (before < r &&
               !(in->ranks[before].introduced && in->ranks[before].about.host_number == in->ranks[r].about.host_number))
            before++;
        hosts += in->ranks[r].introduced && before == r;
    }
    return hosts;
}

/* Steps without a strategy: those of PyTorch lacked the forward pass and the waiting after backward. */
static bool has_old_steps(const gw_insight *in) {
    size_t steps;
    for (int r = 0; r < in->rank_count; r++)
        if (gw_insight_of(in, r, GW_TRACE_STEP, &steps)->is.name == 0 && steps) return true;
    return false;
}

bool gw_insight_warning(const gw_insight *in, char text[GW_ERROR_TEXT_BYTES]) {
    char bytes[GW_UNIT_TEXT], open[64] = "";
    uint64_t dropped = 0;
    int unended = 0, silent = 0;
    for (int r = 0; r < in->rank_count; r++) {
        dropped += in->ranks[r].dropped;
        unended += in->ranks[r].introduced && !in->ranks[r].ended;
        silent += !in->ranks[r].introduced;
    }
    int used = 0;
    text[0] = 0;
#define SAY(...) used += snprintf(text + used, (size_t)(GW_ERROR_TEXT_BYTES - used), __VA_ARGS__)
    if (unended) snprintf(open, sizeof open, "%d rank%s did not end the recording", unended, unended > 1 ? "s" : "");
    if (unended) SAY("%s%s", used ? "; " : "", open);
    if (silent) SAY("%s%d rank%s said nothing about itself", used ? "; " : "", silent, silent > 1 ? "s" : "");
    if (in->cut_blocks)
        SAY("%s%" PRIu64 " block%s cut short", used ? "; " : "", in->cut_blocks, in->cut_blocks > 1 ? "s are" : " is");
    if (in->damaged_bytes) SAY("%s%s cannot be read", used ? "; " : "", gw_bytes_format(in->damaged_bytes, bytes));
    if (in->odd_events) SAY("%s%" PRIu64 " events have impossible times", used ? "; " : "", in->odd_events);
    if (in->other_runs)
        SAY("%s%s%s of another run and left out", used ? "; " : "", in->other_run,
            in->other_runs > 1 ? " and other files beside it are" : " is");
    if (has_old_steps(in)) SAY("%san older gradwire recorded it, whose steps may lack waiting", used ? "; " : "");
    if (dropped) SAY("%s%" PRIu64 " events were dropped because they came too fast", used ? "; " : "", dropped);
#undef SAY
    return used > 0;
}

const gw_insight_event *gw_insight_of(const gw_insight *in, int rank, gw_trace_kind kind, size_t *count) {
    const size_t *at = &in->first[(size_t)rank * GW_TRACE_KINDS + (size_t)kind];
    *count = at[1] - at[0];
    return in->events + at[0];
}

const gw_insight_event *gw_insight_from(const gw_insight *in, int rank, gw_trace_kind kind, gw_time time,
                                        size_t *count) {
    const size_t *at = &in->first[(size_t)rank * GW_TRACE_KINDS + (size_t)kind];
    size_t low = at[0], high = at[1];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (in->reach[middle] <= time) low = middle + 1;
        else high = middle;
    }
    *count = at[1] - low;
    return in->events + low;
}

const char *gw_insight_name(const gw_insight *in, uint32_t name) {
    return name < in->name_count ? in->names[name] : "";
}

const char *gw_insight_about(const gw_insight *in, const gw_trace_event *event) {
    if (event->kind == GW_TRACE_OPERATION && event->index) return gw_insight_name(in, event->index);
    return gw_insight_name(in, event->name);
}
