/* group.c - calls between gw_group_start and gw_group_end: small all-reduces of one type and operation are packed into
 * one buffer and reduced as one operation. All operations of the group run concurrently.
 *
 * Cost: one start-up for each (type, operation) instead of each tensor; two copies of each small tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "runtime/comm.h"

#define FUSED_BYTES_MAX (64 * 1024) /* larger tensors gain nothing from sharing a start-up */

gw_status gw_group_start(gw_comm *comm) {
    gw_error error = {.rank = -1};
    if (!comm) gw_fail(&error, GW_INVALID, "gw_group_start: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (comm->grouping) gw_fail(&error, GW_INVALID, "gw_group_start: a group is open already");
    if (error.status) return gw_comm_set_last_error(&error);
    comm->grouping = true;
    comm->call_count = 0;
    return GW_OK;
}

bool gw_group_add(gw_comm *comm, const gw_op_spec *spec, gw_status *status) {
    if (!comm->grouping) return false;
    *status = GW_OK;
    gw_error error = {.rank = -1};
    if (comm->call_count == comm->call_capacity) {
        int room = comm->call_capacity ? 2 * comm->call_capacity : 64;
        gw_grouped *grown = realloc(comm->calls, (size_t)room * sizeof *grown);
        if (!grown) {
            gw_fail(&error, GW_MEMORY, "out of memory for a group of %d calls", comm->call_count);
            *status = gw_comm_set_last_error(&error);
            return true;
        }
        comm->calls = grown;
        comm->call_capacity = room;
    }
    gw_grouped *added = &comm->calls[comm->call_count++];
    *added = (gw_grouped){.spec = *spec};
    if (spec->counts) { /* the caller's array need not live until gw_group_end */
        size_t bytes = (size_t)comm->size * sizeof *spec->counts;
        size_t *copy = malloc(bytes);
        if (!copy) {
            comm->call_count--;
            gw_fail(&error, GW_MEMORY, "out of memory for a group");
            *status = gw_comm_set_last_error(&error);
            return true;
        }
        memcpy(copy, spec->counts, bytes);
        added->spec.counts = copy;
    }
    return true;
}

static size_t call_bytes(const gw_op_spec *spec) { return spec->count * gw_dtype_bytes(spec->dtype); }

static bool fits(const gw_op_spec *spec, const gw_op_spec *like) {
    return spec->collective == GW_COLL_ALLREDUCE && call_bytes(spec) <= FUSED_BYTES_MAX &&
           spec->dtype == like->dtype && spec->redop == like->redop;
}

static gw_status make_room(gw_comm *comm, size_t bytes) {
    if (bytes <= comm->fuse_bytes) return GW_OK;
    gw_free(comm, comm->fuse);
    comm->fuse = gw_alloc(comm, bytes);
    comm->fuse_bytes = comm->fuse ? bytes : 0;
    if (comm->fuse) return GW_OK;
    gw_error error = {.rank = -1};
    gw_fail(&error, GW_MEMORY, "out of memory for a fused group of %zu bytes", bytes);
    return gw_comm_set_last_error(&error);
}

/* Packs the calls that can be fused with the first one into the fuse buffer, or copies the results back from there. */
static size_t copy_fused(gw_comm *comm, int first, size_t at, bool pack) {
    for (int i = first; i < comm->call_count; i++) {
        gw_grouped *call = &comm->calls[i];
        if (!fits(&call->spec, &comm->calls[first].spec)) continue;
        size_t bytes = call_bytes(&call->spec);
        char *packed = (char *)comm->fuse + at;
        if (bytes) memcpy(pack ? packed : call->spec.out, pack ? call->spec.in : packed, bytes);
        call->fused = true;
        at += bytes;
    }
    return at;
}

static size_t fused_bytes(const gw_comm *comm) {
    size_t bytes = 0;
    for (int i = 0; i < comm->call_count; i++)
        if (fits(&comm->calls[i].spec, &comm->calls[i].spec)) bytes += call_bytes(&comm->calls[i].spec) + 64;
    return bytes;
}

/* A class of fused calls: its first call and its offset in the fuse buffer. */
typedef struct fused_class {
    int first;
    size_t at;
} fused_class;

static gw_status begin_fused(gw_comm *comm, fused_class *classes, int *class_count, gw_request **requests, int *begun) {
    size_t at = 0;
    for (int i = 0; i < comm->call_count; i++) {
        gw_op_spec like = comm->calls[i].spec;
        if (comm->calls[i].fused || !fits(&like, &like)) continue;
        size_t end = copy_fused(comm, i, at, true);
        gw_op_spec spec = like;
        spec.in = spec.out = (char *)comm->fuse + at;
        spec.count = (end - at) / gw_dtype_bytes(like.dtype);
        gw_status status = gw_comm_begin(comm, &spec, &requests[*begun]);
        if (status) return status;
        (*begun)++;
        classes[(*class_count)++] = (fused_class){.first = i, .at = at};
        at = (end + 63) / 64 * 64;
    }
    return GW_OK;
}

static gw_status begin_rest(gw_comm *comm, gw_request **requests, int *begun) {
    for (int i = 0; i < comm->call_count; i++) {
        if (comm->calls[i].fused) continue;
        gw_status status = gw_comm_begin(comm, &comm->calls[i].spec, &requests[*begun]);
        if (status) return status;
        (*begun)++;
    }
    return GW_OK;
}

static gw_status run_group(gw_comm *comm, gw_request **requests, fused_class *classes) {
    int begun = 0, class_count = 0;
    gw_status status = make_room(comm, fused_bytes(comm));
    if (!status) status = begin_fused(comm, classes, &class_count, requests, &begun);
    if (!status) status = begin_rest(comm, requests, &begun);
    for (int i = 0; i < begun; i++) {
        gw_status ended = gw_wait(requests[i]);
        if (!status) status = ended;
    }
    for (int c = 0; !status && c < class_count; c++) copy_fused(comm, classes[c].first, classes[c].at, false);
    return status;
}

gw_status gw_group_end(gw_comm *comm) {
    gw_error error = {.rank = -1};
    if (!comm) gw_fail(&error, GW_INVALID, "gw_group_end: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (!comm->grouping) gw_fail(&error, GW_INVALID, "gw_group_end: no group is open");
    if (error.status) return gw_comm_set_last_error(&error);
    comm->grouping = false;
    size_t n = (size_t)comm->call_count;
    gw_request **requests = calloc(n + 1, sizeof *requests);
    fused_class *classes = calloc(n + 1, sizeof *classes);
    gw_status status;
    if (requests && classes) {
        status = run_group(comm, requests, classes);
    } else {
        gw_fail(&error, GW_MEMORY, "out of memory for a group of %zu calls", n);
        status = gw_comm_set_last_error(&error);
    }
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)comm->calls[i].spec.counts);
    comm->call_count = 0;
    free(requests);
    free(classes);
    return status;
}
