/* trace.c - see trace.h. */
#include "trace/trace.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "trace/event_ring.h"
#include "trace/writer.h"

enum { SLOTS = 65536, NAMES_FIRST = 64 };

#define PERIOD (50 * GW_MILLISECOND) /* between two looks at the events, at most */

struct gw_trace {
    gw_trace_ring ring;
    gw_time (*clock)(void *ctx);
    void *clock_ctx;
    gw_time opened;
    pthread_mutex_t lock; /* guards the names; the text of a name never moves */
    char **names;         /* names[0] is "" */
    uint32_t name_count, name_capacity;
    gw_trace_writer writer; /* the writer thread's, once started */
    uint32_t names_written; /* likewise */
    uint64_t dropped;       /* likewise: as written to the file */
    pthread_t thread;
    bool threaded;
    _Atomic bool stop;
    sem_t bell;
};

/* ---- recording ---- */

static gw_time monotonic(void *ctx) {
    (void)ctx;
    return gw_clock_now();
}

gw_time gw_trace_now(const gw_trace *trace) { return trace->clock(trace->clock_ctx); }

gw_time gw_trace_opened(const gw_trace *trace) { return trace->opened; }

void gw_trace_put(gw_trace *trace, const gw_trace_event *event) {
    if (gw_trace_ring_put(&trace->ring, event)) sem_post(&trace->bell);
}

void gw_trace_span(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint32_t part, uint64_t bytes,
                   gw_time begin, gw_time end) {
    if (!trace) return;
    gw_trace_put(trace, &(gw_trace_event){.begin = begin, .end = end, .number = step, .bytes = bytes, .name = name,
                                          .peer = -1, .index = part, .kind = (uint8_t)kind});
}

void gw_trace_value(gw_trace *trace, uint64_t step, uint32_t name, double value) {
    if (!trace) return;
    uint64_t bits;
    gw_time now = gw_trace_now(trace);
    memcpy(&bits, &value, sizeof bits);
    gw_trace_span(trace, GW_TRACE_VALUE, step, name, 0, bits, now, now);
}

/* ---- names ---- */

/* The lock is held. */
static uint32_t add_name(gw_trace *trace, const char *text) {
    if (trace->name_count == trace->name_capacity) {
        uint32_t capacity = trace->name_capacity ? 2 * trace->name_capacity : NAMES_FIRST;
        char **grown = realloc(trace->names, capacity * sizeof *grown);
        if (!grown) return 0;
        trace->names = grown;
        trace->name_capacity = capacity;
    }
    char *copy = strndup(text, GW_CAPTURE_TEXT_MAX);
    if (!copy) return 0;
    gw_capture_clean(copy);
    trace->names[trace->name_count] = copy;
    return trace->name_count++;
}

uint32_t gw_trace_name(gw_trace *trace, const char *text) {
    if (!trace) return 0;
    pthread_mutex_lock(&trace->lock);
    uint32_t found = 0;
    while (found < trace->name_count && strncmp(trace->names[found], text, GW_CAPTURE_TEXT_MAX) != 0) found++;
    if (found == trace->name_count) found = add_name(trace, text);
    pthread_mutex_unlock(&trace->lock);
    return found;
}

/* ---- the writer thread ---- */

/* The text of a name never moves, so it may be used without the lock. */
static const char *look_up(gw_trace *trace, uint32_t name) {
    pthread_mutex_lock(&trace->lock);
    const char *text = name < trace->name_count ? trace->names[name] : "";
    while (trace->names_written <= name && trace->names_written < trace->name_count) {
        gw_trace_writer_name(&trace->writer, trace->names_written, trace->names[trace->names_written]);
        trace->names_written++;
    }
    pthread_mutex_unlock(&trace->lock);
    return text;
}

static void drain(gw_trace *trace) {
    gw_trace_event event;
    while (gw_trace_ring_take(&trace->ring, &event)) {
        const char *name = look_up(trace, event.name);
        const char *label = event.kind == GW_TRACE_OPERATION ? look_up(trace, event.index) : "";
        gw_trace_writer_event(&trace->writer, &event, name, label);
    }
    uint64_t dropped = atomic_load_explicit(&trace->ring.dropped, memory_order_relaxed);
    if (dropped != trace->dropped) gw_trace_writer_dropped(&trace->writer, dropped);
    trace->dropped = dropped;
    gw_trace_writer_flush(&trace->writer);
}

static void *write_events(void *argument) {
    gw_trace *trace = argument;
    while (!atomic_load(&trace->stop)) {
        gw_time at = gw_clock_now() + PERIOD;
        struct timespec until = {.tv_sec = (time_t)(at / GW_SECOND), .tv_nsec = (long)(at % GW_SECOND)};
        sem_clockwait(&trace->bell, CLOCK_MONOTONIC, &until);
        drain(trace);
    }
    return NULL;
}

gw_status gw_trace_open(gw_trace **out, const gw_trace_config *config, gw_error *error) {
    gw_trace *trace = aligned_alloc(_Alignof(gw_trace), sizeof *trace);
    if (!trace) return gw_fail(error, GW_MEMORY, "out of memory for a recording");
    memset(trace, 0, sizeof *trace);
    trace->clock = config->clock ? config->clock : monotonic;
    trace->clock_ctx = config->clock_ctx;
    trace->opened = gw_clock_now();
    trace->writer.timeline = trace->writer.capture = -1;
    pthread_mutex_init(&trace->lock, NULL);
    sem_init(&trace->bell, 0, 0);
    gw_status status = GW_OK;
    if (!gw_trace_ring_open(&trace->ring, config->places ? config->places : SLOTS))
        status = gw_fail(error, GW_MEMORY, "out of memory for a recording");
    gw_trace_name(trace, "");
    trace->names_written = 1;
    if (!status) status = gw_trace_writer_open(&trace->writer, config, error);
    int failure = status ? 0 : gw_thread_start(&trace->thread, write_events, trace);
    trace->threaded = !status && !failure;
    if (failure) status = gw_fail(error, GW_SYSTEM, "cannot start the recording's thread: %s", strerror(failure));
    if (status) gw_trace_close(trace);
    else *out = trace;
    return status;
}

void gw_trace_close(gw_trace *trace) {
    if (!trace) return;
    if (trace->threaded) {
        atomic_store(&trace->stop, true);
        sem_post(&trace->bell);
        pthread_join(trace->thread, NULL);
        drain(trace);
    }
    gw_trace_writer_close(&trace->writer, trace->dropped);
    gw_trace_ring_close(&trace->ring);
    for (uint32_t i = 0; i < trace->name_count; i++) free(trace->names[i]);
    free(trace->names);
    sem_destroy(&trace->bell);
    pthread_mutex_destroy(&trace->lock);
    free(trace);
}
