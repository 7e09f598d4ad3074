/* test_shm_coll_cores.c - what members of a host-local collective measure about their cores: their distance, and which
 * members share one. */
#include "shm_coll_player.h"

/* Two slow probes in a row, or two fast ones, change the mode of a member; one alone does not. */
static void judge(rank_env *env) {
    static const struct {
        size_t bytes;
        uint64_t ns;
        bool far;
    } probes[] = {{65536, 20000, 0}, {65536, 2000, 0},  {65536, 20000, 0}, {65536, 20000, 1}, {65536, 20000, 1},
                  {65536, 2000, 1},  {65536, 20000, 1}, {65536, 2000, 1},  {65536, 2000, 0}};
    player p;
    open_coll(&p, env, 15);
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        gw_shm_coll_note_probe(p.coll, probes[i].bytes, probes[i].ns);
        CHECK_EQ(probes[i].far, p.coll->far);
    }
    rank_meet(env);
    gw_shm_coll_close(p.coll);
}

static void distant_cores_are_detected(void) { run_ranks(2, judge, NULL); }

static void start_small(player *p, float *data) {
    gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .in = data, .out = data, .count = 1000,
                      .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = p->env->ranks}};
    gw_shm_coll_start(p->coll, &op);
}

static void settle_at(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(0, sched_setaffinity(0, sizeof one, &one));
}

/* The last rank has a core, the others share one. */
static void share_a_core(rank_env *env) {
    player p;
    cpu_set_t all;
    int cpu = 0;
    open_coll(&p, env, 18);
    float *data = gw_shm_alloc(env->transport, 4000, &p.error);
    CHECK_EQ(0, sched_getaffinity(0, sizeof all, &all));
    bool last = env->rank == env->ranks - 1, oversubscribed = env->ranks > sysconf(_SC_NPROCESSORS_ONLN);
    for (int skip = last && CPU_COUNT(&all) > 1; !CPU_ISSET(cpu, &all) || skip-- > 0;) cpu++;
    settle_at(cpu);
    start_small(&p, data); /* exchanges the cores of the members */
    wait_for(&p, 1);
    rank_meet(env);
    if (env->rank != 0 && !last) start_small(&p, data);
    rank_meet(env);
    if (env->rank == 1) CHECK(!gw_shm_coll_core_is_idle(p.coll)); /* rank 0 needs the core */
    rank_meet(env);
    if (env->rank == 0) start_small(&p, data);
    rank_meet(env);
    if (env->rank == 1) CHECK_EQ(oversubscribed && CPU_COUNT(&all) > 1, gw_shm_coll_core_is_idle(p.coll));
    rank_meet(env);
    if (last) start_small(&p, data);
    wait_for(&p, 2);
    CHECK(!gw_shm_coll_core_is_idle(p.coll));
    rank_meet(env);
    close_player(&p);
}

static void ranks_that_share_a_core_are_known(void) { run_ranks(RANKS_MAX, share_a_core, NULL); }

TEST_MAIN(CASE(distant_cores_are_detected), CASE(ranks_that_share_a_core_are_known))
