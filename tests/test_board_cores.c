/* test_board_cores.c - what members of a board find out about their cores: how far apart they are, who shares one. */
#include "board_player.h"

/* Two slow probes in a row, or two fast ones, change what a member does; one alone does not. */
static void judge(rank_env *env) {
    static const struct {
        size_t bytes;
        uint64_t ns;
        bool far;
    } probes[] = {{65536, 20000, 0}, {65536, 2000, 0}, {65536, 20000, 0}, {65536, 20000, 1}, {65536, 20000, 1},
                  {65536, 2000, 1},  {65536, 20000, 1}, {65536, 2000, 1}, {65536, 2000, 0}};
    player p;
    open_board(&p, env, 15);
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        gw_board_judge(p.board, probes[i].bytes, probes[i].ns);
        CHECK_EQ(probes[i].far, p.board->far);
    }
    rank_meet(env);
    gw_board_close(p.board);
}

static void who_is_far_says_so(void) { run_ranks(2, judge, NULL); }

static void start_small(player *p, float *data) {
    gw_board_op op = {.task = GW_BOARD_ALLREDUCE, .in = data, .out = data, .count = 1000,
                      .reduction = {GW_F32, GW_SUM, p->env->ranks}};
    gw_board_start(p->board, &op);
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
    open_board(&p, env, 18);
    float *data = gw_shm_alloc(env->transport, 4000, &p.error);
    CHECK_EQ(0, sched_getaffinity(0, sizeof all, &all));
    bool last = env->rank == env->ranks - 1, crowded = env->ranks > sysconf(_SC_NPROCESSORS_ONLN);
    for (int skip = last && CPU_COUNT(&all) > 1; !CPU_ISSET(cpu, &all) || skip-- > 0;) cpu++;
    settle_at(cpu);
    start_small(&p, data); /* tells who is where */
    wait_for(&p, 1);
    rank_meet(env);
    if (env->rank != 0 && !last) start_small(&p, data);
    rank_meet(env);
    if (env->rank == 1) CHECK(!gw_board_core_is_idle(p.board)); /* rank 0 needs the core */
    rank_meet(env);
    if (env->rank == 0) start_small(&p, data);
    rank_meet(env);
    if (env->rank == 1) CHECK_EQ(crowded && CPU_COUNT(&all) > 1, gw_board_core_is_idle(p.board));
    rank_meet(env);
    if (last) start_small(&p, data);
    wait_for(&p, 2);
    CHECK(!gw_board_core_is_idle(p.board));
    rank_meet(env);
    close_player(&p);
}

static void who_shares_a_core_knows_for_whom(void) { run_ranks(RANKS_MAX, share_a_core, NULL); }

TEST_MAIN(CASE(who_is_far_says_so), CASE(who_shares_a_core_knows_for_whom))
