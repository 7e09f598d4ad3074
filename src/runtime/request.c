/* request.c - runs operations for callers: blocking ones in the caller's thread, others behind a request. */
#include <stdlib.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "runtime/comm.h"

gw_status gw_comm_set_failure(gw_comm *comm, const gw_error *error) {
    return gw_comm_set_last_error(atomic_load(&comm->failed) ? &comm->error : error);
}

/* (L) is held. */
static void plan(gw_comm *comm, gw_op_spec *spec) {
    if (spec->builder) return;
    if (!comm->planned.builder || !gw_op_same_kind(&comm->planned, spec)) {
        gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(comm->team),
                                   .rank = comm->rank, .count = spec->count, .counts = spec->counts,
                                   .root = spec->root, .chunk_count = 1, .pipeline = GW_PIPELINE};
        request.topology.native = comm->native && !spec->scale.set && comm->native->supports(spec->dtype, spec->redop);
        comm->planned = *spec;
        comm->planned.builder = gw_arch_choose(comm->arch, &request, gw_dtype_bytes(spec->dtype));
        comm->planned.chunk_bytes = comm->chunk_bytes;
        comm->planned.eager = true;
        comm->planned.deadline = 0;
    }
    spec->builder = comm->planned.builder;
    spec->chunk_bytes = comm->chunk_bytes;
    spec->eager = true;
}

/* (L) is held. */
static gw_status start(gw_comm *comm, const gw_op_spec *spec, gw_op **op, gw_error *error) {
    gw_context *context = comm->context;
    if (atomic_load(&comm->failed)) {
        *error = comm->error;
        return error->status;
    }
    gw_time now = gw_clock_now();
    gw_status status = gw_core_start(context->core, op, comm->team, spec, now, error);
    if (!status) gw_flight_begin(&context->flight, *op, now);
    return status;
}

/* (L) is held; the operation is done. */
static gw_status end(gw_context *context, gw_op *op) {
    gw_status status = gw_op_status(op);
    gw_flight_end(&context->flight, op, gw_clock_now());
    gw_op_release(op);
    return status;
}

/* (L) is held, and released. Separate from run, so that the fast path clears no gw_error: that takes a tenth of a
 * fast-path call. */
static gw_status run_planned(gw_comm *comm, const gw_op_spec *spec) {
    gw_context *context = comm->context;
    gw_error error = {.rank = -1};
    gw_op *op = NULL;
    gw_status status = start(comm, spec, &op, &error);
    if (!status) {
        gw_context_drive(context, op);
        status = end(context, op);
    }
    gw_context_unlock(context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}

/* (L) is held, and released. */
static gw_status run(gw_comm *comm, const gw_op_spec *spec) {
    if (atomic_load(&comm->failed) || !gw_context_fast_path(comm->context, comm->team, spec))
        return run_planned(comm, spec);
    gw_context_unlock(comm->context);
    return GW_OK;
}

gw_status gw_comm_run(gw_comm *comm, gw_op_spec *spec) {
    gw_context_lock(comm->context);
    plan(comm, spec);
    return run(comm, spec);
}

bool gw_comm_run_again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                       gw_redop op, int root, gw_status *status) {
    gw_op_spec *last = &comm->planned;
    gw_context_lock(comm->context);
    if (!last->builder || last->collective != what || last->count != count || last->dtype != dtype ||
        last->redop != op || last->root != root || last->scale.set || last->counts || !in != !last->in ||
        !out != !last->out) {
        gw_context_unlock(comm->context);
        return false;
    }
    last->in = in;
    last->out = out;
    *status = run(comm, last);
    return true;
}

gw_status gw_comm_start_op(gw_comm *comm, gw_op_spec *spec, gw_op **op, gw_error *error) {
    plan(comm, spec);
    return start(comm, spec, op, error);
}

gw_status gw_comm_end_op(gw_comm *comm, gw_op *op) { return end(comm->context, op); }

/* Requests. (L) is held. */

gw_request *gw_request_open(gw_comm *comm, gw_op *op, gw_batch *batch) {
    gw_context *context = comm->context;
    gw_request *request = context->spare_requests;
    if (request) context->spare_requests = request->next;
    else request = calloc(1, sizeof *request);
    if (!request) return NULL;
    *request = (gw_request){.comm = comm, .op = op, .batch = batch, .link = &comm->requests, .next = comm->requests};
    if (request->next) request->next->link = &request->next;
    comm->requests = request;
    return request;
}

static void close_request(gw_request *request) {
    gw_context *context = request->comm->context;
    *request->link = request->next;
    if (request->next) request->next->link = request->link;
    request->next = context->spare_requests;
    context->spare_requests = request;
}

static bool is_done(const gw_request *request) {
    gw_status status;
    return request->batch ? gw_batch_done(request->batch, &status) : gw_op_done(request->op);
}

static void drive(gw_request *request) {
    if (request->batch) gw_batch_drive(request->batch);
    else gw_context_drive(request->comm->context, request->op);
}

gw_status gw_request_retire(gw_request *request) {
    gw_status status;
    if (request->batch) {
        gw_batch_done(request->batch, &status);
        gw_batch_release(request->batch);
    } else {
        status = end(request->comm->context, request->op);
    }
    close_request(request);
    return status;
}

void gw_comm_finish_requests(gw_comm *comm) {
    while (comm->requests) {
        if (!comm->requests->batch || !gw_batch_is_open(comm->requests->batch)) drive(comm->requests);
        gw_request_retire(comm->requests);
    }
}

/* The public calls. */

gw_status gw_comm_begin(gw_comm *comm, gw_op_spec *spec, gw_request **out) {
    gw_context *context = comm->context;
    gw_error error = {.rank = -1};
    gw_op *op = NULL;
    gw_context_lock(context);
    gw_request *request = gw_request_open(comm, NULL, NULL);
    gw_status status = request ? GW_OK : gw_fail(&error, GW_MEMORY, "out of memory for a request");
    if (!status) status = gw_comm_start_op(comm, spec, &op, &error);
    if (!status) {
        request->op = op;
        *out = request;
        gw_context_started(context);
    } else if (request) {
        close_request(request);
    }
    gw_context_unlock(context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}

/* A request of a group that is still open has not been started. (L) is held. */
static gw_status check_started(const gw_request *request, const char *call, gw_error *error) {
    if (!request->batch || !gw_batch_is_open(request->batch)) return GW_OK;
    return gw_fail(error, GW_INVALID, "%s: the request belongs to a group that is still open: call gw_group_end first",
                   call);
}

gw_status gw_wait(gw_request *request) {
    if (!request) return GW_OK;
    gw_comm *comm = request->comm;
    gw_context *context = comm->context;
    gw_error error = {.rank = -1};
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_context_lock(context);
    gw_status status = check_started(request, "gw_wait", &error);
    if (!status) {
        drive(request);
        status = gw_request_retire(request);
    }
    gw_context_unlock(context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}

gw_status gw_test(gw_request *request, bool *done) {
    gw_error error = {.rank = -1};
    if (!done) {
        gw_fail(&error, GW_INVALID, "gw_test: the place for the answer is NULL");
        return gw_comm_set_last_error(&error);
    }
    *done = true;
    if (!request) return GW_OK;
    gw_comm *comm = request->comm;
    gw_context *context = comm->context;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_context_lock(context);
    gw_status status = check_started(request, "gw_test", &error);
    *done = false;
    if (!status) {
        if (!is_done(request) && !context->driven) gw_core_poll(context->core, gw_clock_now());
        *done = is_done(request);
        if (*done) status = gw_request_retire(request);
    }
    gw_context_unlock(context);
    return status ? gw_comm_set_failure(comm, &error) : GW_OK;
}
