/* trainer_checkpoint.c - see trainer_checkpoint.h. Sections: "identity" (text), "position" (little-endian words),
 * "weights", "statistics", "optimiser.0", "optimiser.1", ... (floats), and those of checkpoint_per_rank.c. */
#include "train/trainer_checkpoint.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/checkpoint.h"
#include "train/rank_state.h"

#define IDENTITY_BYTES 512

typedef struct position {
    uint64_t epoch, window, updates, world;
} position;

/* The state of the whole model: the trainer's own; with a pipeline, a copy on rank 0. */
typedef struct whole {
    float *weights, *statistics, *state[GW_OPTIMISER_STATES];
    size_t count, buffer_count; /* floats */
    float *copy;                /* owned; NULL: the pointers above are the trainer's */
} whole;

static gw_status open_whole(gw_trainer *t, whole *w, gw_error *error) {
    *w = (whole){.weights = t->model->weights, .statistics = t->model->buffers, .count = gw_spec_parameters(t->spec),
                 .buffer_count = gw_spec_buffers(t->spec)};
    int states = t->settings.optimiser->states;
    for (int s = 0; s < states; s++) w->state[s] = gw_optimiser_state(t->optimiser, s);
    if (!t->pipeline || t->rank != 0) return GW_OK;
    w->copy = malloc(((size_t)(1 + states) * w->count + w->buffer_count) * sizeof(float));
    if (!w->copy) return gw_fail(error, GW_MEMORY, "no memory for the state of %zu parameters", w->count);
    w->weights = w->copy;
    for (int s = 0; s < states; s++) w->state[s] = w->copy + (size_t)(1 + s) * w->count;
    w->statistics = w->copy + (size_t)(1 + states) * w->count;
    return GW_OK;
}

/* Moves a tensor between the whole on rank 0 and each rank's part. */
typedef gw_status move(gw_trainer *t, float *part, size_t offset, size_t count, float *whole, gw_error *error);

static gw_status collect(gw_trainer *t, float *part, size_t offset, size_t count, float *all, gw_error *error) {
    return t->pipeline ? gw_pipeline_collect(t, part, offset, count, all, error) : GW_OK;
}

static gw_status spread(gw_trainer *t, float *part, size_t offset, size_t count, float *all, gw_error *error) {
    if (t->pipeline) return gw_pipeline_spread(t, part, offset, count, all, error);
    return gw_trainer_check(t, gw_broadcast(t->comm, part, part, count, GW_F32, 0), error);
}

static gw_status move_all(gw_trainer *t, const whole *w, move *way, gw_error *error) {
    const gw_model *m = t->model;
    size_t before = gw_spec_parameters_before(t->spec, m->first), buffers = gw_spec_buffers_before(t->spec, m->first);
    gw_status status = way(t, m->weights, before, m->count, w->weights, error);
    if (status == GW_OK) status = way(t, m->buffers, buffers, m->buffer_count, w->statistics, error);
    for (int s = 0; status == GW_OK && s < t->settings.optimiser->states; s++)
        status = way(t, gw_optimiser_state(t->optimiser, s), before, m->count, w->state[s], error);
    return status;
}

/* The settings that must be the same to resume. */
static void identify(const gw_trainer *t, char text[IDENTITY_BYTES]) {
    const gw_train_settings *s = &t->settings;
    snprintf(text, IDENTITY_BYTES,
             "--model %.120s (%zu parameters) --data %.160s --batch %lld --accumulate %lld --seed %llu --optimizer "
             "%s%s",
             s->model, gw_spec_parameters(t->spec), s->data, (long long)s->batch, (long long)s->accumulate,
             (unsigned long long)s->seed, s->optimiser->name, s->augment ? " --augment" : "");
}

/* Broadcasts rank 0's status. */
static gw_status broadcast_status(const gw_trainer *t, gw_status status, gw_error *error) {
    int32_t word = (int32_t)status;
    gw_status sent = gw_broadcast(t->comm, &word, &word, 1, GW_I32, 0);
    if (sent != GW_OK) return gw_trainer_check(t, sent, error);
    if (word != GW_OK && t->rank != 0) gw_fail(error, (gw_status)word, "%s", "");
    return (gw_status)word;
}

static void section_name(int state, char name[16]) { snprintf(name, 16, "optimiser.%d", state % 10); }

/* ---- writing ---- */

static gw_status add_all(gw_trainer *t, const whole *w, gw_checkpoint_writer *writer, gw_error *error) {
    char identity[IDENTITY_BYTES], name[16];
    size_t bytes = w->count * sizeof(float);
    position at = {htole64(t->epoch), htole64((uint64_t)t->window), htole64(t->updates), htole64((uint64_t)t->world)};
    identify(t, identity);
    gw_status status = gw_checkpoint_add(writer, "identity", identity, strlen(identity), error);
    if (status == GW_OK) status = gw_checkpoint_add(writer, "position", &at, sizeof at, error);
    if (status == GW_OK) status = gw_checkpoint_add(writer, "weights", w->weights, bytes, error);
    if (status == GW_OK)
        status = gw_checkpoint_add(writer, "statistics", w->statistics, w->buffer_count * sizeof(float), error);
    for (int s = 0; status == GW_OK && s < t->settings.optimiser->states; s++) {
        section_name(s, name);
        status = gw_checkpoint_add(writer, name, w->state[s], bytes, error);
    }
    return status;
}

static gw_status write_file(gw_trainer *t, const whole *w, const gw_rank_state *own, const char *path,
                            gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    if (status != GW_OK) return status;
    status = add_all(t, w, writer, error);
    if (status == GW_OK) status = gw_rank_state_add(t, own, writer, error);
    if (status == GW_OK) return gw_checkpoint_commit(writer, error);
    gw_checkpoint_abandon(writer);
    return status;
}

gw_status gw_trainer_checkpoint_save(gw_trainer *t, const char *path, gw_error *error) {
    whole w;
    gw_rank_state own = {0};
    gw_train_tracing_pause(&t->tracing);
    gw_status status = t->reducer ? GW_OK : gw_trainer_commit(t, error);
    if (status == GW_OK) status = gw_trainer_flush(t, error);
    if (status == GW_OK) status = gw_trainer_average(t, t->replicas, error);
    if (status == GW_OK) status = broadcast_status(t, open_whole(t, &w, error), error);
    if (status != GW_OK) return status;
    status = move_all(t, &w, collect, error);
    if (status == GW_OK) status = gw_rank_state_collect(t, &own, error);
    if (status == GW_OK)
        status = broadcast_status(t, t->rank == 0 ? write_file(t, &w, &own, path, error) : GW_OK, error);
    gw_rank_state_free(&own);
    free(w.copy);
    return status;
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
                   gw_checkpoint_path(file),
                   (int)(held && bytes < 200 ? bytes
                         : held              ? 200
                                             : 0),
                   held ? held : "");
}

static gw_status take_all(gw_trainer *t, const whole *w, const gw_checkpoint *file, position *at, gw_error *error) {
    char name[16];
    size_t bytes = w->count * sizeof(float);
    gw_status status = check_identity(t, file, error);
    if (status == GW_OK) status = take(file, "position", at, sizeof *at, error);
    if (status == GW_OK) status = take(file, "weights", w->weights, bytes, error);
    if (status == GW_OK) status = take(file, "statistics", w->statistics, w->buffer_count * sizeof(float), error);
    for (int s = 0; status == GW_OK && s < t->settings.optimiser->states; s++) {
        section_name(s, name);
        status = take(file, name, w->state[s], bytes, error);
    }
    return status;
}

static gw_status read_file(gw_trainer *t, const whole *w, const char *path, position *at, gw_error *error) {
    gw_checkpoint *file = NULL;
    char before[PATH_MAX];
    snprintf(before, sizeof before, "%s.previous", path);
    if (access(path, F_OK) != 0 && errno == ENOENT && access(before, F_OK) != 0) return GW_OK;
    gw_status status = gw_checkpoint_open(path, &file, error);
    if (status != GW_OK) return status;
    status = take_all(t, w, file, at, error);
    gw_checkpoint_close(file);
    if (status == GW_OK && (int64_t)le64toh(at->window) >= gw_trainer_windows(t))
        status = gw_fail(error, GW_INVALID, "%s is at a step that this data set does not have", path);
    return status;
}

static gw_status load_whole(gw_trainer *t, whole *w, const char *path, position *at, gw_error *error) {
    gw_status status = open_whole(t, w, error);
    if (status == GW_OK && t->rank == 0) status = read_file(t, w, path, at, error);
    status = broadcast_status(t, status, error);
    if (status == GW_OK) status = gw_trainer_check(t, gw_broadcast(t->comm, at, at, sizeof *at, GW_U8, 0), error);
    if (status == GW_OK && at->world) status = move_all(t, w, spread, error);
    free(w->copy);
    return status;
}

gw_status gw_trainer_checkpoint_load(gw_trainer *t, const char *path, gw_trainer_checkpoint_info *found,
                                     gw_error *error) {
    position at = {0};
    whole w;
    gw_status status = load_whole(t, &w, path, &at, error);
    *found = (gw_trainer_checkpoint_info){.world = (int)le64toh(at.world)};
    if (status != GW_OK || found->world == 0) return status;
    t->epoch = le64toh(at.epoch);
    t->window = (int64_t)le64toh(at.window);
    t->updates = t->sync_point = le64toh(at.updates);
    gw_sampler_epoch(&t->sampler, t->epoch);
    status = gw_trainer_commit(t, error);
    if (status != GW_OK) return status;
    if (found->world == t->world) return gw_rank_state_load(t, path, &found->continues, error);
    return gw_rank_state_take_over(t, path, found->world, &found->continues, error);
}
