/* collectives.c - the plain calls: each is short for a gw_call. */
#include "runtime/comm.h"

static gw_status start(gw_comm *comm, const gw_call *call, gw_request **request) {
    if (!request) return gw_invalid("%s: the request is NULL", gw_collective_name(call->collective));
    return gw_dispatch(comm, call, request);
}

/* Runs a blocking call that differs from the last one at most in its buffers. False: it differs in more, or has to be
 * checked. */
static bool again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                  gw_redop op, int root, gw_status *status) {
    bool plain = comm && !comm->group && (!in || gw_memory_was_readable(comm, in)) &&
                 (!out || gw_memory_was_readable(comm, out)) && !gw_context_forked(comm->context);
    return plain && gw_comm_run_again(comm, what, in, out, count, dtype, op, root, status);
}

static gw_call reduction(gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                         int root) {
    return (gw_call){.collective = what, .in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = root,
                     .prescale = 1, .postscale = 1};
}

static gw_call transfer(gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    return (gw_call){.collective = what, .in = in, .out = out, .count = count, .dtype = dtype, .root = root,
                     .prescale = 1, .postscale = 1};
}

static gw_call uneven(gw_collective what, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root) {
    return (gw_call){.collective = what, .in = in, .out = out, .counts = counts, .dtype = dtype, .root = root,
                     .prescale = 1, .postscale = 1};
}

gw_status gw_allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op) {
    gw_status status;
    if (again(comm, GW_COLL_ALLREDUCE, in, out, count, dtype, op, -1, &status)) return status;
    gw_call call = reduction(GW_COLL_ALLREDUCE, in, out, count, dtype, op, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_allreduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                             gw_request **request) {
    gw_call call = reduction(GW_COLL_ALLREDUCE, in, out, count, dtype, op, -1);
    return start(comm, &call, request);
}

gw_status gw_reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op, int root) {
    gw_status status;
    if (again(comm, GW_COLL_REDUCE, in, out, count, dtype, op, root, &status)) return status;
    gw_call call = reduction(GW_COLL_REDUCE, in, out, count, dtype, op, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_reduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op, int root,
                          gw_request **request) {
    gw_call call = reduction(GW_COLL_REDUCE, in, out, count, dtype, op, root);
    return start(comm, &call, request);
}

gw_status gw_reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op) {
    gw_status status;
    if (again(comm, GW_COLL_REDUCE_SCATTER, in, out, count, dtype, op, -1, &status)) return status;
    gw_call call = reduction(GW_COLL_REDUCE_SCATTER, in, out, count, dtype, op, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_reduce_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                                  gw_request **request) {
    gw_call call = reduction(GW_COLL_REDUCE_SCATTER, in, out, count, dtype, op, -1);
    return start(comm, &call, request);
}

gw_status gw_reduce_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                             gw_redop op) {
    if (!counts) return gw_invalid("reduce_scatterv: counts is NULL");
    gw_call call = uneven(GW_COLL_REDUCE_SCATTER, in, out, counts, dtype, -1);
    call.op = op;
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_reduce_scatterv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                   gw_redop op, gw_request **request) {
    if (!counts) return gw_invalid("reduce_scatterv: counts is NULL");
    gw_call call = uneven(GW_COLL_REDUCE_SCATTER, in, out, counts, dtype, -1);
    call.op = op;
    return start(comm, &call, request);
}

gw_status gw_broadcast(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    gw_status status;
    if (again(comm, GW_COLL_BROADCAST, in, out, count, dtype, GW_SUM, root, &status)) return status;
    gw_call call = transfer(GW_COLL_BROADCAST, in, out, count, dtype, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_broadcast_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                             gw_request **request) {
    gw_call call = transfer(GW_COLL_BROADCAST, in, out, count, dtype, root);
    return start(comm, &call, request);
}

gw_status gw_allgather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype) {
    gw_status status;
    if (again(comm, GW_COLL_ALLGATHER, in, out, count, dtype, GW_SUM, -1, &status)) return status;
    gw_call call = transfer(GW_COLL_ALLGATHER, in, out, count, dtype, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_allgather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                             gw_request **request) {
    gw_call call = transfer(GW_COLL_ALLGATHER, in, out, count, dtype, -1);
    return start(comm, &call, request);
}

gw_status gw_allgatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype) {
    if (!counts) return gw_invalid("allgatherv: counts is NULL");
    gw_call call = uneven(GW_COLL_ALLGATHER, in, out, counts, dtype, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_allgatherv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                              gw_request **request) {
    if (!counts) return gw_invalid("allgatherv: counts is NULL");
    gw_call call = uneven(GW_COLL_ALLGATHER, in, out, counts, dtype, -1);
    return start(comm, &call, request);
}

gw_status gw_gather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    gw_status status;
    if (again(comm, GW_COLL_GATHER, in, out, count, dtype, GW_SUM, root, &status)) return status;
    gw_call call = transfer(GW_COLL_GATHER, in, out, count, dtype, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_gather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                          gw_request **request) {
    gw_call call = transfer(GW_COLL_GATHER, in, out, count, dtype, root);
    return start(comm, &call, request);
}

gw_status gw_gatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root) {
    if (!counts) return gw_invalid("gatherv: counts is NULL");
    gw_call call = uneven(GW_COLL_GATHER, in, out, counts, dtype, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_gatherv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root,
                           gw_request **request) {
    if (!counts) return gw_invalid("gatherv: counts is NULL");
    gw_call call = uneven(GW_COLL_GATHER, in, out, counts, dtype, root);
    return start(comm, &call, request);
}

gw_status gw_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root) {
    gw_status status;
    if (again(comm, GW_COLL_SCATTER, in, out, count, dtype, GW_SUM, root, &status)) return status;
    gw_call call = transfer(GW_COLL_SCATTER, in, out, count, dtype, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                           gw_request **request) {
    gw_call call = transfer(GW_COLL_SCATTER, in, out, count, dtype, root);
    return start(comm, &call, request);
}

gw_status gw_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root) {
    if (!counts) return gw_invalid("scatterv: counts is NULL");
    gw_call call = uneven(GW_COLL_SCATTER, in, out, counts, dtype, root);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_scatterv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root,
                            gw_request **request) {
    if (!counts) return gw_invalid("scatterv: counts is NULL");
    gw_call call = uneven(GW_COLL_SCATTER, in, out, counts, dtype, root);
    return start(comm, &call, request);
}

gw_status gw_alltoall(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype) {
    gw_status status;
    if (again(comm, GW_COLL_ALLTOALL, in, out, count, dtype, GW_SUM, -1, &status)) return status;
    gw_call call = transfer(GW_COLL_ALLTOALL, in, out, count, dtype, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_alltoall_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                            gw_request **request) {
    gw_call call = transfer(GW_COLL_ALLTOALL, in, out, count, dtype, -1);
    return start(comm, &call, request);
}

gw_status gw_alltoallv(gw_comm *comm, const void *in, const size_t *in_counts, const size_t *in_offsets, void *out,
                       const size_t *out_counts, const size_t *out_offsets, gw_dtype dtype) {
    gw_call call = transfer(GW_COLL_ALLTOALLV, in, out, 0, dtype, -1);
    call.in_counts = in_counts, call.in_offsets = in_offsets;
    call.out_counts = out_counts, call.out_offsets = out_offsets;
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_alltoallv_start(gw_comm *comm, const void *in, const size_t *in_counts, const size_t *in_offsets,
                             void *out, const size_t *out_counts, const size_t *out_offsets, gw_dtype dtype,
                             gw_request **request) {
    gw_call call = transfer(GW_COLL_ALLTOALLV, in, out, 0, dtype, -1);
    call.in_counts = in_counts, call.in_offsets = in_offsets;
    call.out_counts = out_counts, call.out_offsets = out_offsets;
    return start(comm, &call, request);
}

gw_status gw_barrier(gw_comm *comm) {
    gw_status status;
    if (again(comm, GW_COLL_BARRIER, NULL, NULL, 0, GW_U8, GW_SUM, -1, &status)) return status;
    gw_call call = transfer(GW_COLL_BARRIER, NULL, NULL, 0, GW_U8, -1);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_barrier_start(gw_comm *comm, gw_request **request) {
    gw_call call = transfer(GW_COLL_BARRIER, NULL, NULL, 0, GW_U8, -1);
    return start(comm, &call, request);
}

gw_status gw_send(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer) {
    gw_call call = transfer(GW_COLL_SEND, data, NULL, count, dtype, peer);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_send_start(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer, gw_request **request) {
    gw_call call = transfer(GW_COLL_SEND, data, NULL, count, dtype, peer);
    return start(comm, &call, request);
}

gw_status gw_recv(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer) {
    gw_call call = transfer(GW_COLL_RECV, NULL, data, count, dtype, peer);
    return gw_dispatch(comm, &call, NULL);
}

gw_status gw_recv_start(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer, gw_request **request) {
    gw_call call = transfer(GW_COLL_RECV, NULL, data, count, dtype, peer);
    return start(comm, &call, request);
}
