/* test_control_shrink.c - gw_shrink of the control plane alone: survivors agree on the members of the next generation,
 * whichever rank dies at whichever message; of a cut network at most one side continues. */
#include "control_net.h"

/* The result of a rank's gw_shrink. */
typedef struct shrunk {
    bool over, member[WORLD_MAX];
    gw_error error;
    uint32_t asked_in;
} shrunk;

static shrunk outcome[WORLD_MAX];

static void ask(int rank, gw_time until) {
    outcome[rank].asked_in = gw_control_generation(net.rank[rank]);
    gw_control_shrink(net.rank[rank], until, net.now);
}

/* As gw_shrink: tries again if another rank was lost meanwhile; and as a program that learns of a loss later. */
static void take(int rank, gw_time until) {
    shrunk *s = &outcome[rank];
    if (net.dead[rank]) return;
    if (s->over && !s->error.status && gw_control_error(net.rank[rank])->status) {
        s->over = false;
        ask(rank, net.now + DEADLINE);
    }
    if (s->over || !gw_control_shrunk(net.rank[rank], s->member, &s->error)) return;
    if (s->error.status && s->asked_in != gw_control_generation(net.rank[rank])) ask(rank, until);
    else s->over = true;
}

static bool settled(int rank) {
    return outcome[rank].over && (outcome[rank].error.status || !gw_control_error(net.rank[rank])->status);
}

/* All living ranks of `who` call gw_shrink; true if all got a result within one deadline. */
static bool shrink(const bool *who) {
    gw_time until = net.now + DEADLINE;
    bool all = false;
    memset(outcome, 0, sizeof outcome);
    for (int r = 0; r < net.world; r++)
        if (who[r] && !net.dead[r]) ask(r, until);
    while (!all && net.now < until) {
        pass(DEADLINE / 128);
        for (int r = 0; r < net.world; r++)
            if (who[r]) take(r, until);
        deliver_all();
        all = true;
        for (int r = 0; r < net.world; r++) all = all && (!who[r] || net.dead[r] || settled(r));
    }
    return all;
}

static bool shrink_all(void) {
    bool who[WORLD_MAX];
    for (int r = 0; r < WORLD_MAX; r++) who[r] = true;
    return shrink(who);
}

static void check_members(int rank, const bool *dead) {
    CHECK(outcome[rank].over);
    CHECK_STR("", outcome[rank].error.text);
    for (int r = 0; r < net.world; r++) CHECK_EQ(!dead[r], outcome[rank].member[r]);
    CHECK_EQ(GW_OK, gw_control_error(net.rank[rank])->status);
}

static void survivors_agree(void) {
    for (int world = 2; world <= 33; world += world < 9 ? 1 : 8)
        for (int victim = 0; victim < world; victim += 1 + world / 4) {
            begin(world);
            lose(victim);
            CHECK(shrink_all());
            CHECK(net.now < DEADLINE / 8); /* no rank had to be waited for */
            for (int r = 0; r < world; r++) {
                if (r == victim) continue;
                check_members(r, net.dead);
                CHECK_EQ(1, gw_control_generation(net.rank[r]));
            }
            end();
        }
}

static void a_world_of_one_continues(void) {
    begin(1);
    gw_error error = {.status = GW_ABORTED, .rank = 0, .text = "enough"};
    gw_control_abort(net.rank[0], &error);
    CHECK(shrink_all());
    check_members(0, (bool[]){false});
    end();
}

static void a_rank_that_does_not_shrink_is_left_behind(void) {
    begin(5);
    lose(4);
    CHECK(shrink((bool[]){true, true, true, false, false}));
    for (int r = 0; r < 3; r++) check_members(r, (bool[]){false, false, false, true, true});
    CHECK(net.now >= DEADLINE / 2); /* it was waited for */
    CHECK(shrink((bool[]){false, false, false, true, false}));
    CHECK_EQ(GW_PEER_LOST, outcome[3].error.status);
    CHECK(strstr(outcome[3].error.text, "goes on without this process, rank 3") != NULL);
    CHECK_EQ(0, gw_control_generation(net.rank[3]));
    end();
}

/* It calls gw_shrink when the others have continued, ended and left: it must not start a job of its own. */
static void a_rank_that_shrinks_after_all_left_stays_behind(void) {
    begin(4);
    lose(3);
    CHECK(shrink((bool[]){true, true, false, false}));
    for (int r = 0; r < 2; r++) {
        check_members(r, (bool[]){false, false, true, true});
        gw_control_leave(net.rank[r]);
    }
    deliver_all();
    lose(0);
    lose(1);
    CHECK(shrink((bool[]){false, false, true, false}));
    CHECK_EQ(GW_PEER_LOST, outcome[2].error.status);
    CHECK(strstr(outcome[2].error.text, "goes on without this process, rank 2") != NULL);
    end();
}

/* Two ranks call gw_abort, and then all gw_shrink: the second abort must not end gw_shrink. */
static void two_aborts_do_not_end_shrinking(void) {
    begin(4);
    gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "enough"};
    gw_control_abort(net.rank[1], &error);
    gw_control_abort(net.rank[2], &error);
    deliver_all();
    gw_control_abort(net.rank[3], &error);
    deliver_all();
    CHECK(shrink_all());
    for (int r = 0; r < 4; r++) check_members(r, (bool[]){false, false, false, false});
    end();
}

/* A rank dies after its first, second, ... message of the agreement; in the end all survivors agree. */
static void a_rank_may_die_at_each_message(void) {
    for (int victim = 0; victim < 5; victim++)
        for (int lives = 1; lives < 60; lives++) {
            begin(5);
            gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "enough"};
            gw_control_abort(net.rank[1], &error);
            deliver_all();
            net.lives[victim] = lives;
            CHECK(shrink_all());
            if (!net.dead[victim]) { /* all have continued, with it */
                net.lives[victim] = 0;
                lose(victim);
                CHECK(shrink_all());
            }
            for (int r = 0; r < 5; r++)
                if (r != victim) check_members(r, net.dead);
            for (int r = 0; r < 5; r++)
                if (r != victim) CHECK_EQ(gw_control_generation(net.rank[!victim]), gw_control_generation(net.rank[r]));
            end();
        }
}

/* Cuts the network; both sides notice only silence. */
static void cut_off(int world, int from) {
    for (int r = from; r < world; r++) net.side[r] = 1;
    for (int i = 0; i < 12; i++) pass(GW_SECOND);
}

static void the_majority_continues(void) {
    begin(5);
    cut_off(5, 2); /* {0, 1} and {2, 3, 4} */
    CHECK(shrink_all());
    for (int r = 2; r < 5; r++) check_members(r, (bool[]){true, true, false, false, false});
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(GW_PEER_LOST, outcome[r].error.status);
        CHECK(strstr(outcome[r].error.text, "2 of the 5 ranks") != NULL);
        CHECK(strstr(outcome[r].error.text, "not reached: rank 2") != NULL);
        CHECK(strstr(outcome[r].error.text, "quorum=off") != NULL);
    }
    end();
}

static void the_half_with_the_lowest_rank_continues(void) {
    begin(6);
    cut_off(6, 3);
    CHECK(shrink_all());
    for (int r = 0; r < 3; r++) check_members(r, (bool[]){false, false, false, true, true, true});
    for (int r = 3; r < 6; r++) CHECK_EQ(GW_PEER_LOST, outcome[r].error.status);
    end();
}

static void without_a_quorum_both_sides_continue(void) {
    begin_by(5, true);
    cut_off(5, 2);
    CHECK(shrink_all());
    for (int r = 0; r < 2; r++) check_members(r, (bool[]){false, false, true, true, true});
    for (int r = 2; r < 5; r++) check_members(r, (bool[]){true, true, false, false, false});
    end();
}

/* {0, 1, 2} continue without {3, 4}; then 0 and 1 die. 2 alone must not continue: 3 and 4 are more, and may. */
static void ranks_left_behind_still_count(void) {
    begin(5);
    cut_off(5, 3);
    CHECK(shrink_all());
    for (int r = 0; r < 3; r++) check_members(r, (bool[]){false, false, false, true, true});
    lose(0);
    lose(1);
    CHECK(shrink((bool[]){false, false, true, false, false}));
    CHECK_EQ(2, outcome[2].asked_in + 1);
    CHECK_EQ(GW_PEER_LOST, outcome[2].error.status);
    CHECK(strstr(outcome[2].error.text, "nor are 2 that were left behind before") != NULL);
    net.side[0] = net.side[1] = 1; /* proves the deaths to 3 and 4 */
    CHECK(shrink((bool[]){false, false, false, true, true}));
    for (int r = 3; r < 5; r++) check_members(r, (bool[]){true, true, true, false, false});
    end();
}

/* A rank that was considered lost, and answers, continues with the others. */
static void a_lost_rank_that_answers_is_taken_back(void) {
    begin(4);
    cut_off(4, 3);
    for (int r = 0; r < 4; r++) net.side[r] = 0;
    CHECK(gw_control_lost(net.rank[0], 3) && !gw_control_dead(net.rank[0], 3));
    CHECK(shrink_all());
    for (int r = 0; r < 4; r++) check_members(r, (bool[]){false, false, false, false});
    CHECK(!gw_control_lost(net.rank[0], 3));
    end();
}

static void an_abort_ends_shrinking_on_all_ranks(void) {
    begin(4);
    lose(3);
    for (int r = 0; r < 2; r++) gw_control_shrink(net.rank[r], net.now + DEADLINE, net.now);
    deliver_all();
    gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "no, all of it"}, reported = {0};
    gw_control_abort(net.rank[1], &error);
    deliver_all();
    gw_control_shrink(net.rank[2], net.now + DEADLINE, net.now);
    for (int r = 0; r < 3; r++) {
        bool member[WORLD_MAX];
        CHECK(gw_control_shrunk(net.rank[r], member, &reported));
        CHECK_EQ(GW_ABORTED, reported.status);
        CHECK_STR("no, all of it", reported.text);
    }
    end();
}

TEST_MAIN(CASE(survivors_agree), CASE(a_world_of_one_continues), CASE(a_rank_that_does_not_shrink_is_left_behind),
          CASE(a_rank_that_shrinks_after_all_left_stays_behind), CASE(two_aborts_do_not_end_shrinking),
          CASE(a_rank_may_die_at_each_message), CASE(the_majority_continues),
          CASE(the_half_with_the_lowest_rank_continues), CASE(without_a_quorum_both_sides_continue),
          CASE(ranks_left_behind_still_count), CASE(a_lost_rank_that_answers_is_taken_back),
          CASE(an_abort_ends_shrinking_on_all_ranks))
