/* product_scenes.h - tests beyond single cases: many operations in flight, groups, barriers, communicators beside each
 * other, and the bits of sums that round. Every rank of a job calls each scene. */
#ifndef GW_TEST_PRODUCT_SCENES_H
#define GW_TEST_PRODUCT_SCENES_H

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "product_case.h"
#include "runtime/comm.h"

/* Memory of all ranks of a job. */
typedef struct product_common {
    _Atomic int barriers; /* ranks that have entered one so far, summed up */
    product_slot slots[RANKS_MAX];
} product_common;

static product_common *common;

/* No rank leaves a barrier before all have entered it. */
static void scene_barrier(gw_comm *comm) {
    int world = gw_size(comm), base = 0;
    for (int round = 1; round <= 6; round++) {
        gw_request *request = NULL;
        atomic_fetch_add(&common->barriers, 1);
        if (round % 3 == 0) {
            fine(comm, "gw_group_start", gw_group_start(comm));
            fine(comm, "gw_barrier", gw_barrier(comm));
            if (fine(comm, "gw_group_end", gw_group_end(comm))) return;
        } else if (round % 3 == 1) {
            if (fine(comm, "gw_barrier", gw_barrier(comm))) return;
        } else {
            if (fine(comm, "gw_barrier_start", gw_barrier_start(comm, &request))) return;
            if (fine(comm, "gw_wait", gw_wait(request))) return;
        }
        base += world;
        if (atomic_load(&common->barriers) < base) wrong("a rank left barrier %d before all had come", round);
    }
}

/* Random values: near the true result, and their bits go to the parent, which compares ranks and runs. */
static double random_value(gw_redop op, int rank, size_t at) {
    uint64_t h = (at * 64 + (size_t)rank + 1) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 31) * UINT64_C(0xBF58476D1CE4E5B9);
    double unit = (double)(h >> 11) / 9007199254740992.0; /* 2^53 */
    return op == GW_PROD ? 0.75 + unit / 2 : 20 * unit - 10;
}

static double load_float(gw_dtype dtype, const void *from, size_t index) {
    switch (dtype) {
    case GW_F32: return ((const float *)from)[index];
    case GW_F64: return ((const double *)from)[index];
    case GW_F16: return gw_f16_to_f32(((const uint16_t *)from)[index]);
    case GW_F8E4M3: return gw_f8e4m3_to_f32(((const uint8_t *)from)[index]);
    case GW_F8E5M2: return gw_f8e5m2_to_f32(((const uint8_t *)from)[index]);
    default: return gw_bf16_to_f32(((const uint16_t *)from)[index]);
    }
}

/* The true result of the stored values, and the tolerance. */
static double random_due(gw_dtype dtype, gw_redop op, int world, size_t at, double *tolerance) {
    static const double epsilon[GW_DTYPES] = {[GW_F32] = 0x1p-23, [GW_F64] = 0x1p-52,   [GW_F16] = 0x1p-10,
                                              [GW_BF16] = 0x1p-7, [GW_F8E4M3] = 0x1p-3, [GW_F8E5M2] = 0x1p-2};
    static const double subnormal[GW_DTYPES] = {[GW_F16] = 0x1p-25, [GW_F8E4M3] = 0x1p-10, [GW_F8E5M2] = 0x1p-17};
    double due = op == GW_PROD ? 1 : 0, size = 0, stored;
    for (int r = 0; r < world; r++) {
        value_store_float(dtype, &stored, 0, random_value(op, r, at));
        double value = load_float(dtype, &stored, 0);
        due = op == GW_PROD ? due * value : due + value;
        size += fabs(value);
    }
    double rounding = dtype == GW_F64 ? 0x1p-52 : 0x1p-23; /* of the accumulator, once for each rank */
    *tolerance = rounding * world * (op == GW_PROD ? fabs(due) : size);
    if (op == GW_AVG) due /= world, *tolerance /= world;
    *tolerance += (epsilon[dtype] * fabs(due) / 2 + subnormal[dtype]) * 1.0001; /* once to the type itself */
    return due;
}

static void random_case(gw_comm *comm, gw_dtype dtype, gw_redop op, size_t count) {
    size_t width = gw_dtype_bytes(dtype);
    uint64_t hash = UINT64_C(14695981039346656037);
    uint8_t *data = gw_alloc(comm, count * width);
    if (!data) {
        wrong("no memory for %zu elements", count);
        return;
    }
    for (size_t i = 0; i < count; i++) value_store_float(dtype, data, i, random_value(op, gw_rank(comm), i));
    if (fine(comm, "gw_allreduce", gw_allreduce(comm, data, data, count, dtype, op)) == GW_OK) {
        for (size_t i = 0; i < count * width; i++) hash = (hash ^ data[i]) * UINT64_C(1099511628211);
        for (size_t i = 0; i < count; i++) {
            double tolerance, due = random_due(dtype, op, gw_size(comm), i, &tolerance),
                              got = load_float(dtype, data, i);
            if (!(fabs(got - due) <= tolerance)) {
                wrong("%s of random %s: element %zu is %.17g, not %.17g", gw_redop_name(op), gw_dtype_name(dtype), i,
                      got, due);
                break;
            }
        }
        slot->hashes[slot->hash_count++] = hash;
    }
    gw_free(comm, data);
}

static void scene_random(gw_comm *comm) {
    static const gw_redop ops[] = {GW_SUM, GW_AVG, GW_PROD};
    for (int dtype = 0; dtype < GW_DTYPES; dtype++)
        for (int o = 0; o < 3 && gw_dtype_is_float((gw_dtype)dtype); o++)
            for (int large = 0; large < 2; large++) random_case(comm, (gw_dtype)dtype, ops[o], large ? 4099 : 37);
}

static gw_redop grouped_op(int tensor) {
    gw_redop op = (gw_redop)(tensor / 7 % GW_REDOPS);
    return gw_redop_refuses((gw_dtype)(tensor % GW_DTYPES), op) ? GW_SUM : op;
}

/* Sixty tensors of all types and operations in one group, among them some too large to be fused. */
static void scene_many_grouped(gw_comm *comm) {
    enum { TENSORS = 60 };
    static uint8_t *data[TENSORS];
    size_t counts[TENSORS];
    value_table table;
    fine(comm, "gw_group_start", gw_group_start(comm));
    for (int t = 0; t < TENSORS; t++) {
        gw_dtype dtype = (gw_dtype)(t % GW_DTYPES);
        gw_redop op = grouped_op(t);
        counts[t] = t % 20 == 19 ? 40000 : (size_t)(t * t % 97);
        data[t] = malloc(counts[t] * 8 + 8);
        value_input(&table, dtype, op, gw_rank(comm), (unsigned)t, counts[t]);
        value_fill(data[t], counts[t], &table);
        fine(comm, "gw_allreduce in a group", gw_allreduce(comm, data[t], data[t], counts[t], dtype, op));
    }
    gw_status status = fine(comm, "gw_group_end", gw_group_end(comm));
    for (int t = 0; t < TENSORS; t++) {
        gw_dtype dtype = (gw_dtype)(t % GW_DTYPES);
        value_reduced(&table, dtype, grouped_op(t), gw_size(comm), (unsigned)t, counts[t]);
        if (!status) expect("a tensor of a group", data[t], counts[t], &table, 0);
        free(data[t]);
    }
}

/* Inputs times a half, results times 4. There is no public call with a scale yet, so this one is made as such a call
 * will be. Factors are powers of two: the result is exact, wherever they are applied. */
static void scaled_case(gw_comm *comm, gw_dtype dtype, gw_redop op, bool shared, size_t count) {
    size_t width = gw_dtype_bytes(dtype);
    uint8_t *memory = shared ? gw_alloc(comm, count * width) : malloc(count * width);
    value_table table;
    if (!memory) return wrong("no memory for %zu elements", count);
    value_input(&table, dtype, op, gw_rank(comm), 7, count);
    value_fill(memory, count, &table);
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .in = memory, .out = memory, .count = count, .dtype = dtype,
                       .redop = op, .root = -1, .scale = gw_scale_of(0.5, 4)};
    gw_status status = fine(comm, "a scaled all-reduce", gw_comm_run(comm, &spec));
    for (size_t i = 0; i < table.length; i++)
        value_store_float(dtype, table.bytes, i, 2 * value_reduced_float(dtype, op, gw_size(comm), i, 7));
    if (!status) expect("a scaled result", memory, count, &table, 0);
    if (shared) gw_free(comm, memory);
    else free(memory);
}

static void scene_scaled(gw_comm *comm) {
    static const size_t counts[] = {37, 4099, 70001};
    for (int dtype = 0; dtype < GW_DTYPES; dtype++)
        for (int op = GW_SUM; op <= GW_AVG && gw_dtype_is_float((gw_dtype)dtype); op++)
            for (int i = 0; i < 3; i++) {
                snprintf(slot->doing, sizeof slot->doing, "scaled %s of %zu %s", gw_redop_name((gw_redop)op), counts[i],
                         gw_dtype_name((gw_dtype)dtype));
                scaled_case(comm, (gw_dtype)dtype, (gw_redop)op, (dtype + op + i) % 2, counts[i]);
            }
}

/* Twenty-four operations in flight, waited for from the last to the first. */
static void scene_many_started(gw_comm *comm) {
    enum { TENSORS = 24 };
    static uint8_t *data[TENSORS];
    gw_request *requests[TENSORS];
    value_table table;
    for (int t = 0; t < TENSORS; t++) {
        size_t count = (size_t)(t * 977 % 5000);
        data[t] = malloc(count * 4 + 4);
        value_input(&table, GW_F32, GW_SUM, gw_rank(comm), (unsigned)t, count);
        value_fill(data[t], count, &table);
        fine(comm, "gw_allreduce_start",
             gw_allreduce_start(comm, data[t], data[t], count, GW_F32, GW_SUM, &requests[t]));
    }
    for (int t = TENSORS - 1; t >= 0; t--) {
        size_t count = (size_t)(t * 977 % 5000);
        gw_status status = fine(comm, "gw_wait", finish_request(requests[t], t % 3 == 0));
        value_reduced(&table, GW_F32, GW_SUM, gw_size(comm), (unsigned)t, count);
        if (!status) expect("one of many", data[t], count, &table, 0);
        free(data[t]);
    }
}

/* Every rank sends to every other, several messages each, all at once. */
static void scene_everyone_to_everyone(gw_comm *comm) {
    static const size_t lengths[] = {1, 0, 5000, 70001};
    enum { LENGTHS = 4 };
    gw_request *requests[2 * RANKS_MAX * LENGTHS];
    uint8_t *data[2 * RANKS_MAX * LENGTHS];
    int world = gw_size(comm), rank = gw_rank(comm), count = 0;
    value_table table;
    for (int i = 0; i < LENGTHS; i++)
        for (int r = 0; r < world; r++) {
            if (r == rank) continue;
            data[count] = malloc(lengths[i] + 1);
            value_input(&table, GW_U8, GW_SUM, rank, (unsigned)(r + i), lengths[i]);
            value_fill(data[count], lengths[i], &table);
            fine(comm, "gw_send_start", gw_send_start(comm, data[count], lengths[i], GW_U8, r, &requests[count]));
            count++;
            data[count] = malloc(lengths[i] + 1);
            fine(comm, "gw_recv_start", gw_recv_start(comm, data[count], lengths[i], GW_U8, r, &requests[count]));
            count++;
        }
    gw_status status = GW_OK;
    for (int i = 0; i < count && slot->failures == 0; i++) status = fine(comm, "gw_wait", gw_wait(requests[i]));
    for (int i = 0, n = 0; i < LENGTHS; i++)
        for (int r = 0; r < world; r++) {
            if (r == rank) continue;
            value_input(&table, GW_U8, GW_SUM, r, (unsigned)(rank + i), lengths[i]);
            if (!status) expect("a message", data[n + 1], lengths[i], &table, 0);
            free(data[n]);
            free(data[n + 1]);
            n += 2;
        }
}

static void check_sum(gw_comm *comm, int32_t mine, int32_t due, const char *what) {
    int32_t sum = -1;
    if (fine(comm, what, gw_allreduce(comm, &mine, &sum, 1, GW_I32, GW_SUM)) == GW_OK && sum != due)
        wrong("%s: the sum is %d, not %d", what, sum, due);
}

/* Halves in reverse order and a part of one half, used in turns and at the same time as the whole. */
static void scene_split(gw_comm *comm) {
    int world = gw_size(comm), rank = gw_rank(comm), colour = rank % 2, size = (world + 1 - colour) / 2;
    gw_comm *half = NULL, *some = NULL;
    if (fine(comm, "gw_comm_split", gw_comm_split(comm, colour, -rank, &half))) return;
    if (gw_size(half) != size) wrong("the half has %d ranks, not %d", gw_size(half), size);
    if (gw_rank(half) != size - 1 - rank / 2) wrong("rank %d became %d of its half", rank, gw_rank(half));
    if (fine(half, "gw_comm_split of a half", gw_comm_split(half, gw_rank(half) == 0 ? -1 : 7, 0, &some))) return;
    if ((some == NULL) != (gw_rank(half) == 0)) wrong("only a negative colour gets no communicator");
    if (some && gw_size(some) != size - 1) wrong("all but one of %d are %d", size, gw_size(some));
    int32_t mine = rank, whole = -1, part = -1;
    gw_request *requests[2] = {NULL, NULL};
    fine(comm, "gw_allreduce_start", gw_allreduce_start(comm, &mine, &whole, 1, GW_I32, GW_SUM, &requests[0]));
    fine(half, "gw_allreduce_start", gw_allreduce_start(half, &mine, &part, 1, GW_I32, GW_MAX, &requests[1]));
    if (some) check_sum(some, 1, size - 1, "gw_allreduce in a part of a half");
    fine(half, "gw_wait", gw_wait(requests[1]));
    fine(comm, "gw_wait", gw_wait(requests[0]));
    if (whole != world * (world - 1) / 2) wrong("the whole's sum is %d", whole);
    if (part != (size - 1) * 2 + colour) wrong("the half's maximum is %d", part);
    for (int i = 0; i < 20; i++) {
        check_sum(half, i, i * size, "gw_allreduce in a half");
        check_sum(comm, i, i * world, "gw_allreduce beside the halves");
    }
    fine(some, "gw_finalize of a part", gw_finalize(some));
    fine(half, "gw_finalize of a half", gw_finalize(half));
    check_sum(comm, 1, world, "gw_allreduce when the halves are gone");
}

typedef struct product_scene {
    const char *name;
    void (*run)(gw_comm *);
} product_scene;

static const product_scene scenes[] = {
    {"barriers", scene_barrier},
    {"random values", scene_random},
    {"scaled sums", scene_scaled},
    {"sixty tensors in a group", scene_many_grouped},
    {"twenty-four reductions in flight", scene_many_started},
    {"everyone sends to everyone", scene_everyone_to_everyone},
    {"communicators split off", scene_split},
};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

#endif
