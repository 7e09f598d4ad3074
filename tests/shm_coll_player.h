/* shm_coll_player.h - one rank of a test of host-local collectives: opens a gw_shm_coll, and polls until operations are
 * complete. */
#ifndef GW_TEST_COLL_PLAYER_H
#define GW_TEST_COLL_PLAYER_H

#include "ranks.h"
#include "shm/shm_coll_internal.h"

/* One rank's gw_shm_coll and the memory of its buffers. */
typedef struct player {
    rank_env *env;
    gw_shm_coll *coll;
    uint8_t *shared_in, *shared_out, *private_in, *private_out, *expected, *inputs[RANKS_MAX];
    uint64_t completed;
    gw_status status;
    gw_error error;
} player;

static bool look_at_coll(void *ctx) {
    player *p = ctx;
    bool moved;
    gw_error *error = &p->error;
    if (!p->status) p->status = gw_shm_coll_poll(p->coll, &p->completed, &moved, error);
    return p->status || moved;
}

/* Polls, yields, sleeps, until `operations` are complete or the collective fails. */
static void wait_for(player *p, uint64_t operations) {
    gw_time deadline = gw_clock_now() + 60 * GW_SECOND;
    if (operations % 2) p->status = gw_shm_coll_spin(p->coll, &p->completed, &p->error);
    for (int idle = 0; p->completed < operations && !p->status;) {
        idle = look_at_coll(p) ? 0 : idle + 1;
        if (p->completed >= operations || p->status) break;
        if (idle > 20) rank_sleep(p->env, look_at_coll, p);
        else if (idle) sched_yield();
        if (gw_clock_now() < deadline) continue;
        CHECK(!"an operation takes for ever");
        break;
    }
}

static void open_coll(player *p, rank_env *env, uint64_t key) {
    int members[RANKS_MAX];
    bool attached = false;
    *p = (player){.env = env};
    for (int r = 0; r < env->ranks; r++) members[r] = env->ranks - 1 - r; /* member order is not rank order */
    CHECK_EQ(GW_OK, gw_shm_coll_open(&p->coll, gw_shm_peer_map(env->transport), members, env->ranks,
                                     env->ranks - 1 - env->rank, key, &p->error));
    while (!attached && !p->status) {
        p->status = gw_shm_coll_attach(p->coll, &attached, &p->error);
        sched_yield();
    }
    CHECK_EQ(GW_OK, p->status);
}

static void close_player(player *p) {
    free(p->private_in);
    free(p->private_out);
    free(p->expected);
    for (int m = 0; m < RANKS_MAX; m++) free(p->inputs[m]);
    gw_shm_coll_close(p->coll);
}

#endif
