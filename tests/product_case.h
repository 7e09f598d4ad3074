/* product_case.h - one case of the product: one collective on one communicator, with its buffers, the kind of call, and
 * the check of the result. */
#ifndef GW_TEST_PRODUCT_CASE_H
#define GW_TEST_PRODUCT_CASE_H

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "product_values.h"

#define RANKS_MAX 9
#define MIB ((size_t)1 << 20)
#define GUARD_BYTES 64 /* behind every buffer */

typedef enum product_collective {
    P_ALLREDUCE,
    P_REDUCE,
    P_REDUCE_SCATTER,
    P_REDUCE_SCATTERV, /* with an operation */
    P_BROADCAST,
    P_ALLGATHER,
    P_ALLGATHERV,
    P_GATHER,
    P_GATHERV,
    P_SCATTER,
    P_SCATTERV,
    P_ALLTOALL,
    P_ALLTOALLV,
    P_SENDRECV,
    P_COLLECTIVES
} product_collective;

static const char *const collective_names[] = {
    "allreduce", "reduce",  "reduce_scatter", "reduce_scatterv", "broadcast", "allgather", "allgatherv",
    "gather",    "gatherv", "scatter",        "scatterv",        "alltoall",  "alltoallv", "sendrecv"};

enum { SIZE_0, SIZE_1, SIZE_3, SIZE_1023, SIZE_1M, SIZE_64M, SIZE_2G };
static const char *const size_names[] = {"0", "1", "3", "1023", "1MiB", "64MiB+4", "2GiB+1MiB+3"};
enum { MEMORY_SHARED, MEMORY_PRIVATE, MEMORY_MIXED, MEMORIES };
static const char *const memory_names[] = {"gw_alloc", "malloc", "mixed"};
enum { APART, IN_PLACE, PLACEMENTS };
enum { BLOCKING, STARTED, GROUPED, DESCRIBED, MODES };
static const char *const mode_names[] = {"blocking", "started", "grouped", "described"};

typedef struct product_case {
    int collective, dtype, op, size, memory, placement, mode;
    unsigned salt; /* makes inputs, roots and alignment differ from those of the case before */
} product_case;

/* A rank's report to its parent, in shared memory. */
typedef struct product_slot {
    char doing[240];
    char wrong[480]; /* the first thing that was */
    int failures;
    long cases;
    double slowest_s;
    char slowest[240];
    uint64_t hashes[36]; /* of results of random inputs */
    int hash_count;
} product_slot;

static product_slot *slot; /* of this process */

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...) {
    if (slot->failures++) return;
    va_list args;
    int at = snprintf(slot->wrong, sizeof slot->wrong, "%s: ", slot->doing);
    va_start(args, format);
    vsnprintf(slot->wrong + at, sizeof slot->wrong - (size_t)at, format, args);
    va_end(args);
}

static gw_status fine(gw_comm *comm, const char *what, gw_status status) {
    if (status) wrong("%s returned %d: %s", what, status, gw_last_error(comm));
    return status;
}

/* The lengths and places of a case on one rank, in elements. */
typedef struct product_layout {
    size_t in, out;           /* of this rank's buffers */
    size_t count;             /* as given to the call */
    size_t counts[RANKS_MAX]; /* of uneven calls, and of even ones with parts */
    size_t offset;            /* of the own part among all */
    size_t all;               /* parts together */
    int root;
    bool has_in, has_out;
} product_layout;

static size_t size_elements(int size, int dtype) {
    static const size_t small[] = {0, 1, 3, 1023};
    size_t width = gw_dtype_bytes((gw_dtype)dtype);
    if (size <= SIZE_1023) return small[size];
    size_t bytes = size == SIZE_1M ? MIB : size == SIZE_64M ? 64 * MIB + 4 : 2049 * MIB + 3;
    return (bytes + width - 1) / width;
}

static bool in_parts(int collective) {
    return collective != P_ALLREDUCE && collective != P_REDUCE && collective != P_BROADCAST && collective != P_SENDRECV;
}

static bool is_gather(int collective) { return collective == P_GATHER || collective == P_GATHERV; }
static bool is_scatter(int collective) { return collective == P_SCATTER || collective == P_SCATTERV; }
static bool is_alltoall(int collective) { return collective == P_ALLTOALL || collective == P_ALLTOALLV; }

static bool is_uneven(int collective) {
    return collective == P_REDUCE_SCATTERV || collective == P_ALLGATHERV || collective == P_GATHERV ||
           collective == P_SCATTERV;
}

static size_t uneven_count(size_t part, int rank) {
    return rank % 3 == 1 ? 0 : rank % 3 == 2 ? 2 * part : part + (part ? (size_t)rank : 0);
}

/* What goes from one rank to another in an alltoallv; as much goes back. */
static size_t pair_count(size_t part, int from, int to, int world) { return uneven_count(part, (from + to) % world); }

static size_t pair_offset(size_t part, int from, int to, int world) {
    size_t at = 0;
    for (int r = 0; r < to; r++) at += pair_count(part, from, r, world);
    return at;
}

static product_layout lay_out_case(const product_case *k, int rank, int world) {
    product_layout l = {.root = (int)(k->salt % (unsigned)world), .has_in = true, .has_out = true};
    size_t elements = size_elements(k->size, k->dtype);
    l.count = in_parts(k->collective) && k->size > SIZE_1023 ? elements / (size_t)world + 1 : elements;
    for (int r = 0; r < world; r++) {
        l.counts[r] = is_uneven(k->collective)       ? uneven_count(l.count, r)
                      : k->collective == P_ALLTOALLV ? pair_count(l.count, rank, r, world)
                                                     : l.count;
        if (r < rank) l.offset += l.counts[r];
        l.all += l.counts[r];
    }
    bool reduces_parts = k->collective == P_REDUCE_SCATTER || k->collective == P_REDUCE_SCATTERV;
    bool many_in = reduces_parts || is_scatter(k->collective) || is_alltoall(k->collective);
    bool many_out = k->collective == P_ALLGATHER || k->collective == P_ALLGATHERV || is_gather(k->collective) ||
                    is_alltoall(k->collective);
    l.in = many_in ? l.all : in_parts(k->collective) ? l.counts[rank] : l.count;
    l.out = many_out ? l.all : in_parts(k->collective) ? l.counts[rank] : l.count;
    if (k->collective == P_BROADCAST || is_scatter(k->collective)) l.has_in = rank == l.root;
    if (k->collective == P_REDUCE || is_gather(k->collective)) l.has_out = rank == l.root;
    return l;
}

/* Buffers. */

typedef struct product_buffer {
    bool shared;
    char *base, *at; /* allocated; where the elements begin */
    size_t bytes;
} product_buffer;

static bool buffer_open(product_buffer *b, gw_comm *comm, bool shared, size_t bytes, size_t shift) {
    *b = (product_buffer){.shared = shared, .bytes = bytes};
    b->base = shared ? gw_alloc(comm, bytes + shift + GUARD_BYTES) : malloc(bytes + shift + GUARD_BYTES);
    if (!b->base) {
        wrong("no memory for %zu bytes: %s", bytes, gw_last_error(NULL));
        return false;
    }
    b->at = b->base + shift;
    memset(b->at + bytes, 0xA5, GUARD_BYTES);
    return true;
}

static void buffer_close(product_buffer *b, gw_comm *comm) {
    for (size_t i = 0; b->base && i < GUARD_BYTES; i++)
        if ((uint8_t)b->at[b->bytes + i] != 0xA5) {
            wrong("byte %zu behind a buffer of %zu was written", i, b->bytes);
            break;
        }
    if (b->shared) gw_free(comm, b->base);
    else free(b->base);
}

typedef struct product_buffers {
    product_buffer first, second; /* second: only apart */
    char *in, *out;               /* NULL where the rank has none */
    bool apart;
} product_buffers;

static bool buffers_open(product_buffers *b, gw_comm *comm, const product_case *k, const product_layout *l) {
    size_t width = gw_dtype_bytes((gw_dtype)k->dtype), shift = k->salt % 3 * width;
    bool shared = k->memory == MEMORY_SHARED || (k->memory == MEMORY_MIXED && gw_rank(comm) % 2 == 0);
    bool never_in_place = k->collective == P_SENDRECV || k->collective == P_ALLTOALLV;
    *b = (product_buffers){.apart = k->placement == APART || never_in_place || !l->has_in || !l->has_out};
    if (b->apart) {
        if (l->has_in && !buffer_open(&b->first, comm, shared, l->in * width, shift)) return false;
        if (l->has_out &&
            !buffer_open(&b->second, comm, k->memory == MEMORY_MIXED ? !shared : shared, l->out * width, shift))
            return false;
        b->in = b->first.at;
        b->out = b->second.at;
        if (l->has_out) memset(b->out, 0x5A, l->out * width);
        return true;
    }
    size_t larger = l->in > l->out ? l->in : l->out;
    bool whole = k->collective == P_ALLREDUCE || k->collective == P_REDUCE || k->collective == P_BROADCAST ||
                 k->collective == P_ALLTOALL;
    if (!buffer_open(&b->first, comm, shared, larger * width, shift)) return false;
    bool small_in = k->collective == P_ALLGATHER || k->collective == P_ALLGATHERV || is_gather(k->collective);
    b->in = b->first.at + (small_in ? l->offset * width : 0);
    b->out = b->first.at + (whole || small_in ? 0 : l->offset * width);
    return true;
}

/* Calling. */

typedef struct product_call {
    gw_comm *comm;
    const void *in;
    void *out;
    size_t count;
    const size_t *counts;
    gw_dtype dtype;
    gw_redop op;
    int root;
} product_call;

static gw_status send_and_receive(const product_call *c) {
    int world = gw_size(c->comm), right = (gw_rank(c->comm) + 1) % world, left = (gw_rank(c->comm) + world - 1) % world;
    gw_status status = gw_rank(c->comm) == 0 ? gw_send(c->comm, c->in, c->count, c->dtype, right) : GW_OK;
    if (!status) status = gw_recv(c->comm, c->out, c->count, c->dtype, left);
    if (!status && gw_rank(c->comm) != 0) status = gw_send(c->comm, c->in, c->count, c->dtype, right);
    return status;
}

static gw_status call_blocking(int collective, const product_call *c) {
    switch (collective) {
    case P_ALLREDUCE: return gw_allreduce(c->comm, c->in, c->out, c->count, c->dtype, c->op);
    case P_REDUCE: return gw_reduce(c->comm, c->in, c->out, c->count, c->dtype, c->op, c->root);
    case P_REDUCE_SCATTER: return gw_reduce_scatter(c->comm, c->in, c->out, c->count, c->dtype, c->op);
    case P_REDUCE_SCATTERV: return gw_reduce_scatterv(c->comm, c->in, c->out, c->counts, c->dtype, c->op);
    case P_BROADCAST: return gw_broadcast(c->comm, c->in, c->out, c->count, c->dtype, c->root);
    case P_ALLGATHER: return gw_allgather(c->comm, c->in, c->out, c->count, c->dtype);
    case P_ALLGATHERV: return gw_allgatherv(c->comm, c->in, c->out, c->counts, c->dtype);
    case P_GATHER: return gw_gather(c->comm, c->in, c->out, c->count, c->dtype, c->root);
    case P_GATHERV: return gw_gatherv(c->comm, c->in, c->out, c->counts, c->dtype, c->root);
    case P_SCATTER: return gw_scatter(c->comm, c->in, c->out, c->count, c->dtype, c->root);
    case P_SCATTERV: return gw_scatterv(c->comm, c->in, c->out, c->counts, c->dtype, c->root);
    case P_ALLTOALL: return gw_alltoall(c->comm, c->in, c->out, c->count, c->dtype);
    case P_ALLTOALLV: return gw_alltoallv(c->comm, c->in, c->counts, NULL, c->out, c->counts, NULL, c->dtype);
    default: return send_and_receive(c);
    }
}

static gw_status call_start(int collective, const product_call *c, gw_request **r) {
    int world = gw_size(c->comm), rank = gw_rank(c->comm);
    switch (collective) {
    case P_ALLREDUCE: return gw_allreduce_start(c->comm, c->in, c->out, c->count, c->dtype, c->op, r);
    case P_REDUCE: return gw_reduce_start(c->comm, c->in, c->out, c->count, c->dtype, c->op, c->root, r);
    case P_REDUCE_SCATTER: return gw_reduce_scatter_start(c->comm, c->in, c->out, c->count, c->dtype, c->op, r);
    case P_REDUCE_SCATTERV: return gw_reduce_scatterv_start(c->comm, c->in, c->out, c->counts, c->dtype, c->op, r);
    case P_BROADCAST: return gw_broadcast_start(c->comm, c->in, c->out, c->count, c->dtype, c->root, r);
    case P_ALLGATHER: return gw_allgather_start(c->comm, c->in, c->out, c->count, c->dtype, r);
    case P_ALLGATHERV: return gw_allgatherv_start(c->comm, c->in, c->out, c->counts, c->dtype, r);
    case P_GATHER: return gw_gather_start(c->comm, c->in, c->out, c->count, c->dtype, c->root, r);
    case P_GATHERV: return gw_gatherv_start(c->comm, c->in, c->out, c->counts, c->dtype, c->root, r);
    case P_SCATTER: return gw_scatter_start(c->comm, c->in, c->out, c->count, c->dtype, c->root, r);
    case P_SCATTERV: return gw_scatterv_start(c->comm, c->in, c->out, c->counts, c->dtype, c->root, r);
    case P_ALLTOALL: return gw_alltoall_start(c->comm, c->in, c->out, c->count, c->dtype, r);
    case P_ALLTOALLV: return gw_alltoallv_start(c->comm, c->in, c->counts, NULL, c->out, c->counts, NULL, c->dtype, r);
    default: break;
    }
    gw_status status = gw_send_start(c->comm, c->in, c->count, c->dtype, (rank + 1) % world, &r[0]);
    return status ? status : gw_recv_start(c->comm, c->out, c->count, c->dtype, (rank + world - 1) % world, &r[1]);
}

/* By gw_run or gw_start with a gw_call; coalesced, with an empty tensor beside it, where the collective allows that. */
static gw_status call_described(int collective, const product_call *c, bool start) {
    static const gw_collective kinds[] = {[P_ALLREDUCE] = GW_COLL_ALLREDUCE,
                                          [P_REDUCE] = GW_COLL_REDUCE,
                                          [P_REDUCE_SCATTER] = GW_COLL_REDUCE_SCATTER,
                                          [P_REDUCE_SCATTERV] = GW_COLL_REDUCE_SCATTER,
                                          [P_BROADCAST] = GW_COLL_BROADCAST,
                                          [P_ALLGATHER] = GW_COLL_ALLGATHER,
                                          [P_ALLGATHERV] = GW_COLL_ALLGATHER,
                                          [P_GATHER] = GW_COLL_GATHER,
                                          [P_GATHERV] = GW_COLL_GATHER,
                                          [P_SCATTER] = GW_COLL_SCATTER,
                                          [P_SCATTERV] = GW_COLL_SCATTER,
                                          [P_ALLTOALL] = GW_COLL_ALLTOALL,
                                          [P_ALLTOALLV] = GW_COLL_ALLTOALLV};
    gw_call_tensor tensors[] = {{NULL, NULL, 0}, {c->in, c->out, c->count}};
    gw_request *request = NULL;
    gw_call call = GW_CALL_DEFAULT;
    call.collective = kinds[collective];
    call.dtype = c->dtype, call.op = c->op, call.root = c->root, call.in = c->in, call.out = c->out;
    call.count = c->count, call.deadline_s = 100;
    if (is_uneven(collective)) call.counts = c->counts;
    else if (collective == P_ALLTOALLV) call.in_counts = call.out_counts = c->counts;
    else call.tensors = tensors, call.tensor_count = 2;
    if (!start) return gw_run(c->comm, &call);
    gw_status status = gw_start(c->comm, &call, &request);
    return status ? status : gw_wait(request);
}

/* By gw_wait, or by asking. */
static gw_status finish_request(gw_request *request, bool ask) {
    bool done = false;
    gw_status status = GW_OK;
    if (!ask) return gw_wait(request);
    while (!done) {
        status = gw_test(request, &done);
        if (!done) sched_yield();
    }
    return status;
}

static void check_companion(const product_call *c, const int32_t *sum) {
    int world = gw_size(c->comm);
    for (int i = 0; i < 3; i++)
        if (sum[i] != world * (world + 1) / 2 * (i + 1)) wrong("the small reduction at its side gave %d", sum[i]);
}

/* The case with a small reduction in flight at its side: it must not be disturbed, nor disturb. */
static gw_status call_accompanied(const product_case *k, const product_call *c) {
    gw_comm *comm = c->comm;
    int32_t mine = gw_rank(comm) + 1, values[3] = {mine, 2 * mine, 3 * mine}, sum[3] = {0};
    gw_request *requests[2] = {NULL, NULL}, *small = NULL;
    gw_status status;
    if (k->mode == GROUPED) {
        status = gw_group_start(comm);
        if (!status) status = gw_allreduce(comm, values, sum, 3, GW_I32, GW_SUM);
        if (!status && k->collective == P_SENDRECV) {
            int world = gw_size(comm);
            status = gw_send(comm, c->in, c->count, c->dtype, (gw_rank(comm) + 1) % world);
            if (!status) status = gw_recv(comm, c->out, c->count, c->dtype, (gw_rank(comm) + world - 1) % world);
        } else if (!status) {
            status = call_blocking(k->collective, c);
        }
        gw_status ended = gw_group_end(comm);
        if (!status) status = ended;
    } else {
        status = gw_allreduce_start(comm, values, sum, 3, GW_I32, GW_SUM, &small);
        if (!status) status = call_start(k->collective, c, requests);
        for (int i = 0; i < 2; i++) {
            gw_status ended = finish_request(requests[i], k->salt % 2 == 1);
            if (!status) status = ended;
        }
        gw_status ended = gw_wait(small);
        if (!status) status = ended;
    }
    if (!status) check_companion(c, sum);
    return status;
}

/* Checking. */

static void expect(const char *what, const void *buffer, size_t count, const value_table *table, size_t start) {
    size_t at = value_compare(buffer, count, table, start);
    if (at == count) return;
    size_t width = gw_dtype_bytes(table->dtype);
    char got[20] = "", due[20] = "";
    for (size_t i = 0; i < width; i++) {
        sprintf(got + 2 * i, "%02x", ((const uint8_t *)buffer)[at * width + width - 1 - i]);
        sprintf(due + 2 * i, "%02x", table->bytes[(start + at) % PERIOD * width + width - 1 - i]);
    }
    wrong("%s: element %zu of %zu is %s, not %s", what, at, count, got, due);
}

static void check_output(const product_case *k, const product_layout *l, const char *out, int rank, int world) {
    gw_dtype dtype = (gw_dtype)k->dtype;
    gw_redop op = k->collective <= P_REDUCE_SCATTERV ? (gw_redop)k->op : GW_SUM;
    size_t width = gw_dtype_bytes(dtype), needed = l->all > l->count ? l->all : l->count, at = 0;
    value_table table;
    if (k->collective <= P_REDUCE_SCATTERV) {
        value_reduced(&table, dtype, op, world, k->salt, needed);
        expect("the result", out, l->out, &table, in_parts(k->collective) ? l->offset : 0);
    } else if (k->collective == P_BROADCAST || is_scatter(k->collective) || k->collective == P_SENDRECV) {
        int from = k->collective == P_SENDRECV ? (rank + world - 1) % world : l->root;
        value_input(&table, dtype, op, from, k->salt, needed);
        expect("what came", out, l->out, &table, is_scatter(k->collective) ? l->offset : 0);
    } else {
        for (int r = 0; r < world; at += l->counts[r++] * width) {
            size_t start = k->collective == P_ALLTOALL    ? l->offset
                           : k->collective == P_ALLTOALLV ? pair_offset(l->count, r, rank, world)
                                                          : 0;
            value_input(&table, dtype, op, r, k->salt, needed + PERIOD);
            expect("a part", out + at, l->counts[r], &table, start);
        }
    }
}

static const char *case_text(const product_case *k, char *text, size_t size) {
    snprintf(text, size, "%s of %s x %s, %s, %s, %s, %s, salt %u", collective_names[k->collective], size_names[k->size],
             gw_dtype_name((gw_dtype)k->dtype),
             k->collective <= P_REDUCE_SCATTERV ? gw_redop_name((gw_redop)k->op) : "-", memory_names[k->memory],
             k->placement == APART ? "apart" : "in place", mode_names[k->mode], k->salt);
    return text;
}

static gw_status run_case(gw_comm *comm, const product_case *k) {
    int rank = gw_rank(comm), world = gw_size(comm);
    if (k->collective == P_SENDRECV && world == 1) return GW_OK; /* there is no peer */
    case_text(k, slot->doing, sizeof slot->doing);
    product_layout l = lay_out_case(k, rank, world);
    product_buffers b;
    value_table mine;
    if (!buffers_open(&b, comm, k, &l)) return GW_MEMORY;
    gw_redop op = k->collective <= P_REDUCE_SCATTERV ? (gw_redop)k->op : GW_SUM;
    value_input(&mine, (gw_dtype)k->dtype, op, rank, k->salt, (l.all > l.count ? l.all : l.count) + PERIOD);
    if (l.has_in) value_fill(b.in, l.in, &mine);
    product_call call = {.comm = comm, .in = b.in, .out = b.out, .count = l.count, .counts = l.counts,
                         .dtype = (gw_dtype)k->dtype, .op = (gw_redop)k->op, .root = l.root};
    gw_status status = k->mode == BLOCKING || (k->mode == DESCRIBED && k->collective == P_SENDRECV)
                           ? call_blocking(k->collective, &call)
                       : k->mode == DESCRIBED ? call_described(k->collective, &call, k->salt % 2)
                                              : call_accompanied(k, &call);
    fine(comm, "the call", status);
    if (!status && l.has_out) check_output(k, &l, b.out, rank, world);
    if (!status && l.has_in && b.apart) expect("the input afterwards", b.in, l.in, &mine, 0);
    buffer_close(&b.first, comm);
    buffer_close(&b.second, comm);
    slot->cases++;
    return status;
}

#endif
