/* test_shm_coll_pull.c - tasks that only move data, read straight out of private memory: against staging and against
 * plain copies; ranks that may not be read, that end, that unmap or invent a buffer; the choice between the two. */
#include "shm_coll_player.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
#define BYTES_MAX ((size_t)2200000)

static int self_of(const player *p) { return p->env->ranks - 1 - p->env->rank; }

/* As if every member had measured this. */
static void prefer(gw_shm_coll *coll, bool pull) {
    for (int task = 0; task < GW_SHM_TASK_BARRIER; task++)
        for (int class = 0; class < COLL_CLASSES; class ++)
            coll->choices[task][class] = (coll_choice){.calls = 9, .ns = {pull ? 2000 : 1000, pull ? 1000 : 2000}};
}

/* ---- all tasks, in both ways ---- */

typedef struct move {
    gw_shm_coll_op op;
    size_t counts[RANKS_MAX];
    bool in_place;
    unsigned shared; /* bit 2 m: in of member m; bit 2 m + 1: its out */
    uint64_t seed;
} move;

static uint8_t value_at(const move *v, int member, size_t at) {
    return (uint8_t)((at * 31 + at / 251) ^ ((size_t)member * 57 + v->seed * 13));
}

static size_t part_begin(const move *v, int lane) {
    size_t lanes = (size_t)v->op.lanes, l = (size_t)lane, rest = v->op.count % lanes, at = 0;
    for (int before = 0; v->op.counts && before < lane; before++) at += v->counts[before];
    return v->op.counts ? at : v->op.count / lanes * l + (l < rest ? l : rest);
}

static size_t part_end(const move *v, int lane) {
    return lane + 1 == v->op.lanes ? v->op.count : part_begin(v, lane + 1);
}

/* The member whose input belongs to out[at] of this member, and where it lies there; -1: out[at] stays as it is. */
static int source_of(const move *v, int members, int self, size_t at, size_t *from) {
    size_t part = v->op.count / (size_t)members;
    int lane = 0;
    while (at >= part_end(v, lane)) lane++;
    *from = at;
    switch (v->op.task) {
    case GW_SHM_TASK_BROADCAST: return v->op.root;
    case GW_SHM_TASK_ALLGATHER: return lane;
    case GW_SHM_TASK_GATHER: return self == v->op.root ? lane : -1;
    case GW_SHM_TASK_SCATTER: return self == lane ? v->op.root : -1;
    default: *from = at % part + (size_t)self * part; return (int)(at / part);
    }
}

static void check_result(const player *p, const move *v, const uint8_t *out, coll_mode mode) {
    size_t wrong = 0, from;
    for (size_t at = 0; at < v->op.count; at++) {
        int source = source_of(v, p->env->ranks, self_of(p), at, &from);
        uint8_t untouched = v->in_place ? value_at(v, self_of(p), at) : 0xee;
        wrong += out[at] != (source < 0 ? untouched : value_at(v, source, from));
    }
    CHECK_EQ(0, wrong);
    if (wrong == 0) return;
    printf("    member %d of %d: task %d count %zu root %d uneven %d in place %d shared %x mode %d\n", self_of(p),
           p->env->ranks, v->op.task, v->op.count, v->op.root, v->op.counts != NULL, v->in_place, v->shared, mode);
}

static void run_move(player *p, const move *v) {
    int self = self_of(p);
    size_t odd = v->seed % 3;
    uint8_t *in = (v->shared >> 2 * self & 1 ? p->shared_in : p->private_in) + odd;
    uint8_t *out = (v->shared >> (2 * self + 1) & 1 ? p->shared_out : p->private_out) + 2 * odd;
    gw_shm_coll_op op = v->op;
    if (v->in_place) out = in;
    else memset(out, 0xee, v->op.count);
    if ((v->seed * 5 + (uint64_t)self * 3) % 8 == 0) usleep(300); /* the others must wait before they write the next */
    for (size_t at = 0; at < v->op.count; at++) in[at] = value_at(v, self, at);
    op.in = in;
    op.out = out;
    op.number = p->completed + 1;
    op.signature[0] = v->seed;
    gw_shm_coll_start(p->coll, &op);
    wait_for(p, op.number);
    CHECK_STR("", p->error.text);
    check_result(p, v, out, p->coll->resolved_mode);
}

static void draw(move *v, int members, gw_shm_task task, size_t count, uint64_t seed) {
    *v = (move){.seed = seed, .in_place = seed % 3 == 0, .shared = seed % 2 ? 0 : (unsigned)(seed * 2654435761u >> 7)};
    v->op = (gw_shm_coll_op){.task = task, .count = count, .lanes = members, .root = (int)(seed % (unsigned)members),
                             .reduction = {.dtype = GW_U8, .world = members}};
    if (task == GW_SHM_TASK_ALLTOALL) v->op.count -= count % (size_t)members;
    if (task == GW_SHM_TASK_ALLTOALL || seed % 4) return;
    v->counts[members - 1] = count - count / 3;
    v->counts[seed % (unsigned)(members - 1)] = count / 3; /* the others have nothing */
    v->op.counts = v->counts;
}

static void open_pools(player *p) {
    p->shared_in = gw_shm_alloc(p->env->transport, BYTES_MAX + 64, &p->error);
    p->shared_out = gw_shm_alloc(p->env->transport, BYTES_MAX + 64, &p->error);
    p->private_in = malloc(BYTES_MAX + 64);
    p->private_out = malloc(BYTES_MAX + 64);
}

/* Small data goes another way; the last two are more than one read, or one poll. */
static const size_t counts_tried[] = {1, 4097, 16385, 65535, 65537, 300001, COLL_QUANTUM_BYTES + 1, 2100001};

static void move_everything(rank_env *env) {
    static const gw_shm_task tasks[] = {GW_SHM_TASK_BROADCAST, GW_SHM_TASK_ALLGATHER, GW_SHM_TASK_GATHER,
                                        GW_SHM_TASK_SCATTER, GW_SHM_TASK_ALLTOALL};
    player p;
    move v;
    uint64_t seed = 1;
    int pulled = 0;
    open_coll(&p, env, 31);
    open_pools(&p);
    CHECK(p.coll->reads);
    for (size_t c = 0; c < sizeof counts_tried / sizeof *counts_tried; c++)
        for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++)
            for (int way = 0; way < 4 && !p.status; way++) {
                draw(&v, env->ranks, tasks[t], counts_tried[c], seed + (uint64_t)(way / 2));
                prefer(p.coll, way % 2);
                run_move(&p, &v);
                pulled += p.coll->resolved_mode == COLL_PULL;
                seed += way == 3 ? 2 : 0;
            }
    CHECK(pulled > 20);
    rank_meet(env);
    close_player(&p);
}

static void pulling_equals_staging(void) {
    for (int ranks = 2; ranks <= 5; ranks++) run_ranks(ranks, move_everything, NULL);
}

/* A receiver that has arrived, but has not read yet, keeps its source in the call. */
static void hold(rank_env *env) {
    static const size_t counts[] = {4097, 100000, 100000};
    player p;
    open_coll(&p, env, 35);
    open_pools(&p);
    for (uint64_t round = 1; round <= 3; round++) {
        bool sends = env->rank == 1, shared = sends && round < 3;
        uint8_t *data = shared ? p.shared_in : p.private_in;
        memset(data, sends ? 5 : 0, counts[round - 1]);
        prefer(p.coll, true);
        gw_shm_coll_op op = {.task = GW_SHM_TASK_BROADCAST, .number = round, .in = data, .out = data, .lanes = 2,
                             .signature = {round}, .count = counts[round - 1], .root = 0,
                             .reduction = {.dtype = GW_U8}};
        gw_shm_coll_start(p.coll, &op);
        rank_meet(env);
        for (int i = 0; i < 100 && sends; i++) look_at_coll(&p);
        CHECK_EQ(round - 1, p.completed);
        rank_meet(env);
        wait_for(&p, round);
        CHECK(data[0] == 5 && data[counts[round - 1] - 1] == 5);
    }
    rank_meet(env);
    close_player(&p);
}

static void a_source_waits_for_its_readers(void) { run_ranks(2, hold, NULL); }

/* ---- ranks whose memory cannot be read ---- */

static void refuse_reads(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
}

/* All members stage, though one alone refuses. */
static void move_without(rank_env *env) {
    player p;
    move v;
    open_coll(&p, env, 32);
    open_pools(&p);
    CHECK(!p.coll->reads);
    for (uint64_t seed = 1; seed <= 9; seed++) {
        draw(&v, env->ranks, seed % 2 ? GW_SHM_TASK_ALLTOALL : GW_SHM_TASK_ALLGATHER, 70001, seed);
        v.shared = 0;
        prefer(p.coll, true);
        run_move(&p, &v);
        CHECK_EQ(COLL_STAGED, p.coll->resolved_mode);
    }
    rank_meet(env);
    close_player(&p);
}

static void one_does_not_want(rank_env *env) {
    gw_shm_peer_map(env->transport)->never_reads = env->rank == 1;
    move_without(env);
}

static void one_is_filtered(rank_env *env) {
    if (env->rank == 2) refuse_reads();
    move_without(env);
}

/* Not root, which reads everything. The pages have been opened before. */
static void one_is_not_dumpable(rank_env *env) {
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) abort();
    prctl(PR_SET_DUMPABLE, env->rank != 0);
    rank_meet(env);
    move_without(env);
    rank_meet(env);
    prctl(PR_SET_DUMPABLE, 1); /* for the leak sanitizer */
}

static void where_one_cannot_be_read_all_stage(void) {
    run_ranks(3, one_does_not_want, NULL);
    if (RANKS_ARE_THREADS) return;
    run_ranks(3, one_is_filtered, NULL);
    run_ranks(3, one_is_not_dumpable, NULL);
}

/* ---- sources that fail while they are read ---- */

enum { LARGE = 8 << 20 };

static uint8_t *map_large(void) {
    uint8_t *data = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 7, LARGE);
    return data;
}

/* A broadcast from rank 1, which has arrived when this returns; rank 0 has not looked at it. */
static uint8_t *begin_broadcast(player *p, rank_env *env) {
    open_coll(p, env, 33);
    prefer(p->coll, true);
    uint8_t *data = map_large();
    gw_shm_coll_op op = {.task = GW_SHM_TASK_BROADCAST, .number = 1, .in = data, .out = data, .count = LARGE,
                         .lanes = env->ranks, .root = env->ranks - 2, .reduction = {.dtype = GW_U8}};
    gw_shm_coll_start(p->coll, &op);
    rank_meet(env);
    return data;
}

static void expect_failure(player *p, gw_status status, const char *text) {
    wait_for(p, 1);
    CHECK_EQ(status, p->status);
    CHECK_EQ(1, p->error.rank);
    CHECK_STR(text, p->error.text);
}

static void unmap_source(rank_env *env) {
    player p;
    uint8_t *data = begin_broadcast(&p, env);
    if (env->rank == 1) munmap(data + LARGE / 2, LARGE / 2);
    rank_meet(env);
    if (env->rank == 0)
        expect_failure(&p, GW_PROTOCOL,
                       "rank 1 gave a collective a buffer that is not mapped (was it freed during the call?)");
    rank_meet(env);
    close_player(&p);
    munmap(data, LARGE);
}

static void invent_source(rank_env *env) {
    player p;
    uint8_t *data = begin_broadcast(&p, env);
    coll_entry *entry = coll_entry_of(p.coll, 0, self_of(&p));
    if (env->rank == 1) entry->call.in.offset = UINT64_MAX - 4096;
    rank_meet(env);
    if (env->rank == 0)
        expect_failure(&p, GW_PROTOCOL,
                       "rank 1 gave a collective a buffer that is not mapped (was it freed during the call?)");
    rank_meet(env);
    close_player(&p);
    munmap(data, LARGE);
}

static void end_in_the_middle(rank_env *env) {
    player p;
    uint8_t *data = begin_broadcast(&p, env);
    if (env->rank == 0) look_at_coll(&p);
    rank_meet(env);
    if (env->rank == 1) rank_die(env);
    while (!gw_peer_map_ended(&gw_shm_peer_map(env->transport)->peers[1])) sched_yield();
    if (env->rank == 0) expect_failure(&p, GW_PEER_LOST, "rank 1 ended while its memory was read");
    rank_meet(env);
    close_player(&p);
    munmap(data, LARGE);
}

static void close_in_the_middle(rank_env *env) {
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) abort();
    prctl(PR_SET_DUMPABLE, 1);
    rank_meet(env);
    player p;
    uint8_t *data = begin_broadcast(&p, env);
    if (env->rank == 0) look_at_coll(&p);
    rank_meet(env);
    if (env->rank == 1) prctl(PR_SET_DUMPABLE, 0);
    rank_meet(env);
    if (env->rank == 0)
        expect_failure(&p, GW_SYSTEM, "the memory of rank 1 can no longer be read: Operation not permitted");
    rank_meet(env);
    prctl(PR_SET_DUMPABLE, 1);
    close_player(&p);
    munmap(data, LARGE);
}

static void a_source_that_fails_is_named(void) {
    if (RANKS_ARE_THREADS) return;
    run_ranks(2, unmap_source, NULL);
    run_ranks(2, invent_source, NULL);
    run_ranks(2, end_in_the_middle, NULL);
    run_ranks(2, close_in_the_middle, NULL);
}

/* ---- the choice ---- */

static void choose(rank_env *env) {
    enum { COUNT = 50000, CALLS = 30 };
    player p;
    int pulled = 0;
    open_coll(&p, env, 34);
    open_pools(&p);
    move v;
    draw(&v, env->ranks, GW_SHM_TASK_ALLTOALL, COUNT, 1);
    coll_choice *choice = &p.coll->choices[GW_SHM_TASK_ALLTOALL][15];
    for (int call = 0; call < CALLS; call++) {
        bool expected = call % 2 == 1, chooses = self_of(&p) == 0;
        if (chooses && call >= 8) expected = choice->ns[1] < choice->ns[0];
        CHECK(!chooses || expected == gw_shm_coll_would_pull(p.coll, &v.op));
        run_move(&p, &v);
        pulled += p.coll->resolved_mode == COLL_PULL;
        CHECK_EQ(chooses ? call + 1 : 0, choice->calls);
    }
    CHECK(pulled >= 4 && pulled <= CALLS - 4); /* both were tried */
    *choice = (coll_choice){.calls = 64, .ns = {10, 20}};
    CHECK(self_of(&p) != 0 || gw_shm_coll_would_pull(p.coll, &v.op)); /* the slower one is tried again */
    choice->calls = 65;
    CHECK(!gw_shm_coll_would_pull(p.coll, &v.op));
    rank_meet(env);
    close_player(&p);
}

static void the_faster_is_chosen(void) { run_ranks(3, choose, NULL); }

TEST_MAIN(CASE(pulling_equals_staging), CASE(a_source_waits_for_its_readers), CASE(where_one_cannot_be_read_all_stage),
          CASE(a_source_that_fails_is_named), CASE(the_faster_is_chosen))
