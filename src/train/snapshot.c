/* snapshot.c - see snapshot.h. Sections: "identity" (text), "position" (little-endian words), "weights", "statistics",
 * "optimiser.0" and on (floats). */
#include "train/snapshot.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/checkpoint.h"

#define IDENTITY_BYTES 512

typedef struct place {
    uint64_t epoch, window, updates, world;
} place;

/* What has to be the same for the run to go on. */
static void identify(const gw_trainer *t, char text[IDENTITY_BYTES]) {
    const gw_train_settings *s = &t->settings;
    snprintf(text, IDENTITY_BYTES,
             "--model %.120s (%zu parameters) --data %.160s --batch %lld --accumulate %lld --seed %llu --optimizer "
             "%s%s",
             s->model, t->model->count, s->data, (long long)s->batch, (long long)s->accumulate,
             (unsigned long long)s->seed, s->optimiser->name, s->augment ? " --augment" : "");
}

/* Rank 0's outcome is everybody's. */
static gw_status share(const gw_trainer *t, gw_status status, gw_error *error) {
    int32_t word = (int32_t)status;
    gw_status told = gw_broadcast(t->comm, &word, &word, 1, GW_I32, 0);
    if (told != GW_OK) return gw_trainer_told(t, told, error);
    if (word != GW_OK && t->rank != 0) gw_fail(error, (gw_status)word, "%s", "");
    return (gw_status)word;
}

static void section_name(int state, char name[16]) { snprintf(name, 16, "optimiser.%d", state % 10); }

/* ---- writing ---- */

static gw_status add_all(gw_trainer *t, gw_checkpoint_writer *writer, gw_error *error) {
    char identity[IDENTITY_BYTES], name[16];
    size_t bytes = t->model->count * sizeof(float);
    place at = {htole64(t->epoch), htole64((uint64_t)t->window), htole64(t->updates), htole64((uint64_t)t->world)};
    identify(t, identity);
    gw_status status = gw_checkpoint_add(writer, "identity", identity, strlen(identity), error);
    if (status == GW_OK) status = gw_checkpoint_add(writer, "position", &at, sizeof at, error);
    if (status == GW_OK) status = gw_checkpoint_add(writer, "weights", t->model->weights, bytes, error);
    if (status == GW_OK)
        status = gw_checkpoint_add(writer, "statistics", t->model->buffers, t->model->buffer_count * sizeof(float),
                                   error);
    for (int s = 0; status == GW_OK && gw_optimiser_state(t->optimiser, s); s++) {
        section_name(s, name);
        status = gw_checkpoint_add(writer, name, gw_optimiser_state(t->optimiser, s), bytes, error);
    }
    return status;
}

static gw_status write_file(gw_trainer *t, const char *path, gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    if (status != GW_OK) return status;
    status = add_all(t, writer, error);
    if (status == GW_OK) return gw_checkpoint_commit(writer, error);
    gw_checkpoint_abandon(writer);
    return status;
}

gw_status gw_snapshot_save(gw_trainer *t, const char *path, gw_error *error) {
    gw_status status = gw_trainer_average(t, error);
    if (status != GW_OK) return status;
    if (t->rank == 0) status = write_file(t, path, error);
    return share(t, status, error);
}

/* ---- reading ---- */

static gw_status take(const gw_checkpoint *file, const char *name, void *to, size_t bytes, gw_error *error) {
    size_t held = 0;
    const void *data = gw_checkpoint_find(file, name, &held);
    if (!data || held != bytes)
        return gw_fail(error, GW_INVALID, "%s: its section %s has %zu bytes, this run needs %zu",
                       gw_checkpoint_path(file), name, held, bytes);
    memcpy(to, data, bytes);
    return GW_OK;
}

static gw_status check_identity(const gw_trainer *t, const gw_checkpoint *file, gw_error *error) {
    char wanted[IDENTITY_BYTES];
    size_t bytes = 0;
    const char *held = gw_checkpoint_find(file, "identity", &bytes);
    identify(t, wanted);
    if (held && bytes == strlen(wanted) && memcmp(held, wanted, bytes) == 0) return GW_OK;
    return gw_fail(error, GW_INVALID, "%s is of another run, of %.*s; give these options, or another file",
                   gw_checkpoint_path(file), (int)(held && bytes < 200 ? bytes : held ? 200 : 0), held ? held : "");
}

static gw_status take_all(gw_trainer *t, const gw_checkpoint *file, place *at, gw_error *error) {
    char name[16];
    size_t bytes = t->model->count * sizeof(float);
    gw_status status = check_identity(t, file, error);
    if (status == GW_OK) status = take(file, "position", at, sizeof *at, error);
    if (status == GW_OK) status = take(file, "weights", t->model->weights, bytes, error);
    if (status == GW_OK)
        status = take(file, "statistics", t->model->buffers, t->model->buffer_count * sizeof(float), error);
    for (int s = 0; status == GW_OK && gw_optimiser_state(t->optimiser, s); s++) {
        section_name(s, name);
        status = take(file, name, gw_optimiser_state(t->optimiser, s), bytes, error);
    }
    return status;
}

static gw_status read_file(gw_trainer *t, const char *path, place *at, gw_error *error) {
    gw_checkpoint *file = NULL;
    char before[PATH_MAX];
    snprintf(before, sizeof before, "%s.previous", path);
    if (access(path, F_OK) != 0 && errno == ENOENT && access(before, F_OK) != 0) return GW_OK;
    gw_status status = gw_checkpoint_open(path, &file, error);
    if (status != GW_OK) return status;
    status = take_all(t, file, at, error);
    gw_checkpoint_close(file);
    if (status == GW_OK && (int64_t)le64toh(at->window) >= gw_trainer_windows(t))
        status = gw_fail(error, GW_INVALID, "%s is at a step that this data set does not have", path);
    return status;
}

static gw_status spread(const gw_trainer *t, float *data, size_t count, gw_error *error) {
    return gw_trainer_told(t, gw_broadcast(t->comm, data, data, count, GW_F32, 0), error);
}

gw_status gw_snapshot_load(gw_trainer *t, const char *path, int *world, gw_error *error) {
    place at = {0};
    gw_status status = t->rank == 0 ? read_file(t, path, &at, error) : GW_OK;
    status = share(t, status, error);
    if (status == GW_OK)
        status = gw_trainer_told(t, gw_broadcast(t->comm, &at, &at, sizeof at, GW_U8, 0), error);
    *world = (int)le64toh(at.world);
    if (status != GW_OK || *world == 0) return status;
    status = spread(t, t->model->weights, t->model->count, error);
    if (status == GW_OK) status = spread(t, t->model->buffers, t->model->buffer_count, error);
    for (int s = 0; status == GW_OK && gw_optimiser_state(t->optimiser, s); s++)
        status = spread(t, gw_optimiser_state(t->optimiser, s), t->model->count, error);
    t->epoch = le64toh(at.epoch);
    t->window = (int64_t)le64toh(at.window);
    t->updates = le64toh(at.updates);
    gw_sampler_epoch(&t->sampler, t->epoch);
    return status;
}
