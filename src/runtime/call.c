/* call.c - checks a call that a gw_call describes, and starts its operations. Every public collective comes here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/sized.h"
#include "runtime/comm.h"

/* What the arguments of a collective mean. */
typedef struct rules {
    bool reduces, rooted, pair;
    bool uneven;              /* may have counts */
    bool coalesces;           /* may run for many tensors at once */
    bool parts_in, parts_out; /* the buffer has a part for each rank */
} rules;

static const rules rules_of[] = {
    [GW_COLL_ALLREDUCE] = {.reduces = true, .coalesces = true},
    [GW_COLL_REDUCE_SCATTER] = {.reduces = true, .uneven = true, .coalesces = true, .parts_in = true},
    [GW_COLL_ALLGATHER] = {.uneven = true, .coalesces = true, .parts_out = true},
    [GW_COLL_REDUCE] = {.reduces = true, .rooted = true, .coalesces = true},
    [GW_COLL_BROADCAST] = {.rooted = true, .coalesces = true},
    [GW_COLL_GATHER] = {.rooted = true, .uneven = true, .coalesces = true, .parts_out = true},
    [GW_COLL_SCATTER] = {.rooted = true, .uneven = true, .coalesces = true, .parts_in = true},
    [GW_COLL_ALLTOALL] = {.coalesces = true, .parts_in = true, .parts_out = true},
    [GW_COLL_BARRIER] = {0},
    [GW_COLL_SEND] = {.pair = true},
    [GW_COLL_RECV] = {.pair = true},
    [GW_COLL_ALLTOALLV] = {0},
};
_Static_assert(sizeof rules_of / sizeof *rules_of == GW_COLLECTIVES, "every collective has rules");

/* Checks. Wrong arguments fail only the call, not the communicator. */

gw_status gw_invalid(const char *format, ...) {
    gw_error error = {.status = GW_INVALID, .rank = -1};
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    return gw_comm_set_last_error(&error);
}

static gw_status unsupported(const gw_call *call, const char *name, const char *what, const char *why) {
    gw_error error = {.rank = -1};
    gw_fail(&error, GW_UNSUPPORTED, "%s: %s %s of %s is not possible: %s", name, what, gw_redop_name(call->op),
            gw_dtype_name(call->dtype), why);
    return gw_comm_set_last_error(&error);
}

static gw_status check_reduction(const gw_call *call, const char *name) {
    bool scaled = gw_scale_of(call->prescale, call->postscale).set;
    if (!rules_of[call->collective].reduces)
        return scaled ? gw_invalid("%s: it reduces nothing, so it has no scale", name) : GW_OK;
    const char *why = gw_redop_refuses(call->dtype, call->op);
    if (why) return unsupported(call, name, "the", why);
    if (scaled) why = gw_scale_refuses(call->dtype, call->op);
    return why ? unsupported(call, name, "a scaled", why) : GW_OK;
}

static gw_status check_types(const gw_call *call, const char *name) {
    if ((unsigned)call->dtype >= GW_DTYPES) return gw_invalid("%s: %d is not a gw_dtype", name, (int)call->dtype);
    if ((unsigned)call->op >= GW_REDOPS) return gw_invalid("%s: %d is not a gw_redop", name, (int)call->op);
    if (call->deadline_s && !(call->deadline_s >= 0.05 && call->deadline_s <= 1e6))
        return gw_invalid("%s: a deadline of %g s is not between 0.05 s and 1,000,000 s", name, call->deadline_s);
    return GW_OK;
}

static gw_status check_root(const gw_comm *comm, const gw_call *call, const char *name) {
    const rules *r = &rules_of[call->collective];
    if (!r->rooted && !r->pair) return GW_OK;
    if (r->pair && call->tag < 0) return gw_invalid("%s: the tag %d is negative", name, call->tag);
    if (call->collective == GW_COLL_RECV && call->root == GW_ANY_SOURCE) return GW_OK;
    if (call->root < 0 || call->root >= comm->size)
        return gw_invalid("%s: %s %d is not a rank of a communicator of %d", name, r->pair ? "peer" : "root",
                          call->root, comm->size);
    if (r->pair && call->root == comm->rank) return gw_invalid("%s: peer %d is this rank itself", name, call->root);
    return GW_OK;
}

static gw_status check(const gw_comm *comm, const gw_call *call) {
    if ((unsigned)call->collective >= GW_COLLECTIVES)
        return gw_invalid("%d is not a gw_collective", (int)call->collective);
    const char *name = gw_collective_name(call->collective);
    const rules *r = &rules_of[call->collective];
    if (!comm) return gw_invalid("%s: the communicator is NULL", name);
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (call->counts && (!r->uneven || call->tensors)) return gw_invalid("%s: it takes no counts", name);
    if (call->tensors && !r->coalesces) return gw_invalid("%s: it cannot be coalesced", name);
    if (call->tensor_count && !call->tensors) return gw_invalid("%s: the tensors are NULL", name);
    gw_status status = check_types(call, name);
    if (!status) status = check_reduction(call, name);
    return status ? status : check_root(comm, call, name);
}

/* Elements of the largest buffer; false: more than memory can hold. */
static bool total_elements(const gw_op_spec *spec, int world, size_t *total) {
    const rules *r = &rules_of[spec->collective];
    bool fits = !__builtin_mul_overflow(spec->count, r->parts_in || r->parts_out ? (size_t)world : 1, total);
    size_t arrays = spec->counts ? gw_counts_entries(spec->collective, world) : 0;
    for (size_t i = 0; i < arrays; i++) fits = fits && !__builtin_add_overflow(*total, spec->counts[i], total);
    return fits;
}

static gw_status check_buffer(gw_comm *comm, const void *buffer, const char *name, const char *which) {
    if (!buffer) return gw_invalid("%s: the %s buffer is NULL", name, which);
    if (gw_memory_is_readable(comm, buffer)) return GW_OK;
    return gw_invalid("%s: the %s buffer at %p is not memory that this process can read; copy memory of a device to "
                      "the host first",
                      name, which, buffer);
}

static gw_status check_buffers(gw_comm *comm, const gw_op_spec *spec) {
    const char *name = gw_collective_name(spec->collective);
    size_t total, bytes = gw_dtype_bytes(spec->dtype);
    if (!total_elements(spec, comm->size, &total) || total > SIZE_MAX / 4 / bytes)
        return gw_invalid("%s: so many elements of %zu bytes do not fit in memory", name, bytes);
    gw_plan_request request = {.collective = spec->collective, .topology = {.world = comm->size}, .rank = comm->rank,
                               .count = spec->count, .counts = spec->counts, .root = spec->root};
    gw_status status = GW_OK;
    if (gw_plan_in_count(&request)) status = check_buffer(comm, spec->in, name, "input");
    if (!status && gw_plan_out_count(&request)) status = check_buffer(comm, spec->out, name, "output");
    if (!status && spec->collective == GW_COLL_ALLTOALLV && spec->in && spec->in == spec->out)
        return gw_invalid("%s: the input and the output are the same buffer; it has no in-place form", name);
    return status;
}

/* From calls to operations. */

static gw_op_spec spec_of(const gw_call *call) {
    return (gw_op_spec){.collective = call->collective, .in = call->in, .out = call->out, .count = call->count,
                        .counts = call->counts, .dtype = call->dtype,
                        .redop = rules_of[call->collective].reduces ? call->op : GW_SUM,
                        .root = rules_of[call->collective].rooted || rules_of[call->collective].pair ? call->root : -1,
                        .deadline = (gw_time)(call->deadline_s * (double)GW_SECOND),
                        .scale = gw_scale_of(call->prescale, call->postscale),
                        .tagged = rules_of[call->collective].pair, .tag = call->tag, .source = call->source};
}

/* Counts, and offsets or the sums of the counts before. */
static void copy_parts(size_t *counts, size_t *offsets, int world, const size_t *given, const size_t *given_offsets) {
    size_t at = 0;
    for (int r = 0; r < world; r++) {
        counts[r] = given[r];
        offsets[r] = given_offsets ? given_offsets[r] : at;
        if (__builtin_add_overflow(at, given[r], &at)) at = SIZE_MAX; /* refused by check_buffers */
    }
}

/* Puts the four arrays behind each other, as plans expect them. */
static gw_status join_arrays(gw_comm *comm, const gw_call *call, gw_op_spec *spec) {
    size_t world = (size_t)comm->size, *at = comm->counts;
    if (call->collective != GW_COLL_ALLTOALLV) return GW_OK;
    if (!call->in_counts || !call->out_counts) return gw_invalid("alltoallv: in_counts or out_counts is NULL");
    copy_parts(at + GW_ALLTOALLV_IN_COUNTS * world, at + GW_ALLTOALLV_IN_OFFSETS * world, comm->size, call->in_counts,
               call->in_offsets);
    copy_parts(at + GW_ALLTOALLV_OUT_COUNTS * world, at + GW_ALLTOALLV_OUT_OFFSETS * world, comm->size,
               call->out_counts, call->out_offsets);
    if (call->in_counts[comm->rank] != call->out_counts[comm->rank])
        return gw_invalid("alltoallv: rank %d sends itself %zu elements and expects %zu", comm->rank,
                          call->in_counts[comm->rank], call->out_counts[comm->rank]);
    spec->counts = comm->counts;
    spec->count = 0;
    return GW_OK;
}

static gw_status dispatch_tensors(gw_comm *comm, const gw_call *call, gw_request **request) {
    gw_op_spec *specs = calloc(call->tensor_count + 1, sizeof *specs);
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    if (!specs) {
        gw_fail(&error, GW_MEMORY, "out of memory for a call with %zu tensors", call->tensor_count);
        return gw_comm_set_last_error(&error);
    }
    for (size_t i = 0; i < call->tensor_count && !status; i++) {
        specs[i] = spec_of(call);
        specs[i].in = call->tensors[i].in;
        specs[i].out = call->tensors[i].out;
        specs[i].count = call->tensors[i].count;
        status = check_buffers(comm, &specs[i]);
    }
    if (!status)
        status = comm->group ? gw_group_add(comm, specs, call->tensor_count, request)
                             : gw_batch_run(comm, specs, call->tensor_count, request);
    free(specs);
    return status;
}

gw_status gw_dispatch(gw_comm *comm, const gw_call *call, gw_request **request) {
    if (request) *request = NULL;
    gw_status status = check(comm, call);
    if (status) return status;
    if (call->tensors) return dispatch_tensors(comm, call, request);
    gw_op_spec spec = spec_of(call);
    status = join_arrays(comm, call, &spec);
    if (!status) status = check_buffers(comm, &spec);
    if (status) return status;
    if (comm->group) return gw_group_add(comm, &spec, 1, request);
    return request ? gw_comm_begin(comm, &spec, request) : gw_comm_run(comm, &spec);
}

/* Bytes of the first gw_call. */
#define CALL_LEAST (offsetof(gw_call, source) + sizeof(int *))

static gw_status read_call(gw_call *call, const gw_call *given) {
    gw_error error = {.rank = -1};
    if (!given) return gw_invalid("the call is NULL");
    gw_sized_read(call, sizeof *call, given, given->size, CALL_LEAST, "gw_call", &error);
    return error.status ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_run(gw_comm *comm, const gw_call *given) {
    gw_call call = GW_CALL_DEFAULT;
    gw_status status = read_call(&call, given);
    return status ? status : gw_dispatch(comm, &call, NULL);
}

gw_status gw_start(gw_comm *comm, const gw_call *given, gw_request **request) {
    gw_call call = GW_CALL_DEFAULT;
    if (!request) return gw_invalid("gw_start: the request is NULL");
    *request = NULL;
    gw_status status = read_call(&call, given);
    return status ? status : gw_dispatch(comm, &call, request);
}
