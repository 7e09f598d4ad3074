/* writer.c - see writer.h. Every write appends whole blocks or whole objects. Writes of several ranks to one file do
 * not mix: the kernel appends each write atomically. */
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fork_descriptors.h"
#include "base/log.h"
#include "base/write_guard.h"

/* ---- files ---- */

static gw_status create(const char *path, const char *head, gw_error *error) {
    if (!path) return GW_OK;
    gw_write_guard guard;
    int fd = gw_file_create(path, 0666); /* a reader may still have the old one open */
    size_t length = strlen(head);
    gw_write_guard_begin(&guard);
    bool written = fd >= 0 && write(fd, head, length) == (ssize_t)length;
    gw_write_guard_end(&guard);
    int why = errno;
    gw_fd_close(fd);
    return written ? GW_OK : gw_fail(error, GW_SYSTEM, "the recording %s cannot be written: %s", path, strerror(why));
}

gw_status gw_trace_create(const char *timeline, const char *capture, gw_error *error) {
    gw_status status = create(timeline, gw_chrome_head, error);
    return status ? status : create(capture, "", error);
}

/* Each rank holds a shared lock while the file is open: the rank that gets an exclusive lock at the end is the last
 * one. (gw_fd_register: a forked child closes the descriptor; else it would hold the lock too.) */
static gw_status open_shared(const char *path, int *fd, gw_error *error) {
    if (!path) return GW_OK;
    *fd = gw_fd_register(open(path, O_RDWR | O_APPEND | O_CLOEXEC));
    if (*fd < 0) return gw_fail(error, GW_SYSTEM, "the recording %s cannot be opened: %s", path, strerror(errno));
    flock(*fd, LOCK_SH | LOCK_NB);
    return GW_OK;
}

static void append(gw_trace_writer *w, int *fd, const void *bytes, size_t count) {
    if (*fd < 0 || count == 0) return;
    gw_write_guard guard; /* the last blocks are written by the thread that closes the recording */
    ssize_t done;
    gw_write_guard_begin(&guard);
    do done = write(*fd, bytes, count);
    while (done < 0 && errno == EINTR);
    gw_write_guard_end(&guard);
    if (done == (ssize_t)count) return;
    gw_log(GW_LOG_WARN, w->rank, "the recording ends here, it cannot be written any more: %s",
           done < 0 ? strerror(errno) : "the disk is full");
    gw_fd_close(*fd);
    *fd = -1;
}

gw_status gw_trace_writer_open(gw_trace_writer *w, const gw_trace_config *config, gw_error *error) {
    const gw_capture_rank *about = &config->about;
    *w = (gw_trace_writer){.rank = config->rank, .timeline = -1, .capture = -1};
    w->lines = malloc(GW_WRITER_BYTES);
    w->block = malloc(GW_WRITER_BYTES);
    if (!w->lines || !w->block ||
        !gw_chrome_open(&w->chrome, config->rank, about->world, about->offset - (int64_t)about->origin))
        return gw_fail(error, GW_MEMORY, "out of memory for a recording");
    gw_status status = open_shared(config->timeline, &w->timeline, error);
    if (!status) status = open_shared(config->capture, &w->capture, error);
    if (status) return status;
    w->lines_used = (size_t)(gw_chrome_rank(&w->chrome, about->host, w->lines) - w->lines);
    uint8_t *payload = w->block + GW_CAPTURE_HEADER;
    size_t bytes = (size_t)(gw_capture_put_rank(payload, about) - payload);
    gw_capture_seal(w->block, GW_CAPTURE_RANK, (uint32_t)w->rank, bytes);
    append(w, &w->capture, w->block, GW_CAPTURE_HEADER + bytes);
    return GW_OK;
}

/* ---- contents ---- */

static void flush_block(gw_trace_writer *w, gw_capture_block kind) {
    if (w->block_used) {
        gw_capture_seal(w->block, kind, (uint32_t)w->rank, w->block_used);
        append(w, &w->capture, w->block, GW_CAPTURE_HEADER + w->block_used);
    }
    w->block_used = 0;
    w->before = 0;
}

void gw_trace_writer_flush(gw_trace_writer *w) {
    flush_block(w, GW_CAPTURE_EVENTS);
    append(w, &w->timeline, w->lines, w->lines_used);
    w->lines_used = 0;
}

void gw_trace_writer_name(gw_trace_writer *w, uint32_t number, const char *text) {
    flush_block(w, GW_CAPTURE_EVENTS);
    uint8_t *payload = w->block + GW_CAPTURE_HEADER;
    w->block_used = (size_t)(gw_capture_put_text(gw_pack(payload, number), text) - payload);
    flush_block(w, GW_CAPTURE_NAMES);
}

void gw_trace_writer_event(gw_trace_writer *w, const gw_trace_event *event, const char *name, const char *label) {
    if (w->capture >= 0) {
        uint8_t *at = w->block + GW_CAPTURE_HEADER + w->block_used;
        w->block_used += (size_t)(gw_capture_put_event(at, event, &w->before) - at);
        if (GW_CAPTURE_HEADER + w->block_used + GW_CAPTURE_EVENT_MAX > GW_WRITER_BYTES)
            flush_block(w, GW_CAPTURE_EVENTS);
    }
    if (w->timeline >= 0) {
        char *at = w->lines + w->lines_used;
        w->lines_used += (size_t)(gw_chrome_event(&w->chrome, event, name, label, at) - at);
        if (w->lines_used + GW_CHROME_LINE > GW_WRITER_BYTES) {
            append(w, &w->timeline, w->lines, w->lines_used);
            w->lines_used = 0;
        }
    }
}

static void state(gw_trace_writer *w, uint64_t dropped, bool ended) {
    flush_block(w, GW_CAPTURE_EVENTS);
    uint8_t *payload = w->block + GW_CAPTURE_HEADER;
    w->block_used = (size_t)(gw_pack(gw_pack(payload, dropped), ended) - payload);
    flush_block(w, GW_CAPTURE_STATE);
}

void gw_trace_writer_dropped(gw_trace_writer *w, uint64_t dropped) { state(w, dropped, false); }

/* Two ranks that close at the same time may both get the exclusive lock, one after the other: check for the end. */
static void complete_timeline(gw_trace_writer *w) {
    struct stat file;
    char last = 0;
    if (flock(w->timeline, LOCK_EX | LOCK_NB) != 0 || fstat(w->timeline, &file) != 0) return;
    off_t at = file.st_size - 2; /* of the closing bracket, if present */
    if (at >= 0 && pread(w->timeline, &last, 1, at) == 1 && last != ']')
        append(w, &w->timeline, gw_chrome_tail, strlen(gw_chrome_tail));
}

void gw_trace_writer_close(gw_trace_writer *w, uint64_t dropped) {
    if (w->block) {
        gw_trace_writer_flush(w);
        state(w, dropped, true);
    }
    if (w->timeline >= 0) complete_timeline(w);
    gw_fd_close(w->timeline);
    gw_fd_close(w->capture);
    gw_chrome_close(&w->chrome);
    free(w->lines);
    free(w->block);
}
