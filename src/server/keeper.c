/* keeper.c - see keeper.h. */
#include "server/keeper.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/checkpoint.h"

#define SECTION "server"

struct gw_keeper {
    char *path;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given;
    void *bytes;   /* under the lock; the thread's while busy */
    size_t count, room;
    bool busy;     /* under the lock: there is something to write */
    bool closing;  /* under the lock */
};

gw_status gw_keeper_write(const char *path, const void *bytes, size_t count, gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    if (status) return status;
    status = gw_checkpoint_add(writer, SECTION, bytes, count, error);
    if (status) gw_checkpoint_abandon(writer);
    else status = gw_checkpoint_commit(writer, error);
    return status;
}

gw_status gw_keeper_read(const char *path, void **bytes, size_t *count, gw_error *error) {
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

static void *keep(void *ctx) {
    gw_keeper *k = ctx;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->busy && !k->closing) pthread_cond_wait(&k->given, &k->lock);
        if (!k->busy) break;
        gw_error error = {.rank = -1};
        pthread_mutex_unlock(&k->lock);
        if (gw_keeper_write(k->path, k->bytes, k->count, &error))
            gw_log(GW_LOG_WARN, -1, "a server's snapshot was not written: %s", error.text);
        pthread_mutex_lock(&k->lock);
        k->busy = false;
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

gw_status gw_keeper_open(gw_keeper **out, const char *path, gw_error *error) {
    gw_keeper *k = calloc(1, sizeof *k);
    if (k) k->path = strdup(path);
    if (!k || !k->path) {
        free(k);
        return gw_fail(error, GW_MEMORY, "out of memory for snapshots of a server");
    }
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->given, NULL);
    int failure = pthread_create(&k->thread, NULL, keep, k);
    if (!failure) {
        *out = k;
        return GW_OK;
    }
    pthread_cond_destroy(&k->given);
    pthread_mutex_destroy(&k->lock);
    free(k->path);
    free(k);
    return gw_fail(error, GW_SYSTEM, "cannot start the thread that writes snapshots: %s", strerror(failure));
}

void gw_keeper_close(gw_keeper *k) {
    if (!k) return;
    pthread_mutex_lock(&k->lock);
    k->closing = true;
    pthread_cond_signal(&k->given);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    pthread_cond_destroy(&k->given);
    pthread_mutex_destroy(&k->lock);
    free(k->bytes);
    free(k->path);
    free(k);
}

/* Memory is taken at the first; later ones are of the same size. */
static bool make_room(gw_keeper *k, size_t count) {
    if (count <= k->room) return true;
    void *larger = realloc(k->bytes, count);
    if (!larger) return false;
    k->bytes = larger;
    k->room = count;
    return true;
}

bool gw_keeper_give(gw_keeper *k, const void *bytes, size_t count) {
    pthread_mutex_lock(&k->lock);
    bool takes = !k->busy && make_room(k, count);
    if (takes) {
        memcpy(k->bytes, bytes, count);
        k->count = count;
        k->busy = true;
        pthread_cond_signal(&k->given);
    }
    pthread_mutex_unlock(&k->lock);
    return takes;
}
