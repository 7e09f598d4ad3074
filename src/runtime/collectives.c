/* collectives.c - the public calls: check the arguments, then start operations. */
#include <stdarg.h>
#include <stdio.h>

#include "base/dtype.h"
#include "runtime/comm.h"

/* Checks. Wrong arguments fail only the call, not the communicator. */

typedef struct call {
    gw_comm *comm;
    gw_op_spec spec;
    bool in_needed, out_needed; /* on this rank */
    size_t parts_in, parts_out; /* spec.count elements each */
} call;

static gw_status invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));

static gw_status invalid(const char *format, ...) {
    gw_error error = {.status = GW_INVALID, .rank = -1};
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    return gw_comm_set_last_error(&error);
}

static gw_status check_types(const gw_op_spec *spec) {
    if ((unsigned)spec->dtype >= GW_DTYPES)
        return invalid("%s: %d is not a gw_dtype", gw_collective_name(spec->collective), (int)spec->dtype);
    if ((unsigned)spec->redop >= GW_REDOPS)
        return invalid("%s: %d is not a gw_redop", gw_collective_name(spec->collective), (int)spec->redop);
    return GW_OK;
}

/* Bytes of the larger buffer; false: more than memory can hold. */
static bool total_bytes(const call *c, size_t *total) {
    const gw_op_spec *spec = &c->spec;
    size_t parts = c->parts_in > c->parts_out ? c->parts_in : c->parts_out;
    bool fits = !__builtin_mul_overflow(spec->count, parts, total);
    for (int r = 0; spec->counts && r < c->comm->size; r++)
        fits = fits && !__builtin_add_overflow(*total, spec->counts[r], total);
    return fits && !__builtin_mul_overflow(*total, gw_dtype_bytes(spec->dtype), total) && *total <= SIZE_MAX / 4;
}

static gw_status check_buffers(const call *c) {
    const gw_op_spec *spec = &c->spec;
    const char *name = gw_collective_name(spec->collective);
    size_t total;
    if (!total_bytes(c, &total))
        return invalid("%s: so many elements of %zu bytes do not fit in memory", name, gw_dtype_bytes(spec->dtype));
    size_t own = spec->counts ? spec->counts[c->comm->rank] : total;
    bool in_is_own = spec->collective == GW_COLL_ALLGATHER, out_is_own = spec->collective == GW_COLL_REDUCE_SCATTER;
    if ((in_is_own ? own : total) && c->in_needed && !spec->in) return invalid("%s: the input buffer is NULL", name);
    if ((out_is_own ? own : total) && c->out_needed && !spec->out)
        return invalid("%s: the output buffer is NULL", name);
    return GW_OK;
}

static gw_status check(const call *c) {
    const gw_op_spec *spec = &c->spec;
    if (!c->comm) return invalid("%s: the communicator is NULL", gw_collective_name(spec->collective));
    if (gw_comm_forked(c->comm)) return GW_INVALID;
    gw_status status = check_types(spec);
    if (status) return status;
    bool pair = spec->collective == GW_COLL_SEND || spec->collective == GW_COLL_RECV;
    bool rooted = spec->collective == GW_COLL_REDUCE || spec->collective == GW_COLL_BROADCAST ||
                  spec->collective == GW_COLL_GATHER || spec->collective == GW_COLL_SCATTER;
    if ((rooted || pair) && (spec->root < 0 || spec->root >= c->comm->size))
        return invalid("%s: %s %d is not a rank of a communicator of %d", gw_collective_name(spec->collective),
                       pair ? "peer" : "root", spec->root, c->comm->size);
    if (pair && spec->root == c->comm->rank)
        return invalid("%s: peer %d is this rank itself", gw_collective_name(spec->collective), spec->root);
    return check_buffers(c);
}

/* request: only if asynchronous. */
static gw_status dispatch(call *c, bool asynchronous, gw_request **request) {
    if (asynchronous) {
        if (!request) return invalid("%s: the request is NULL", gw_collective_name(c->spec.collective));
        *request = NULL;
    }
    gw_status status = check(c);
    if (status) return status;
    if (asynchronous && c->comm->grouping)
        return invalid("%s: it cannot be started on its own inside a group", gw_collective_name(c->spec.collective));
    if (asynchronous) return gw_comm_begin(c->comm, &c->spec, request);
    if (gw_group_add(c->comm, &c->spec, &status)) return status;
    return gw_comm_run(c->comm, &c->spec);
}

static size_t world_of(const gw_comm *comm) { return comm ? (size_t)comm->size : 1; }

static call reduce_call(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                        gw_redop op, int root) {
    return (call){.comm = comm, .in_needed = true, .out_needed = root < 0 || !comm || comm->rank == root,
                  .parts_in = what == GW_COLL_REDUCE_SCATTER ? world_of(comm) : 1, .parts_out = 1,
                  .spec = {.collective = what, .in = in, .out = out, .count = count, .dtype = dtype, .redop = op,
                           .root = root}};
}

static call move_call(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                      int root) {
    bool is_root = comm && comm->rank == root;
    bool many_in = what == GW_COLL_SCATTER || what == GW_COLL_ALLTOALL;
    bool many_out = what == GW_COLL_GATHER || what == GW_COLL_ALLGATHER || what == GW_COLL_ALLTOALL;
    bool in_at_root = what == GW_COLL_SCATTER || what == GW_COLL_BROADCAST;
    return (call){.comm = comm, .in_needed = what != GW_COLL_RECV && (is_root || !in_at_root),
                  .out_needed = what != GW_COLL_SEND && (is_root || what != GW_COLL_GATHER),
                  .parts_in = many_in ? world_of(comm) : 1, .parts_out = many_out ? world_of(comm) : 1,
                  .spec = {.collective = what, .in = in, .out = out, .count = count, .dtype = dtype, .redop = GW_SUM,
                           .root = root}};
}

/* Each collective, blocking and asynchronous. */

static gw_status allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                           bool asynchronous, gw_request **request) {
    call c = reduce_call(comm, GW_COLL_ALLREDUCE, in, out, count, dtype, op, -1);
    return dispatch(&c, asynchronous, request);
}

gw_status gw_allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op) {
    gw_status status;
    bool plain = comm && !comm->grouping && in && out && !gw_context_forked(comm->context);
    if (plain && gw_comm_run_again(comm, GW_COLL_ALLREDUCE, in, out, count, dtype, op, &status)) return status;
    return allreduce(comm, in, out, count, dtype, op, false, NULL);
}

gw_status gw_allreduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                             gw_request **request) {
    return allreduce(comm, in, out, count, dtype, op, true, request);
}

static gw_status reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op, int root,
                        bool asynchronous, gw_request **request) {
    call c = reduce_call(comm, GW_COLL_REDUCE, in, out, count, dtype, op, root);
    return dispatch(&c, asynchronous, request);
}

gw_status gw_reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op, int root) {
    return reduce(comm, in, out, count, dtype, op, root, false, NULL);
}

gw_status gw_reduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op, int root,
                          gw_request **request) {
    return reduce(comm, in, out, count, dtype, op, root, true, request);
}

static gw_status reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, const size_t *counts,
                                gw_dtype dtype, gw_redop op, bool asynchronous, gw_request **request) {
    call c = reduce_call(comm, GW_COLL_REDUCE_SCATTER, in, out, count, dtype, op, -1);
    c.spec.counts = counts;
    return dispatch(&c, asynchronous, request);
}

gw_status gw_reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op) {
    return reduce_scatter(comm, in, out, count, NULL, dtype, op, false, NULL);
}

gw_status gw_reduce_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                                  gw_request **request) {
    return reduce_scatter(comm, in, out, count, NULL, dtype, op, true, request);
}

gw_status gw_reduce_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                             gw_redop op) {
    if (!counts) return invalid("reduce_scatterv: counts is NULL");
    return reduce_scatter(comm, in, out, 0, counts, dtype, op, false, NULL);
}

gw_status gw_reduce_scatterv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                   gw_redop op, gw_request **request) {
    if (!counts) return invalid("reduce_scatterv: counts is NULL");
    return reduce_scatter(comm, in, out, 0, counts, dtype, op, true, request);
}

static gw_status move(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, const size_t *counts,
                      gw_dtype dtype, int root, bool asynchronous, gw_request **request) {
    call c = move_call(comm, what, in, out, count, dtype, root);
    c.spec.counts = counts;
    return dispatch(&c, asynchronous, request);
}

gw_status gw_broadcast(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    return move(comm, GW_COLL_BROADCAST, in, out, count, NULL, dtype, root, false, NULL);
}

gw_status gw_broadcast_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                             gw_request **request) {
    return move(comm, GW_COLL_BROADCAST, in, out, count, NULL, dtype, root, true, request);
}

gw_status gw_allgather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype) {
    return move(comm, GW_COLL_ALLGATHER, in, out, count, NULL, dtype, -1, false, NULL);
}

gw_status gw_allgather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                             gw_request **request) {
    return move(comm, GW_COLL_ALLGATHER, in, out, count, NULL, dtype, -1, true, request);
}

gw_status gw_allgatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype) {
    if (!counts) return invalid("allgatherv: counts is NULL");
    return move(comm, GW_COLL_ALLGATHER, in, out, 0, counts, dtype, -1, false, NULL);
}

gw_status gw_allgatherv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                              gw_request **request) {
    if (!counts) return invalid("allgatherv: counts is NULL");
    return move(comm, GW_COLL_ALLGATHER, in, out, 0, counts, dtype, -1, true, request);
}

gw_status gw_gather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    return move(comm, GW_COLL_GATHER, in, out, count, NULL, dtype, root, false, NULL);
}

gw_status gw_gather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                          gw_request **request) {
    return move(comm, GW_COLL_GATHER, in, out, count, NULL, dtype, root, true, request);
}

gw_status gw_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    return move(comm, GW_COLL_SCATTER, in, out, count, NULL, dtype, root, false, NULL);
}

gw_status gw_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                           gw_request **request) {
    return move(comm, GW_COLL_SCATTER, in, out, count, NULL, dtype, root, true, request);
}

gw_status gw_alltoall(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype) {
    return move(comm, GW_COLL_ALLTOALL, in, out, count, NULL, dtype, -1, false, NULL);
}

gw_status gw_alltoall_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                            gw_request **request) {
    return move(comm, GW_COLL_ALLTOALL, in, out, count, NULL, dtype, -1, true, request);
}

gw_status gw_barrier(gw_comm *comm) {
    return move(comm, GW_COLL_BARRIER, NULL, NULL, 0, NULL, GW_U8, -1, false, NULL);
}

gw_status gw_barrier_start(gw_comm *comm, gw_request **request) {
    return move(comm, GW_COLL_BARRIER, NULL, NULL, 0, NULL, GW_U8, -1, true, request);
}

gw_status gw_send(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer) {
    return move(comm, GW_COLL_SEND, data, NULL, count, NULL, dtype, peer, false, NULL);
}

gw_status gw_send_start(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer, gw_request **request) {
    return move(comm, GW_COLL_SEND, data, NULL, count, NULL, dtype, peer, true, request);
}

gw_status gw_recv(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer) {
    return move(comm, GW_COLL_RECV, NULL, data, count, NULL, dtype, peer, false, NULL);
}

gw_status gw_recv_start(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer, gw_request **request) {
    return move(comm, GW_COLL_RECV, NULL, data, count, NULL, dtype, peer, true, request);
}
