/* test_control.c - the control plane alone, N of them joined by queues: the graph stays connected, news reaches all,
 * the right rank is blamed, survivors agree. */
#include "test.h"

#include "engine/control.h"

#define WORLD_MAX 64
#define DEADLINE (10 * GW_SECOND)
#define QUEUE 200000

typedef struct parcel {
    int from, to;
    gw_control_message message;
} parcel;

/* Messages are delivered in the order sent. */
static struct {
    int world;
    gw_control *rank[WORLD_MAX];
    bool dead[WORLD_MAX];
    gw_error told[WORLD_MAX];
    char slow[WORLD_MAX][700];
    int gone[WORLD_MAX]; /* bit 0: somebody was lost, bit 1: somebody left */
    parcel *queue;
    int first, used;
    gw_time now;
    uint64_t delivered;
} net;

static void on_send(void *ctx, int neighbour, const gw_control_message *message) {
    int from = (int)(intptr_t)ctx;
    if (net.dead[from] || net.used == QUEUE) return;
    net.queue[net.used++] = (parcel){.from = from, .to = neighbour, .message = *message};
}

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

static void begin(int world) {
    parcel *queue = net.queue ? net.queue : malloc(QUEUE * sizeof *queue);
    memset(&net, 0, sizeof net);
    net.queue = queue;
    net.world = world;
    for (int r = 0; r < world; r++) {
        gw_control_events events = {.ctx = (void *)(intptr_t)r, .send = on_send, .aborted = on_aborted, .gone = on_gone,
                                    .slow = on_slow, .host_name = host_name};
        CHECK_EQ(GW_OK, gw_control_open(&net.rank[r], r, world, DEADLINE, &events, 0, NULL));
    }
}

static void end(void) {
    for (int r = 0; r < net.world; r++) gw_control_close(net.rank[r]);
}

static void deliver_all(void) {
    for (; net.first < net.used; net.first++) {
        const parcel *p = &net.queue[net.first];
        if (net.dead[p->to]) continue;
        net.delivered++;
        gw_control_receive(net.rank[p->to], p->from, &p->message, net.now);
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
    int neighbours[GW_CONTROL_LINKS_MAX];
    int count = gw_control_neighbours(rank, net.world, neighbours);
    net.dead[rank] = true;
    for (int i = 0; i < count; i++)
        if (!net.dead[neighbours[i]]) gw_control_link_lost(net.rank[neighbours[i]], rank, "connection reset", net.now);
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

static void check_members(int rank, const bool *dead) {
    bool in[WORLD_MAX];
    CHECK(gw_control_shrunk(net.rank[rank], in));
    for (int r = 0; r < net.world; r++) CHECK_EQ(!dead[r], in[r]);
}

static void survivors_agree(void) {
    for (int world = 2; world <= 33; world += world < 9 ? 1 : 8)
        for (int victim = 0; victim < world; victim += 1 + world / 4) {
            begin(world);
            lose(victim);
            for (int r = 0; r < world; r++)
                if (r != victim) gw_control_shrink(net.rank[r], net.now);
            deliver_all();
            for (int r = 0; r < world; r++) {
                if (r == victim) continue;
                check_members(r, net.dead);
                CHECK_EQ(1, gw_control_generation(net.rank[r]));
                CHECK_EQ(GW_OK, gw_control_error(net.rank[r])->status);
            }
            end();
        }
}

static void who_does_not_ask_is_left_behind_at_the_deadline(void) {
    begin(5);
    lose(4);
    for (int r = 0; r < 3; r++) gw_control_shrink(net.rank[r], net.now); /* 3 does not */
    deliver_all();
    bool in[WORLD_MAX];
    CHECK(!gw_control_shrunk(net.rank[0], in));
    for (int i = 0; i < 12; i++) pass(GW_SECOND);
    for (int r = 0; r < 3; r++) check_members(r, (bool[]){false, false, false, true, true});
    end();
}

/* Rank 0 decides and dies; one has heard of it, the others have not: in the end all agree, or all know. */
static void the_decider_dies_in_mid_sentence(void) {
    for (int heard = 1; heard < 4; heard++) {
        begin(4);
        gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "enough"};
        gw_control_abort(net.rank[1], &error);
        deliver_all();
        for (int r = 3; r >= 0; r--) {
            gw_control_shrink(net.rank[r], net.now);
            if (r) deliver_all();
        }
        for (int i = net.first; i < net.used; i++) /* of what rank 0 says now, only one hears */
            if (net.queue[i].from == 0 && net.queue[i].message.kind == GW_CONTROL_MEMBERS && net.queue[i].to != heard)
                net.queue[i].to = 0;
        net.dead[0] = true;
        for (int r = 1; r < 4; r++) gw_control_link_lost(net.rank[r], 0, "connection reset", net.now);
        deliver_all();
        for (int r = 1; r < 4; r++) {
            CHECK_EQ(1, gw_control_generation(net.rank[r]));
            CHECK_EQ(gw_control_error(net.rank[1])->status, gw_control_error(net.rank[r])->status);
        }
        for (int r = 1; r < 4; r++)
            if (gw_control_error(net.rank[r])->status) gw_control_shrink(net.rank[r], net.now);
        deliver_all();
        for (int r = 1; r < 4; r++) {
            check_members(r, (bool[]){true, false, false, false});
            CHECK_EQ(GW_OK, gw_control_error(net.rank[r])->status);
        }
        end();
    }
}

/* Rank 2 knows of a death when it hears that the dead goes on. */
static void a_survivor_that_died_meanwhile_is_noticed(void) {
    begin(4);
    gw_error error = {.status = GW_ABORTED, .rank = 1, .text = "enough"};
    gw_control_abort(net.rank[1], &error);
    deliver_all();
    for (int r = 3; r >= 0; r--) {
        gw_control_shrink(net.rank[r], net.now);
        if (r) deliver_all();
    }
    net.dead[3] = true;
    gw_control_link_lost(net.rank[2], 3, "connection reset", net.now); /* before what rank 0 decided arrives */
    deliver_all();
    CHECK_EQ(1, gw_control_generation(net.rank[2]));
    CHECK_EQ(GW_PEER_LOST, gw_control_error(net.rank[2])->status);
    CHECK_EQ(3, gw_control_error(net.rank[2])->rank);
    end();
}

TEST_MAIN(CASE(the_graph_stays_connected_without_any_rank), CASE(neighbours_are_mutual), CASE(a_death_is_told_to_all),
          CASE(an_abort_reaches_all_in_the_same_words), CASE(the_first_cause_is_kept), CASE(leaving_is_not_dying),
          CASE(silence_is_reported_at_the_deadline), CASE(own_sleep_is_forgiven), CASE(the_end_of_the_chain_is_blamed),
          CASE(a_circle_does_not_hide_the_one_outside), CASE(who_goes_on_is_blamed_no_longer), CASE(survivors_agree),
          CASE(who_does_not_ask_is_left_behind_at_the_deadline), CASE(the_decider_dies_in_mid_sentence),
          CASE(a_survivor_that_died_meanwhile_is_noticed))
