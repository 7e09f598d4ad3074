/* snapshot_writer.c - see snapshot_writer.h. */
#include "ps/snapshot_writer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "store/checkpoint.h"

#define SECTION "server"

struct gw_snapshot_writer {
    char *path;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given;
    void *bytes; /* under the lock; the thread's while busy */
    size_t count, room;
    bool busy;    /* under the lock: there is something to write */
    bool closing; /* under the lock */
};

gw_status gw_snapshot_writer_write(const char *path, const void *bytes, size_t count, gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    if (status) return status;
    status = gw_checkpoint_add(writer, SECTION, bytes, count, error);
    if (status) gw_checkpoint_abandon(writer);
    else status = gw_checkpoint_commit(writer, error);
    return status;
}

gw_status gw_snapshot_writer_read(const char *path, void **bytes, size_t *count, gw_error *error) {
    gw_checkpoint *file = NULL;
    gw_status status = gw_checkpoint_open(path, &file, error);
    if (status) return status;
    const void *found = gw_checkpoint_find(file, SECTION, count);
    *bytes = found ? malloc(*count + 1) : NULL;
    if (!found) status = gw_fail(error, GW_INVALID, "%s is not a server's snapshot", path);
    else if (!*bytes) status = gw_fail(error, GW_MEMORY, "out of memory for the %zu bytes of %s", *count, path);
    else memcpy(*bytes, found, *count);
    gw_checkpoint_close(file);
    return status;
}

static void *write_snapshots(void *ctx) {
    gw_snapshot_writer *w = ctx;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->busy && !w->closing) pthread_cond_wait(&w->given, &w->lock);
        if (!w->busy) break;
        gw_error error = {.rank = -1};
        pthread_mutex_unlock(&w->lock);
        if (gw_snapshot_writer_write(w->path, w->bytes, w->count, &error))
            gw_log(GW_LOG_WARN, -1, "a server's snapshot was not written: %s", error.text);
        pthread_mutex_lock(&w->lock);
        w->busy = false;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

gw_status gw_snapshot_writer_open(gw_snapshot_writer **out, const char *path, gw_error *error) {
    gw_snapshot_writer *w = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        return gw_fail(error, GW_MEMORY, "out of memory for snapshots of a server");
    }
    pthread_mutex_init(&w->lock, NULL);
    gw_thread_cond_init(&w->given);
    int failure = gw_thread_start(&w->thread, write_snapshots, w);
    if (!failure) {
        *out = w;
        return GW_OK;
    }
    pthread_cond_destroy(&w->given);
    pthread_mutex_destroy(&w->lock);
    free(w->path);
    free(w);
    return gw_fail(error, GW_SYSTEM, "cannot start the thread that writes snapshots: %s", strerror(failure));
}

void gw_snapshot_writer_close(gw_snapshot_writer *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->given);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->given);
    pthread_mutex_destroy(&w->lock);
    free(w->bytes);
    free(w->path);
    free(w);
}

/* Allocates at the first snapshot; later ones have the same size. */
static bool make_room(gw_snapshot_writer *w, size_t count) {
    if (count <= w->room) return true;
    void *larger = realloc(w->bytes, count);
    if (!larger) return false;
    w->bytes = larger;
    w->room = count;
    return true;
}

bool gw_snapshot_writer_submit(gw_snapshot_writer *w, const void *bytes, size_t count) {
    pthread_mutex_lock(&w->lock);
    bool takes = !w->busy && make_room(w, count);
    if (takes) {
        memcpy(w->bytes, bytes, count);
        w->count = count;
        w->busy = true;
        pthread_cond_signal(&w->given);
    }
    pthread_mutex_unlock(&w->lock);
    return takes;
}
