/* test_control.c - the control plane alone, N of them joined by queues: the graph stays connected, news reaches all,
 * the right rank is blamed, survivors agree. */
#include "test.h"

#include "engine/control.h"

#define WORLD_MAX 64
#define DEADLINE (10 * GW_SECOND)
#define QUEUE 200000

typedef enum parcel_kind { MESSAGE, HANG_UP, DIAL, CONNECTED, REFUSED } parcel_kind;

typedef struct parcel {
    parcel_kind kind;
    int from, to;
    gw_control_message message;
} parcel;

/* Messages are delivered in the order sent. */
static struct {
    int world;
    gw_control *rank[WORLD_MAX];
    bool dead[WORLD_MAX];
    int side[WORLD_MAX]; /* nothing passes between two */
    int lives[WORLD_MAX]; /* messages of an agreement that it sends before it dies; 0: any number */
    gw_error told[WORLD_MAX];
    char slow[WORLD_MAX][700];
    int gone[WORLD_MAX]; /* bit 0: somebody was lost, bit 1: somebody left */
    parcel *queue;
    int first, used;
    gw_time now;
    uint64_t delivered;
} net;

static void put(parcel p) {
    if (net.used < QUEUE) net.queue[net.used++] = p;
}

static void die(int rank) {
    net.dead[rank] = true;
    for (int r = 0; r < net.world; r++)
        if (r != rank) put((parcel){.kind = HANG_UP, .from = rank, .to = r});
}

static void on_send(void *ctx, int neighbour, const gw_control_message *message) {
    int from = (int)(intptr_t)ctx;
    if (net.dead[from]) return;
    put((parcel){.from = from, .to = neighbour, .message = *message});
    if (message->kind >= GW_CONTROL_SHRINK && net.lives[from] && --net.lives[from] == 0) die(from);
}

static void on_dial(void *ctx, int rank) { put((parcel){.kind = DIAL, .from = (int)(intptr_t)ctx, .to = rank}); }

static void on_returned(void *ctx, int rank) { (void)ctx, (void)rank; }

static void on_aborted(void *ctx, const gw_error *error) { net.told[(intptr_t)ctx] = *error; }

static void on_gone(void *ctx, int rank, bool left, const char *detail) {
    (void)rank, (void)detail;
    net.gone[(intptr_t)ctx] |= left ? 2 : 1;
}

static void on_slow(void *ctx, const char *sentence) {
    snprintf(net.slow[(intptr_t)ctx], sizeof net.slow[0], "%s", sentence);
}

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "here";
}

static void begin_by(int world, bool any_side) {
    parcel *queue = net.queue ? net.queue : malloc(QUEUE * sizeof *queue);
    memset(&net, 0, sizeof net);
    net.queue = queue;
    net.world = world;
    for (int r = 0; r < world; r++) {
        gw_control_config config = {.rank = r, .world = world, .deadline = DEADLINE, .any_side = any_side};
        gw_control_events events = {.ctx = (void *)(intptr_t)r, .send = on_send, .dial = on_dial, .aborted = on_aborted,
                                    .gone = on_gone, .returned = on_returned, .slow = on_slow, .host_name = host_name};
        CHECK_EQ(GW_OK, gw_control_open(&net.rank[r], &config, &events, 0, NULL));
    }
}

static void begin(int world) { begin_by(world, false); }

static void end(void) {
    for (int r = 0; r < net.world; r++) gw_control_close(net.rank[r]);
}

static void deliver(const parcel *p) {
    gw_control *to = net.rank[p->to];
    if (net.side[p->from] != net.side[p->to]) return;
    if (p->kind == DIAL) {
        put((parcel){.kind = net.dead[p->to] ? REFUSED : CONNECTED, .from = p->to, .to = p->from});
        if (!net.dead[p->to]) gw_control_link_up(to, p->from, net.now);
        return;
    }
    if (net.dead[p->to]) return;
    net.delivered++;
    if (p->kind == MESSAGE) gw_control_receive(to, p->from, &p->message, net.now);
    else if (p->kind == HANG_UP) gw_control_link_lost(to, p->from, "connection reset", net.now);
    else if (p->kind == REFUSED) gw_control_died(to, p->from, "its port is closed", net.now);
    else gw_control_link_up(to, p->from, net.now);
}

static void deliver_all(void) {
    for (; net.first < net.used; net.first++) {
        parcel p = net.queue[net.first];
        deliver(&p);
    }
    net.first = net.used = 0;
}

static void pass(gw_time time) {
    net.now += time;
    for (int r = 0; r < net.world; r++)
        if (!net.dead[r]) gw_control_poll(net.rank[r], net.now);
    deliver_all();
}

static void lose(int rank) {
    die(rank);
    deliver_all();
}

/* The graph. */

static int reached(int world, int without) {
    bool seen[WORLD_MAX] = {false};
    int stack[WORLD_MAX], top = 0, count = 0, first = without == 0 ? 1 : 0;
    if (first >= world) return 0;
    stack[top++] = first;
    seen[first] = true;
    while (top) {
        int neighbours[GW_CONTROL_LINKS_MAX], rank = stack[--top];
        int links = gw_control_neighbours(rank, world, neighbours);
        count++;
        for (int i = 0; i < links; i++) {
            if (neighbours[i] == without || seen[neighbours[i]]) continue;
            seen[neighbours[i]] = true;
            stack[top++] = neighbours[i];
        }
    }
    return count;
}

static void the_graph_stays_connected_without_any_rank(void) {
    for (int world = 1; world <= WORLD_MAX; world++) {
        CHECK_EQ(world, reached(world, -1));
        for (int without = 0; without < world; without++) CHECK_EQ(world - 1, reached(world, without));
    }
}

static void neighbours_are_mutual(void) {
    for (int world = 1; world <= WORLD_MAX; world++)
        for (int r = 0; r < world; r++) {
            int mine[GW_CONTROL_LINKS_MAX], theirs[GW_CONTROL_LINKS_MAX];
            int count = gw_control_neighbours(r, world, mine);
            for (int i = 0; i < count; i++) {
                int links = gw_control_neighbours(mine[i], world, theirs), found = 0;
                for (int k = 0; k < links; k++) found += theirs[k] == r;
                CHECK_EQ(1, found);
                CHECK(mine[i] != r && (i == 0 || mine[i] > mine[i - 1]));
            }
        }
}

/* News. */

static void a_death_is_told_to_all(void) {
    for (int world = 2; world <= WORLD_MAX; world += world < 9 ? 1 : 11)
        for (int victim = 0; victim < world; victim += 1 + world / 5) {
            begin(world);
            lose(victim);
            for (int r = 0; r < world; r++) {
                if (r == victim) continue;
                CHECK_EQ(GW_PEER_LOST, net.told[r].status);
                CHECK_EQ(victim, net.told[r].rank);
                CHECK_EQ(1, net.gone[r]);
                CHECK(gw_control_lost(net.rank[r], victim));
            }
            end();
        }
}

static void an_abort_reaches_all_in_the_same_words(void) {
    for (int world = 1; world <= WORLD_MAX; world += 9) {
        begin(world);
        gw_error error = {.status = GW_ABORTED, .rank = world / 2, .text = "the loss is not a number"};
        gw_control_abort(net.rank[world / 2], &error);
        deliver_all();
        for (int r = 0; r < world; r++) {
            CHECK_EQ(GW_ABORTED, net.told[r].status);
            CHECK_STR("the loss is not a number", net.told[r].text);
        }
        CHECK(net.delivered <= (uint64_t)world * 13); /* each passes it on once */
        end();
    }
}

static void the_first_cause_is_kept(void) {
    begin(5);
    gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "first"};
    gw_control_abort(net.rank[1], &error);
    deliver_all();
    snprintf(error.text, sizeof error.text, "second");
    gw_control_abort(net.rank[2], &error);
    lose(4);
    for (int r = 0; r < 4; r++) CHECK_STR("first", gw_control_error(net.rank[r])->text);
    end();
}

static void leaving_is_not_dying(void) {
    begin(6);
    gw_control_leave(net.rank[2]);
    deliver_all();
    lose(2); /* its links close */
    for (int r = 0; r < 6; r++) {
        if (r == 2) continue;
        CHECK_EQ(GW_OK, net.told[r].status);
        CHECK_EQ(2, net.gone[r]);
        CHECK(gw_control_left(net.rank[r], 2));
    }
    end();
}

static void silence_is_reported_at_the_deadline(void) {
    begin(5);
    net.dead[3] = true; /* it says nothing, and no link breaks */
    for (int i = 0; i < 9; i++) pass(GW_SECOND);
    for (int r = 0; r < 5; r++) CHECK_EQ(GW_OK, net.told[r].status);
    for (int i = 0; i < 3; i++) pass(GW_SECOND);
    for (int r = 0; r < 5; r++)
        if (r != 3) CHECK(net.told[r].status == GW_PEER_LOST && net.told[r].rank == 3);
    end();
}

/* Nobody else is to blame for the time in which this process itself did not run. */
static void own_sleep_is_forgiven(void) {
    begin(2);
    for (int i = 0; i < 3; i++) pass(GW_SECOND);
    net.now += 3 * DEADLINE;
    gw_control_poll(net.rank[0], net.now);
    CHECK_EQ(GW_OK, net.told[0].status);
    end();
}

/* Blame. */

static void wait_for(int rank, int awaited) { gw_control_waiting(net.rank[rank], &awaited, 1, "a message", net.now); }

static void the_end_of_the_chain_is_blamed(void) {
    begin(6);
    pass(1);
    for (int r = 0; r < 5; r++) wait_for(r, r + 1); /* 0 for 1 for 2 ... for 5, which computes */
    deliver_all();
    pass(DEADLINE / 24);
    pass(DEADLINE / 24 + 1);
    CHECK(strstr(net.slow[0], "rank 5 on here is slow") != NULL);
    for (int r = 1; r < 6; r++) CHECK_STR("", net.slow[r]);
    gw_control_overdue(net.rank[2], (int[]){3}, 1, "a message", net.now);
    deliver_all();
    for (int r = 0; r < 6; r++) CHECK(net.told[r].status == GW_TIMEOUT && net.told[r].rank == 5);
    end();
}

/* 0 waits for 1 and 3, 1 for 2, 2 for 0: a circle, were it not for 3, which nobody names at first. */
static void a_circle_does_not_hide_the_one_outside(void) {
    begin(5);
    pass(1);
    gw_control_waiting(net.rank[0], (int[]){1, 3}, 2, "messages", net.now);
    wait_for(1, 2);
    wait_for(2, 0);
    deliver_all();
    pass(DEADLINE / 24);
    gw_control_overdue(net.rank[1], (int[]){2}, 1, "a message", net.now);
    deliver_all();
    for (int r = 0; r < 5; r++) CHECK_EQ(3, net.told[r].rank);
    end();
}

static void who_goes_on_is_blamed_no_longer(void) {
    begin(4);
    pass(1);
    wait_for(0, 1);
    wait_for(1, 2);
    deliver_all();
    gw_control_waiting(net.rank[1], NULL, 0, "", net.now);
    deliver_all();
    gw_control_overdue(net.rank[0], (int[]){1}, 1, "a message", net.now);
    CHECK_EQ(1, net.told[0].rank);
    end();
}

/* Shrinking. */

/* What each rank's gw_shrink came to. */
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

/* As gw_shrink does: where another was lost meanwhile, once more; and as a program that is told of it later. */
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

/* All of `who` that live call gw_shrink; true if all got an answer within one deadline. */
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
            CHECK(net.now < DEADLINE / 8); /* nobody was waited for */
            for (int r = 0; r < world; r++) {
                if (r == victim) continue;
                check_members(r, net.dead);
                CHECK_EQ(1, gw_control_generation(net.rank[r]));
            }
            end();
        }
}

static void one_alone_goes_on(void) {
    begin(1);
    gw_error error = {.status = GW_ABORTED, .rank = 0, .text = "enough"};
    gw_control_abort(net.rank[0], &error);
    CHECK(shrink_all());
    check_members(0, (bool[]){false});
    end();
}

static void who_does_not_ask_is_left_behind(void) {
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

/* It calls gw_shrink when the others have gone on, come to the end and left: it must not begin anew. */
static void who_comes_when_all_have_left_stays_behind(void) {
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

/* Two ranks call gw_abort, and then all gw_shrink: the second abort is not one of gw_shrink. */
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

/* Whoever proposes dies after its first, second, ... message; in the end all that live agree. */
static void a_rank_dies_at_each_message(void) {
    for (int victim = 0; victim < 5; victim++)
        for (int lives = 1; lives < 60; lives++) {
            begin(5);
            gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "enough"};
            gw_control_abort(net.rank[1], &error);
            deliver_all();
            net.lives[victim] = lives;
            CHECK(shrink_all());
            if (!net.dead[victim]) { /* all had gone on, with it */
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

/* Both sides of a cut, silent as a cut is. */
static void cut_off(int world, int from) {
    for (int r = from; r < world; r++) net.side[r] = 1;
    for (int i = 0; i < 12; i++) pass(GW_SECOND);
}

static void the_majority_goes_on(void) {
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

static void half_goes_on_with_the_lowest_rank(void) {
    begin(6);
    cut_off(6, 3);
    CHECK(shrink_all());
    for (int r = 0; r < 3; r++) check_members(r, (bool[]){false, false, false, true, true, true});
    for (int r = 3; r < 6; r++) CHECK_EQ(GW_PEER_LOST, outcome[r].error.status);
    end();
}

static void without_the_rule_both_sides_go_on(void) {
    begin_by(5, true);
    cut_off(5, 2);
    CHECK(shrink_all());
    for (int r = 0; r < 2; r++) check_members(r, (bool[]){false, false, true, true, true});
    for (int r = 2; r < 5; r++) check_members(r, (bool[]){true, true, false, false, false});
    end();
}

/* {0, 1, 2} goes on without {3, 4}; then 0 and 1 die. 2 alone must not go on: 3 and 4 may, who are more. */
static void who_was_left_behind_is_still_counted(void) {
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
    net.side[0] = net.side[1] = 1; /* what proves the deaths to 3 and 4 */
    CHECK(shrink((bool[]){false, false, false, true, true}));
    for (int r = 3; r < 5; r++) check_members(r, (bool[]){true, true, true, false, false});
    end();
}

/* One that was thought lost, and answers, goes on with the others. */
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

static void an_abort_ends_shrinking_everywhere(void) {
    begin(4);
    lose(3);
    for (int r = 0; r < 2; r++) gw_control_shrink(net.rank[r], net.now + DEADLINE, net.now);
    deliver_all();
    gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "no, all of it"}, told = {0};
    gw_control_abort(net.rank[1], &error);
    deliver_all();
    gw_control_shrink(net.rank[2], net.now + DEADLINE, net.now);
    for (int r = 0; r < 3; r++) {
        bool member[WORLD_MAX];
        CHECK(gw_control_shrunk(net.rank[r], member, &told));
        CHECK_EQ(GW_ABORTED, told.status);
        CHECK_STR("no, all of it", told.text);
    }
    end();
}

TEST_MAIN(CASE(the_graph_stays_connected_without_any_rank), CASE(neighbours_are_mutual), CASE(a_death_is_told_to_all),
          CASE(an_abort_reaches_all_in_the_same_words), CASE(the_first_cause_is_kept), CASE(leaving_is_not_dying),
          CASE(silence_is_reported_at_the_deadline), CASE(own_sleep_is_forgiven), CASE(the_end_of_the_chain_is_blamed),
          CASE(a_circle_does_not_hide_the_one_outside), CASE(who_goes_on_is_blamed_no_longer), CASE(survivors_agree),
          CASE(one_alone_goes_on), CASE(who_does_not_ask_is_left_behind),
          CASE(who_comes_when_all_have_left_stays_behind), CASE(two_aborts_do_not_end_shrinking),
          CASE(a_rank_dies_at_each_message), CASE(the_majority_goes_on), CASE(half_goes_on_with_the_lowest_rank),
          CASE(without_the_rule_both_sides_go_on), CASE(who_was_left_behind_is_still_counted),
          CASE(a_lost_rank_that_answers_is_taken_back), CASE(an_abort_ends_shrinking_everywhere))
