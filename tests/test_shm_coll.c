/* test_shm_coll.c - host-local collectives against the reference: tasks, types, operations, sizes, members, kinds of
 * memory; operations back to back; sleeping members; disagreement, failure, death. */
#include "base/dtype.h"
#include "base/float8.h"
#include "base/half.h"
#include "base/rng.h"
#include "shm_coll_player.h"

#include <dirent.h>

#define POOL_BYTES ((size_t)10 << 20)

static int self_of(const player *p) { return p->env->ranks - 1 - p->env->rank; }

static void open_pools(player *p) {
    p->shared_in = gw_shm_alloc(p->env->transport, POOL_BYTES, &p->error);
    p->shared_out = gw_shm_alloc(p->env->transport, POOL_BYTES, &p->error);
    p->private_in = malloc(POOL_BYTES);
    p->private_out = malloc(POOL_BYTES);
    p->expected = malloc(POOL_BYTES);
    for (int m = 0; m < p->env->ranks; m++) p->inputs[m] = malloc(POOL_BYTES / 2);
    CHECK_STR("", p->error.text);
}

/* A case, the same on all ranks; which memory is used is the only thing that differs. */
typedef struct trial {
    gw_shm_coll_op op;
    size_t counts[RANKS_MAX];
    uint64_t seed;
    bool in_place;
    int memory; /* 0: all shared, 1: all private, 2: mixed */
} trial;

static void store_value(gw_dtype dtype, uint8_t *at, uint32_t bits, bool product) {
    float value =
        product ? 1.0f + (float)(bits % 500) / 1000 : ((float)(bits & 0x3ff) - 512) * (float)(1 << (bits >> 28)) / 4096;
    double wide = (double)value * (1 + 1e-10 * (bits >> 20));
    uint64_t whole = (uint64_t)bits * 2654435761; /* other types: any bits */
    if (dtype == GW_F16) whole = gw_f32_to_f16(value);
    if (dtype == GW_BF16) whole = gw_f32_to_bf16(value);
    if (dtype == GW_F8E4M3) whole = gw_f32_to_f8e4m3(value / 16);
    if (dtype == GW_F8E5M2) whole = gw_f32_to_f8e5m2(value);
    const void *from = dtype == GW_F32 ? (const void *)&value : dtype == GW_F64 ? (const void *)&wide : &whole;
    memcpy(at, from, gw_dtype_bytes(dtype));
}

static void make_input(const trial *t, int member, uint8_t *at) {
    uint64_t state = t->seed * 31 + (uint64_t)member * 977 + 1;
    size_t element = gw_dtype_bytes(t->op.reduction.dtype);
    for (size_t i = 0; i < t->op.count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        store_value(t->op.reduction.dtype, at + i * element, (uint32_t)(state >> 32), t->op.reduction.op == GW_PROD);
    }
}

static void part_of(const trial *t, int lane, size_t *offset, size_t *length) {
    size_t lanes = (size_t)t->op.lanes, l = (size_t)lane, rest = t->op.count % lanes;
    *offset = t->op.count / lanes * l + (l < rest ? l : rest);
    *length = t->op.count / lanes + (l < rest);
    if (!t->op.counts) return;
    *offset = 0;
    *length = t->counts[lane];
    for (int before = 0; before < lane; before++) *offset += t->counts[before];
}

/* What out must hold, where it held `before`. */
static void expect(player *p, const trial *t, const uint8_t *before, size_t out_bytes) {
    int members = p->env->ranks;
    size_t element = gw_dtype_bytes(t->op.reduction.dtype), offset, length;
    const void *src[RANKS_MAX];
    memcpy(p->expected, before, out_bytes);
    for (int m = 0; m < members; m++) make_input(t, m, p->inputs[m]);
    if (t->op.task == GW_SHM_TASK_ALLREDUCE)
        gw_reduce_many_reference(t->op.reduction, p->expected, (const void *const *)p->inputs, members, t->op.count,
                                 true);
    if (t->op.task == GW_SHM_TASK_BROADCAST) memcpy(p->expected, p->inputs[t->op.root], t->op.count * element);
    bool is_root = self_of(p) == t->op.root;
    if (t->op.task == GW_SHM_TASK_REDUCE && is_root)
        gw_reduce_many_reference(t->op.reduction, p->expected, (const void *const *)p->inputs, members, t->op.count,
                                 true);
    bool gathers = t->op.task == GW_SHM_TASK_ALLGATHER || (t->op.task == GW_SHM_TASK_GATHER && is_root);
    for (int lane = 0; gathers && lane < t->op.lanes; lane++) {
        part_of(t, lane, &offset, &length);
        memcpy(p->expected + offset * element, p->inputs[lane] + offset * element, length * element);
    }
    if (t->op.task == GW_SHM_TASK_SCATTER && self_of(p) < t->op.lanes) {
        part_of(t, self_of(p), &offset, &length);
        memcpy(p->expected + offset * element, p->inputs[t->op.root] + offset * element, length * element);
    }
    size_t block = t->op.count / (size_t)members * element;
    for (int m = 0; t->op.task == GW_SHM_TASK_ALLTOALL && m < members; m++)
        memcpy(p->expected + (size_t)m * block, p->inputs[m] + (size_t)self_of(p) * block, block);
    if (t->op.task != GW_SHM_TASK_REDUCE_SCATTER || self_of(p) >= t->op.lanes) return;
    part_of(t, self_of(p), &offset, &length);
    for (int m = 0; m < members; m++) src[m] = p->inputs[m] + offset * element;
    size_t wide = t->op.dst_wide ? gw_dtype_bytes(gw_accumulator(t->op.reduction.dtype, t->op.reduction.op)) : element;
    gw_reduce_many_reference(t->op.reduction, p->expected + offset * wide, src, members, length, !t->op.dst_wide);
}

static bool is_shared(const player *p, const trial *t, int which) {
    if (t->memory < 2) return t->memory == 0;
    return (t->seed * 7 + (uint64_t)p->env->rank * 3 + (uint64_t)which) % 5 < 2;
}

static void run_trial(player *p, trial *t) {
    size_t element = gw_dtype_bytes(t->op.reduction.dtype), bytes = t->op.count * element;
    size_t out_bytes = t->op.dst_wide ? bytes * 4 : bytes, shift = t->seed % 3 * element;
    uint8_t *in = (is_shared(p, t, 0) ? p->shared_in : p->private_in) + shift;
    uint8_t *out = t->in_place ? in : (is_shared(p, t, 1) ? p->shared_out : p->private_out) + t->seed % 3 * 8;
    uint8_t *before = p->expected + POOL_BYTES - out_bytes - 64;
    if (!t->in_place) memset(out, 0xee, out_bytes + 16);
    make_input(t, self_of(p), in);
    memcpy(before, out, out_bytes);
    t->op.in = in;
    t->op.out = out;
    t->op.number = p->completed + 1;
    t->op.signature[0] = t->seed | (t->seed % 2 ? GW_SHM_COLL_THREE_WORDS : 0);
    t->op.signature[2] = t->seed % 2 ? t->seed / 2 : (uint64_t)self_of(p); /* the same on all, or without a meaning */
    gw_shm_coll_start(p->coll, &t->op);
    wait_for(p, t->op.number);
    CHECK_STR("", p->error.text);
    expect(p, t, before, out_bytes);
    if (memcmp(p->expected, out, out_bytes) == 0) return;
    CHECK(!"the result differs from the reference");
    printf("    rank %d of %d: task %d type %s op %s count %zu lanes %d uneven %d wide %d in place %d memory %d\n",
           p->env->rank, p->env->ranks, t->op.task, gw_dtype_name(t->op.reduction.dtype),
           gw_redop_name(t->op.reduction.op), t->op.count, t->op.lanes, t->op.counts != NULL, t->op.dst_wide,
           t->in_place, t->memory);
}

static void draw_trial(trial *t, int members, uint64_t seed, gw_shm_task task, size_t count) {
    gw_rng rng = gw_rng_make(seed, 5);
    *t = (trial){.seed = seed, .memory = (int)(seed % 3), .in_place = gw_rng_below(&rng, 2)};
    gw_dtype dtype = (gw_dtype)gw_rng_below(&rng, GW_DTYPES);
    gw_redop op = (gw_redop)gw_rng_below(&rng, GW_REDOPS);
    if (gw_redop_refuses(dtype, op)) op = GW_SUM;
    bool scaled = !gw_scale_refuses(dtype, op) && gw_rng_below(&rng, 2);
    t->op = (gw_shm_coll_op){.task = task, .count = count, .lanes = members,
                          .root = (int)gw_rng_below(&rng, (uint64_t)members),
                          .reduction = {.dtype = dtype, .op = op, .world = members,
                                        .scale = scaled ? (gw_scale){true, 0.3, 1.7} : (gw_scale){0}}};
    if (gw_rng_below(&rng, 3) == 0) t->op.lanes = 1 + (int)gw_rng_below(&rng, (uint64_t)members);
    if (task == GW_SHM_TASK_ALLTOALL) {
        t->op.lanes = members;
        t->op.count -= t->op.count % (size_t)members;
    }
    t->op.dst_wide = task == GW_SHM_TASK_REDUCE_SCATTER && gw_rng_below(&rng, 2);
    if (t->op.dst_wide && gw_accumulator(dtype, t->op.reduction.op) != dtype) t->in_place = false;
    if (gw_rng_below(&rng, 2) || task == GW_SHM_TASK_ALLTOALL) return;
    size_t left = count;
    for (int lane = 0; lane < t->op.lanes; lane++) {
        t->counts[lane] = lane == t->op.lanes - 1 ? left : gw_rng_below(&rng, left + 1);
        left -= t->counts[lane];
    }
    t->op.counts = t->counts;
}

/* 8, 32 and 64 elements of 4 bytes, or two such parts, just fit into the lines of an entry. */
static const size_t counts_tried[] = {0, 1, 3, 8, 17, 64, 129, 1023, 4096, 16385, 50021};

static void try_everything(rank_env *env) {
    player p;
    trial t;
    uint64_t seed = 1;
    int rounds = RANKS_ARE_THREADS ? 1 : 3;
    open_coll(&p, env, 11);
    open_pools(&p);
    for (int round = 0; round < rounds; round++) {
        p.coll->far = (round + env->rank) % 2; /* some write past the cache, some do not */
        for (size_t c = 0; c < sizeof counts_tried / sizeof counts_tried[0]; c++)
            for (int task = 0; task <= GW_SHM_TASK_BARRIER; task++) {
                draw_trial(&t, env->ranks, seed++, (gw_shm_task)task, counts_tried[c]);
                run_trial(&p, &t);
            }
    }
    for (int memory = 0; memory < 3 && env->ranks <= 3 && !RANKS_ARE_THREADS; memory++) {
        draw_trial(&t, env->ranks, seed++, GW_SHM_TASK_ALLREDUCE, (4 << 20) / 4 + 1);
        t.op.reduction = (gw_reduction){.dtype = GW_F32, .op = GW_SUM, .world = env->ranks};
        t.memory = memory;
        run_trial(&p, &t);
    }
    rank_meet(env);
    close_player(&p);
}

static void tasks_equal_the_reference(void) {
    for (int ranks = 1; ranks <= 6; ranks++) run_ranks(ranks, try_everything, NULL);
}

/* Random sizes and delays, different on each rank, with as many operations in flight as allowed. */
static void play_on(rank_env *env) {
    enum { OPERATIONS = RANKS_ARE_THREADS ? 200 : 1000, COUNT_MAX = 20000 };
    player p;
    gw_rng delays = gw_rng_make(99, (uint64_t)env->rank);
    int32_t *buffers[GW_SHM_COLL_DEPTH];
    size_t counts[GW_SHM_COLL_DEPTH];
    open_coll(&p, env, 12);
    for (int b = 0; b < GW_SHM_COLL_DEPTH; b++)
        buffers[b] = b % 2 ? malloc(COUNT_MAX * 4) : gw_shm_alloc(env->transport, COUNT_MAX * 4, &p.error);
    uint64_t started = 0, checked = 0;
    while (checked < OPERATIONS && !p.status) {
        while (started < OPERATIONS && started - checked < GW_SHM_COLL_DEPTH && gw_shm_coll_can_start(p.coll) &&
               gw_rng_below(&delays, 4)) {
            gw_rng sizes = gw_rng_make(started, 1);
            int b = (int)(started % GW_SHM_COLL_DEPTH);
            counts[b] = gw_rng_below(&sizes, gw_rng_below(&sizes, 3) ? 1000 : COUNT_MAX);
            for (size_t i = 0; i < counts[b]; i++) buffers[b][i] = (int32_t)(i + started) * (env->rank + 1);
            gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = started, .signature = {counts[b]},
                              .in = buffers[b], .out = buffers[b], .count = counts[b],
                              .reduction = {.dtype = GW_I32, .op = GW_SUM, .world = env->ranks}};
            gw_shm_coll_start(p.coll, &op);
            started++;
        }
        if (gw_rng_below(&delays, 50) == 0) usleep(200);
        if (started == checked) continue;
        wait_for(&p, checked + 1);
        for (; checked < p.completed; checked++) {
            size_t wrong = 0, b = checked % GW_SHM_COLL_DEPTH;
            int32_t scale = env->ranks * (env->ranks + 1) / 2;
            for (size_t i = 0; i < counts[b]; i++) wrong += buffers[b][i] != (int32_t)(i + checked) * scale;
            CHECK_EQ(0, wrong);
        }
    }
    CHECK_STR("", p.error.text);
    rank_meet(env);
    for (int b = 1; b < GW_SHM_COLL_DEPTH; b += 2) free(buffers[b]);
    close_player(&p);
}

static void operations_follow_each_other(void) {
    run_ranks(2, play_on, NULL);
    run_ranks(3, play_on, NULL);
    run_ranks(5, play_on, NULL);
}

/* What a board knows of the last operation holds for the next one like it, until somebody's buffer lies elsewhere: each
 * rank takes another one when it likes, of either kind, also a new one that lies where a freed one lay. */
static void repeat(rank_env *env) {
    enum { OPERATIONS = RANKS_ARE_THREADS ? 200 : 3000, COUNT_MAX = 20000, BUFFERS = 4 };
    static const size_t counts[] = {700, 1024, 1500, COUNT_MAX};
    player p;
    gw_rng own = gw_rng_make(7, (uint64_t)env->rank), common = gw_rng_make(7, 1000);
    int32_t *buffers[BUFFERS];
    int in = 0, out = 0;
    size_t count = counts[0];
    open_coll(&p, env, 17);
    for (int b = 0; b < BUFFERS; b++)
        buffers[b] = b % 2 ? malloc(COUNT_MAX * 4) : gw_shm_alloc(env->transport, COUNT_MAX * 4, &p.error);
    for (uint64_t number = 1; number <= OPERATIONS && !p.status; number++) {
        if (gw_rng_below(&common, 10) == 0) count = counts[gw_rng_below(&common, 4)];
        if (gw_rng_below(&own, 10) == 0) in = out = (int)gw_rng_below(&own, BUFFERS);
        if (gw_rng_below(&own, 20) == 0) out = (int)gw_rng_below(&own, BUFFERS);
        if (gw_rng_below(&own, 20) == 0) {
            gw_shm_free(env->transport, buffers[0]);
            buffers[0] = gw_shm_alloc(env->transport, COUNT_MAX * 4, &p.error);
        }
        for (size_t i = 0; i < count; i++) buffers[in][i] = (int32_t)(i + number) * (env->rank + 1);
        gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = number, .signature = {count}, .in = buffers[in],
                          .out = buffers[out], .count = count,
                          .reduction = {.dtype = GW_I32, .op = GW_SUM, .world = env->ranks}};
        gw_shm_coll_start(p.coll, &op);
        wait_for(&p, number);
        size_t wrong = 0;
        int32_t scale = env->ranks * (env->ranks + 1) / 2;
        for (size_t i = 0; i < count; i++) wrong += buffers[out][i] != (int32_t)(i + number) * scale;
        CHECK_EQ(0, wrong);
    }
    CHECK_STR("", p.error.text);
    rank_meet(env);
    for (int b = 1; b < BUFFERS; b += 2) free(buffers[b]);
    close_player(&p);
}

static void repeated_operations(void) {
    run_ranks(2, repeat, NULL);
    run_ranks(3, repeat, NULL);
}

/* A member that only gives little does not wait for the others, but is never more than the slots ahead of them. */
static void run_ahead(rank_env *env) {
    enum { OPERATIONS = GW_SHM_COLL_DEPTH + 2 };
    player p;
    open_coll(&p, env, 18);
    bool gives = self_of(&p) == 0;
    for (uint64_t number = 1; number <= OPERATIONS; number++) {
        int32_t value = gives ? (int32_t)number : 0;
        if (!gives && number == 1) rank_meet(env);
        gw_shm_coll_op op = {.task = GW_SHM_TASK_BROADCAST, .number = number, .in = &value, .out = &value, .count = 1,
                             .lanes = env->ranks, .root = 0, .reduction = {.dtype = GW_I32}};
        gw_shm_coll_start(p.coll, &op);
        for (int i = 0; gives && number <= GW_SHM_COLL_DEPTH + 1 && i < 10; i++) look_at_coll(&p);
        if (gives && number <= GW_SHM_COLL_DEPTH) CHECK_EQ(number, p.completed);
        if (gives && number == GW_SHM_COLL_DEPTH + 1) {
            CHECK_EQ(GW_SHM_COLL_DEPTH, p.completed);
            rank_meet(env);
        }
        wait_for(&p, number);
        CHECK_EQ(number, value);
    }
    CHECK_STR("", p.error.text);
    rank_meet(env);
    close_player(&p);
}

static void givers_run_ahead(void) { run_ranks(3, run_ahead, NULL); }

static void sleep_and_wake(rank_env *env) {
    player p;
    open_coll(&p, env, 13);
    for (uint64_t round = 1; round <= 6; round++) {
        rank_meet(env); /* no rank still sleeps in the last round */
        if (round % 3 == (uint64_t)env->rank) rank_await_sleepers(env);
        gw_shm_coll_op op = {.task = GW_SHM_TASK_BARRIER, .number = round};
        gw_shm_coll_start(p.coll, &op);
        wait_for(&p, round);
    }
    CHECK(env->sleeps >= 4); /* in each round that others were late in */
    close_player(&p);
}

static void sleepers_are_woken(void) { run_ranks(3, sleep_and_wake, NULL); }

/* Rank 1 differs in this word of the signature. */
static void disagree_in(rank_env *env, int word) {
    player p;
    float data[4] = {1, 2, 3, 4};
    open_coll(&p, env, 14);
    gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = 77, .signature = {GW_SHM_COLL_THREE_WORDS | 4, 5, 6},
                      .in = data, .out = data, .count = env->rank == 1 && word == 0 ? 2 : 4,
                      .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = env->ranks}};
    if (env->rank == 1) op.signature[word]++;
    uint64_t theirs[GW_SHM_COLL_SIGNATURE] = {0};
    gw_shm_coll_start(p.coll, &op);
    wait_for(&p, 1);
    CHECK_EQ(GW_MISMATCH, p.status);
    CHECK_EQ(1, p.error.rank);
    gw_shm_coll_signature(p.coll, 1, theirs);
    CHECK_EQ(word == 2 ? 7 : 6, theirs[2]);
    CHECK(strstr(p.error.text, "rank 1 called operation 77"));
    CHECK(data[0] == 1 && data[3] == 4);
    rank_meet(env);
    close_player(&p);
}

static void disagree_in_the_first(rank_env *env) { disagree_in(env, 0); }
static void disagree_in_the_third(rank_env *env) { disagree_in(env, 2); }

static void disagreement_names_the_rank_that_differs(void) {
    run_ranks(4, disagree_in_the_first, NULL);
    run_ranks(4, disagree_in_the_third, NULL);
}

/* Rank 0 gives an operation up of which rank 1 has done a part; rank 1 comes late and works on. What rank 0 has written
 * since must stay. */
static void give_up(rank_env *env, const gw_error *blamed) {
    enum { COUNT = 2 << 20 };
    player p;
    open_coll(&p, env, 15);
    float *data = gw_shm_alloc(env->transport, COUNT * 4, &p.error);
    for (int i = 0; i < COUNT; i++) data[i] = 1;
    gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = 1, .in = data, .out = data, .count = COUNT,
                      .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = env->ranks}};
    gw_shm_coll_start(p.coll, &op);
    rank_meet(env);
    if (env->rank == 1) look_at_coll(&p);
    rank_meet(env);
    if (env->rank == 0) {
        if (blamed) gw_shm_coll_blame(p.coll, blamed);
        gw_shm_coll_close(p.coll);
        p.coll = NULL;
        CHECK(data[0] == 2 && data[COUNT - 1] == 1);
        for (int i = 0; i < COUNT; i++) data[i] = 7;
    }
    rank_meet(env);
    if (env->rank == 1) {
        wait_for(&p, 1);
        CHECK_EQ(GW_ABORTED, p.status);
        if (blamed) {
            CHECK_EQ(1, p.error.rank);
            CHECK_STR("rank 1 on node3 is gone (so rank 0 gave up)", p.error.text);
        } else {
            CHECK_EQ(0, p.error.rank);
            CHECK_STR("rank 0 left in the middle of a collective of its host (operation 1)", p.error.text);
        }
        CHECK(data[0] == 2 || data[COUNT - 1] == 2);
    }
    rank_meet(env);
    size_t touched = 0;
    for (int i = 0; i < COUNT && env->rank == 0; i++) touched += data[i] != 7;
    CHECK_EQ(0, touched);
    close_player(&p);
}

static void leave(rank_env *env) { give_up(env, NULL); }

static void lose_another(rank_env *env) {
    give_up(env, &(gw_error){.status = GW_PEER_LOST, .rank = 1, .text = "rank 1 on node3 is gone"});
}

static void memory_of_a_failed_operation_is_not_touched(void) {
    if (RANKS_ARE_THREADS) return;
    run_ranks(2, leave, NULL);
    run_ranks(2, lose_another, NULL); /* the others are told why */
}

/* Other programs may come and go there meanwhile. */
static int count_names(const char *folder) {
    int names = 0;
    struct dirent *entry;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir))) names += strstr(entry->d_name, "gw") || strstr(entry->d_name, "gradwire");
    if (dir) closedir(dir);
    return names;
}

static void die_in_the_middle(rank_env *env) {
    player p;
    open_coll(&p, env, 16);
    float *data = gw_shm_alloc(env->transport, 8 << 20, &p.error);
    gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = 1, .in = data, .out = data, .count = 2 << 20,
                      .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = env->ranks}};
    gw_shm_coll_start(p.coll, &op);
    rank_meet(env);
    look_at_coll(&p);
    rank_meet(env); /* a rank that looks now would find nothing to map */
    if (env->rank == 1) rank_die(env);
    rank_meet(env);
    for (int i = 0; i < 1000; i++) look_at_coll(&p);
    CHECK_EQ(GW_OK, p.status);
    close_player(&p);
}

static void nothing_is_left_behind(void) {
    if (RANKS_ARE_THREADS) return;
    int before = count_names("/dev/shm");
    run_ranks(2, die_in_the_middle, NULL);
    CHECK_EQ(before, count_names("/dev/shm"));
}

TEST_MAIN(CASE(tasks_equal_the_reference), CASE(operations_follow_each_other), CASE(repeated_operations),
          CASE(givers_run_ahead), CASE(sleepers_are_woken), CASE(disagreement_names_the_rank_that_differs),
          CASE(memory_of_a_failed_operation_is_not_touched), CASE(nothing_is_left_behind))
