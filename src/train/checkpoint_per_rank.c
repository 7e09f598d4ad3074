/* checkpoint_per_rank.c - see rank_state.h. Sections "own.0", "own.1", ..., one for each rank: a 64-bit length of the
 * reducer's state, this state, and with local optimisers the weights and optimiser states. */
#include "train/rank_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/announced.h"

static bool local(const gw_trainer *t) { return gw_reducer_read_counters(t->reducer).local_optimisers; }

static size_t model_bytes(const gw_trainer *t) { return t->model->count * sizeof(float); }

/* The reducer's state grows during training: a saved state may be longer than that of a new reducer. */
static uint64_t own_bytes(const gw_trainer *t, uint64_t state_bytes) {
    size_t arrays = local(t) ? 1 + (size_t)t->settings.optimiser->states : 0;
    return sizeof(uint64_t) + state_bytes + arrays * model_bytes(t);
}

static gw_status write_own(gw_trainer *t, uint8_t *at, gw_error *error) {
    uint64_t length = gw_reducer_state_bytes(t->reducer);
    memcpy(at, &length, sizeof length);
    at += sizeof length;
    gw_status status = gw_trainer_check(t, gw_reducer_state_save(t->reducer, at), error);
    at += length;
    if (status != GW_OK || !local(t)) return status;
    memcpy(at, t->model->weights, model_bytes(t));
    for (int s = 0; s < t->settings.optimiser->states; s++)
        memcpy(at + (size_t)(1 + s) * model_bytes(t), gw_optimiser_state(t->optimiser, s), model_bytes(t));
    return GW_OK;
}

/* False: the state does not match this strategy. */
static bool read_own(gw_trainer *t, const uint8_t *at, uint64_t bytes) {
    uint64_t length = 0;
    if (bytes < sizeof length) return false;
    memcpy(&length, at, sizeof length);
    at += sizeof length;
    if (length > bytes || bytes != own_bytes(t, length)) return false;
    if (gw_reducer_state_restore(t->reducer, at, length) != GW_OK) return false;
    at += length;
    if (!local(t)) return true;
    memcpy(t->model->weights, at, model_bytes(t));
    for (int s = 0; s < t->settings.optimiser->states; s++)
        memcpy(gw_optimiser_state(t->optimiser, s), at + (size_t)(1 + s) * model_bytes(t), model_bytes(t));
    return true;
}

/* ---- saving: ranks to rank 0 ---- */

void gw_rank_state_free(gw_rank_state *b) {
    free(b->memory);
    free(b->bytes);
    *b = (gw_rank_state){0};
}

static gw_status allocate(const gw_trainer *t, gw_rank_state *b, uint64_t own, gw_error *error) {
    size_t total = (size_t)own;
    b->bytes = calloc((size_t)t->world, sizeof *b->bytes);
    if (!b->bytes) return gw_fail(error, GW_MEMORY, "no memory for a checkpoint");
    gw_status status = gw_trainer_check(t, gw_allgather(t->comm, &own, b->bytes, 1, GW_I64), error);
    for (int r = 1; status == GW_OK && t->rank == 0 && r < t->world; r++)
        status = gw_announced_add(&total, b->bytes[r], r, "its own state", error);
    if (status == GW_OK) b->memory = malloc(total);
    if (status == GW_OK && !b->memory)
        status = gw_fail(error, GW_MEMORY, "no memory for a checkpoint of what %d ranks keep", t->world);
    return status;
}

gw_status gw_rank_state_collect(gw_trainer *t, gw_rank_state *b, gw_error *error) {
    uint64_t own = own_bytes(t, gw_reducer_state_bytes(t->reducer));
    *b = (gw_rank_state){0};
    gw_status status = allocate(t, b, own, error);
    if (status == GW_OK) status = write_own(t, b->memory, error);
    if (status == GW_OK && t->rank != 0) return gw_trainer_check(t, gw_send(t->comm, b->memory, own, GW_U8, 0), error);
    uint8_t *at = b->memory + own;
    for (int r = 1; status == GW_OK && r < t->world; r++) {
        status = gw_trainer_check(t, gw_recv(t->comm, at, b->bytes[r], GW_U8, r), error);
        at += b->bytes[r];
    }
    return status;
}

static void section(int rank, char name[GW_SECTION_NAME_BYTES]) {
    snprintf(name, GW_SECTION_NAME_BYTES, "own.%d", rank);
}

gw_status gw_rank_state_add(const gw_trainer *t, const gw_rank_state *b, gw_checkpoint_writer *writer,
                            gw_error *error) {
    const uint8_t *at = b->memory;
    char name[GW_SECTION_NAME_BYTES];
    gw_status status = GW_OK;
    for (int r = 0; status == GW_OK && r < t->world; r++) {
        section(r, name);
        status = gw_checkpoint_add(writer, name, at, b->bytes[r], error);
        at += b->bytes[r];
    }
    return status;
}

/* ---- loading: rank 0 to ranks ---- */

/* Rank 0 sends every rank its state; 0 bytes if the file has none. */
static gw_status distribute(gw_trainer *t, const gw_checkpoint *file, bool *fits, gw_error *error) {
    char name[GW_SECTION_NAME_BYTES];
    gw_status status = GW_OK;
    for (int r = 0; status == GW_OK && r < t->world; r++) {
        size_t length = 0;
        section(r, name);
        const void *bytes = file ? gw_checkpoint_find(file, name, &length) : NULL;
        uint64_t word = bytes ? length : 0;
        if (r == 0) {
            *fits = bytes && read_own(t, bytes, length);
            continue;
        }
        status = gw_send(t->comm, &word, 1, GW_I64, r);
        if (status == GW_OK) status = gw_send(t->comm, bytes, word, GW_U8, r);
    }
    return gw_trainer_check(t, status, error);
}

static gw_status receive(gw_trainer *t, bool *fits, gw_error *error) {
    uint64_t length = 0;
    gw_status status = gw_recv(t->comm, &length, 1, GW_I64, 0);
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    uint8_t *bytes = gw_announced_alloc(length, 0, "what this rank kept", error);
    if (!bytes) return error->status;
    status = gw_recv(t->comm, bytes, length, GW_U8, 0);
    *fits = status == GW_OK && length && read_own(t, bytes, length);
    free(bytes);
    return gw_trainer_check(t, status, error);
}

gw_status gw_rank_state_load(gw_trainer *t, const char *path, bool *taken, gw_error *error) {
    gw_checkpoint *file = NULL;
    gw_error ignored = {0}; /* the file was readable before; if not now, all ranks start without state */
    bool fits = false;
    if (t->rank == 0) gw_checkpoint_open(path, &file, &ignored);
    gw_status status = t->rank == 0 ? distribute(t, file, &fits, error) : receive(t, &fits, error);
    gw_checkpoint_close(file);
    int32_t all = fits;
    if (status == GW_OK) status = gw_trainer_check(t, gw_allreduce(t->comm, &all, &all, 1, GW_I32, GW_MIN), error);
    *taken = all == 1;
    return status;
}

/* ---- loading with another number of ranks ---- */

/* Broadcasts the reducer state that rank `r` saved; *bytes 0: the file has none. The caller frees *state. */
static gw_status spread_state(gw_trainer *t, const gw_checkpoint *file, int r, uint8_t **state, uint64_t *bytes,
                              gw_error *error) {
    char name[GW_SECTION_NAME_BYTES];
    size_t length = 0;
    section(r, name);
    const uint8_t *held = file ? gw_checkpoint_find(file, name, &length) : NULL;
    *bytes = 0;
    if (held && length >= sizeof *bytes) memcpy(bytes, held, sizeof *bytes);
    if (length < sizeof *bytes || *bytes > length - sizeof *bytes) *bytes = 0;
    gw_status status = gw_broadcast(t->comm, bytes, bytes, 1, GW_I64, 0);
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    *state = gw_announced_alloc(*bytes, 0, "what a rank kept", error);
    if (!*state) return error->status;
    if (t->rank == 0 && *bytes) memcpy(*state, held + sizeof *bytes, *bytes);
    return gw_trainer_check(t, gw_broadcast(t->comm, *state, *state, *bytes, GW_U8, 0), error);
}

gw_status gw_rank_state_take_over(gw_trainer *t, const char *path, int world, bool *taken, gw_error *error) {
    gw_checkpoint *file = NULL;
    gw_error ignored = {0};
    int32_t all = !local(t) && !t->pipeline;
    gw_status status = GW_OK;
    if (t->rank == 0 && all) gw_checkpoint_open(path, &file, &ignored);
    for (int r = 0; all && r < world && status == GW_OK; r++) {
        uint8_t *state = NULL;
        uint64_t bytes;
        status = spread_state(t, file, r, &state, &bytes, error);
        if (status == GW_OK) all = bytes && gw_reducer_state_merge(t->reducer, state, bytes) == GW_OK;
        free(state);
        if (status == GW_OK) status = gw_trainer_check(t, gw_allreduce(t->comm, &all, &all, 1, GW_I32, GW_MIN), error);
    }
    gw_checkpoint_close(file);
    *taken = all == 1;
    return status;
}
