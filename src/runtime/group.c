/* group.c - batches: calls that are started and complete together, from gw_group_start to gw_group_end or of one
 * coalesced call. Small all-reduces of one type, operation and scale are packed into one buffer and reduced as one
 * operation.
 *
 * Cost: one start-up for each (type, operation, scale) instead of each tensor; two copies of each small tensor. A batch
 * is kept for the next one, so nothing is allocated in the steady state. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "runtime/comm.h"

#define FUSED_BYTES_MAX (64 * 1024) /* larger tensors gain nothing from sharing a start-up */
#define ALIGNMENT 64

typedef struct batched_call {
    gw_op_spec spec;
    size_t counts_at; /* of spec.counts in the batch's array; the array may move while calls are added */
    size_t packed_at; /* fused: offset in the fuse buffer */
    bool fused;
} batched_call;

struct gw_batch {
    gw_comm *comm;
    gw_batch *next; /* in the communicator's spare list */
    batched_call *calls;
    size_t call_count, call_capacity;
    size_t *counts; /* copies of the callers' arrays */
    size_t count_count, count_capacity;
    gw_op **ops; /* (L) call_capacity entries; released with the last reference */
    size_t op_count;
    void *fuse; /* from gw_alloc */
    size_t fuse_bytes;
    int references;    /* (L) requests, and a caller that is inside of a call */
    bool open, blocks; /* its group is open; it has blocking calls */
    bool over;         /* (L) all is done, and results are unpacked */
    gw_status status;  /* (L) of the first call that failed */
};

/* Opening and releasing. (L) is held. */

static gw_batch *batch_open(gw_comm *comm) {
    gw_batch *batch = comm->spare_batches;
    if (batch) comm->spare_batches = batch->next;
    else batch = calloc(1, sizeof *batch);
    if (!batch) return NULL;
    batch->comm = comm;
    batch->call_count = batch->count_count = batch->op_count = 0;
    batch->references = 1;
    batch->open = true;
    batch->blocks = batch->over = false;
    batch->status = GW_OK;
    return batch;
}

void gw_batch_release(gw_batch *batch) {
    if (--batch->references) return;
    for (size_t i = 0; i < batch->op_count; i++) gw_comm_end_op(batch->comm, batch->ops[i]);
    batch->next = batch->comm->spare_batches;
    batch->comm->spare_batches = batch;
}

void gw_batch_free_all(gw_comm *comm) {
    if (comm->group) gw_batch_release(comm->group);
    comm->group = NULL;
    for (gw_batch *batch = comm->spare_batches, *next; batch; batch = next) {
        next = batch->next;
        if (batch->fuse) gw_comm_release(comm, batch->fuse);
        free(batch->calls);
        free(batch->counts);
        free(batch->ops);
        free(batch);
    }
    comm->spare_batches = NULL;
}

bool gw_batch_is_open(const gw_batch *batch) { return batch->open; }

/* Adding calls. */

static bool reserve(void *memory, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity) return true;
    size_t room = needed < 2 * *capacity ? 2 * *capacity : needed < 16 ? 16 : needed;
    void *grown = realloc(*(void **)memory, room * size);
    if (!grown) return false;
    *(void **)memory = grown;
    *capacity = room;
    return true;
}

static bool reserve_calls(gw_batch *batch, size_t needed) {
    size_t ops = batch->call_capacity;
    return reserve(&batch->ops, &ops, needed, sizeof *batch->ops) &&
           reserve(&batch->calls, &batch->call_capacity, needed, sizeof *batch->calls);
}

static gw_status add(gw_batch *batch, const gw_op_spec *specs, size_t count, gw_error *error) {
    size_t entries = 0, each = specs->counts ? gw_counts_entries(specs->collective, batch->comm->size) : 0;
    if (!reserve_calls(batch, batch->call_count + count) ||
        !reserve(&batch->counts, &batch->count_capacity, batch->count_count + count * each, sizeof *batch->counts))
        return gw_fail(error, GW_MEMORY, "out of memory for %zu calls at once", batch->call_count + count);
    for (size_t i = 0; i < count; i++, entries += each) {
        size_t at = batch->count_count + entries;
        if (each) memcpy(batch->counts + at, specs[i].counts, each * sizeof *batch->counts);
        batch->calls[batch->call_count++] = (batched_call){.spec = specs[i], .counts_at = at};
    }
    batch->count_count += entries;
    return GW_OK;
}

/* Fusing. */

static size_t call_bytes(const gw_op_spec *spec) { return spec->count * gw_dtype_bytes(spec->dtype); }

static bool fuses(const gw_op_spec *spec) {
    return spec->collective == GW_COLL_ALLREDUCE && call_bytes(spec) <= FUSED_BYTES_MAX;
}

static bool fuses_with(const gw_op_spec *spec, const gw_op_spec *like) {
    return fuses(spec) && spec->dtype == like->dtype && spec->redop == like->redop &&
           gw_scale_same(&spec->scale, &like->scale) && spec->deadline == like->deadline;
}

static gw_status make_room(gw_batch *batch, gw_error *error) {
    size_t bytes = 0;
    for (size_t i = 0; i < batch->call_count; i++)
        if (fuses(&batch->calls[i].spec)) bytes += call_bytes(&batch->calls[i].spec) + ALIGNMENT;
    if (bytes <= batch->fuse_bytes) return GW_OK;
    if (batch->fuse) gw_comm_release(batch->comm, batch->fuse);
    batch->fuse = gw_comm_alloc(batch->comm, bytes, error);
    batch->fuse_bytes = batch->fuse ? bytes : 0;
    return batch->fuse ? GW_OK : error->status;
}

/* Packs the calls that fuse with call `first` at offset `at`, and returns the end. */
static size_t pack(gw_batch *batch, size_t first, size_t at) {
    for (size_t i = first; i < batch->call_count; i++) {
        batched_call *call = &batch->calls[i];
        if (!fuses_with(&call->spec, &batch->calls[first].spec)) continue;
        size_t bytes = call_bytes(&call->spec);
        if (bytes) memcpy((char *)batch->fuse + at, call->spec.in, bytes);
        call->fused = true;
        call->packed_at = at;
        at += bytes;
    }
    return at;
}

static void unpack(gw_batch *batch) {
    for (size_t i = 0; i < batch->call_count; i++) {
        batched_call *call = &batch->calls[i];
        if (call->fused && call->spec.count)
            memcpy(call->spec.out, (char *)batch->fuse + call->packed_at, call_bytes(&call->spec));
    }
}

/* Running. (L) is held. */

static gw_status start_one(gw_batch *batch, gw_op_spec *spec, gw_error *error) {
    gw_status status = gw_comm_start_op(batch->comm, spec, &batch->ops[batch->op_count], error);
    if (!status) batch->op_count++;
    return status;
}

static gw_status start_fused(gw_batch *batch, gw_error *error) {
    size_t at = 0;
    for (size_t i = 0; i < batch->call_count; i++) {
        gw_op_spec spec = batch->calls[i].spec;
        if (batch->calls[i].fused || !fuses(&spec)) continue;
        size_t end = pack(batch, i, at);
        spec.in = spec.out = (char *)batch->fuse + at;
        spec.count = (end - at) / gw_dtype_bytes(spec.dtype);
        gw_status status = start_one(batch, &spec, error);
        if (status) return status;
        at = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return GW_OK;
}

static gw_status start_all(gw_batch *batch, gw_error *error) {
    gw_status status = make_room(batch, error);
    if (!status) status = start_fused(batch, error);
    for (size_t i = 0; i < batch->call_count && !status; i++) {
        batched_call *call = &batch->calls[i];
        if (call->spec.counts) call->spec.counts = batch->counts + call->counts_at;
        if (!call->fused) status = start_one(batch, &call->spec, error);
    }
    batch->open = false;
    batch->status = status;
    gw_context_started(batch->comm->context);
    return status;
}

bool gw_batch_done(gw_batch *batch, gw_status *status) {
    for (size_t i = 0; i < batch->op_count; i++)
        if (!gw_op_done(batch->ops[i])) return false;
    for (size_t i = 0; i < batch->op_count && !batch->status; i++) batch->status = gw_op_status(batch->ops[i]);
    if (!batch->over && !batch->open && !batch->status) unpack(batch);
    batch->over = true;
    *status = batch->status;
    return true;
}

void gw_batch_drive(gw_batch *batch) {
    for (size_t i = 0; i < batch->op_count; i++) gw_context_drive(batch->comm->context, batch->ops[i]);
}

/* Waits for the batch and gives up the caller's reference. */
static gw_status finish(gw_batch *batch) {
    gw_status status;
    gw_batch_drive(batch);
    gw_batch_done(batch, &status);
    gw_batch_release(batch);
    return status;
}

/* Adds the calls, with a request of their own if one is asked for. */
static gw_status take(gw_batch *batch, const gw_op_spec *specs, size_t count, gw_request **request, gw_error *error) {
    gw_status status = add(batch, specs, count, error);
    if (!status && request) {
        *request = gw_request_open(batch->comm, NULL, batch);
        if (!*request) status = gw_fail(error, GW_MEMORY, "out of memory for a request");
        else batch->references++;
    }
    batch->blocks |= !request;
    return status;
}

gw_status gw_group_add(gw_comm *comm, const gw_op_spec *specs, size_t count, gw_request **request) {
    gw_error error = {.rank = -1};
    gw_context_lock(comm->context);
    gw_status status = take(comm->group, specs, count, request, &error);
    gw_context_unlock(comm->context);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}

/* Starts the batch; waits for it if it has blocking calls. Requests of one that could not be started get its error. */
static gw_status run_batch(gw_batch *batch, gw_error *error) {
    gw_status status = start_all(batch, error);
    if (status || batch->blocks) return finish(batch);
    gw_batch_release(batch);
    return GW_OK;
}

gw_status gw_batch_run(gw_comm *comm, const gw_op_spec *specs, size_t count, gw_request **request) {
    gw_error error = {.rank = -1};
    if (request) *request = NULL;
    gw_context_lock(comm->context);
    gw_batch *batch = batch_open(comm);
    gw_status status = batch ? take(batch, specs, count, request, &error)
                             : gw_fail(&error, GW_MEMORY, "out of memory for %zu calls at once", count);
    if (!status) status = run_batch(batch, &error);
    else if (batch) gw_batch_release(batch);
    if (status && request && *request) {
        gw_request_retire(*request);
        *request = NULL;
    }
    gw_context_unlock(comm->context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}

/* The public calls. */

gw_status gw_group_start(gw_comm *comm) {
    gw_error error = {.rank = -1};
    if (!comm) gw_fail(&error, GW_INVALID, "gw_group_start: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (comm->group) gw_fail(&error, GW_INVALID, "gw_group_start: a group is open already");
    if (error.status) return gw_comm_set_last_error(&error);
    gw_context_lock(comm->context);
    comm->group = batch_open(comm);
    gw_context_unlock(comm->context);
    if (!comm->group) gw_fail(&error, GW_MEMORY, "out of memory for a group");
    return error.status ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_group_end(gw_comm *comm) {
    gw_error error = {.rank = -1};
    if (!comm) gw_fail(&error, GW_INVALID, "gw_group_end: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (!comm->group) gw_fail(&error, GW_INVALID, "gw_group_end: no group is open");
    if (error.status) return gw_comm_set_last_error(&error);
    gw_context_lock(comm->context);
    gw_batch *batch = comm->group;
    comm->group = NULL;
    gw_status status = run_batch(batch, &error);
    gw_context_unlock(comm->context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}
