/* test_control.c - the control plane alone, N of them joined by queues: the graph stays connected, failure reports
 * reach all ranks, the right rank is blamed. */
#include "control_net.h"

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

/* Messages. */

static gw_status read_again(const gw_control_message *message) {
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_message again;
    gw_control_write(message, bytes);
    return gw_control_read(&again, bytes, 5, NULL);
}

static void an_error_without_a_reason_is_refused(void) {
    gw_control_message message = {.kind = GW_CONTROL_ABORT, .status = GW_ABORTED, .subject = 3, .text = "enough"};
    CHECK_EQ(GW_OK, read_again(&message));
    message.kind = GW_CONTROL_LOST;
    CHECK_EQ(GW_OK, read_again(&message));
    message.text[0] = 0;
    CHECK_EQ(GW_PROTOCOL, read_again(&message));
    message.kind = GW_CONTROL_ABORT;
    CHECK_EQ(GW_PROTOCOL, read_again(&message));
    message.kind = GW_CONTROL_LEFT;
    CHECK_EQ(GW_OK, read_again(&message));
}

/* Failure reports. */

static void a_death_reaches_all_ranks(void) {
    for (int world = 2; world <= WORLD_MAX; world += world < 9 ? 1 : 11)
        for (int victim = 0; victim < world; victim += 1 + world / 5) {
            begin(world);
            lose(victim);
            for (int r = 0; r < world; r++) {
                if (r == victim) continue;
                CHECK_EQ(GW_PEER_LOST, net.reported[r].status);
                CHECK_EQ(victim, net.reported[r].rank);
                CHECK_EQ(1, net.gone[r]);
                CHECK(gw_control_lost(net.rank[r], victim));
            }
            end();
        }
}

static void an_abort_reaches_all_ranks_with_its_text(void) {
    for (int world = 1; world <= WORLD_MAX; world += 9) {
        begin(world);
        gw_error error = {.status = GW_ABORTED, .rank = world / 2, .text = "the loss is not a number"};
        gw_control_abort(net.rank[world / 2], &error);
        deliver_all();
        for (int r = 0; r < world; r++) {
            CHECK_EQ(GW_ABORTED, net.reported[r].status);
            CHECK_STR("the loss is not a number", net.reported[r].text);
        }
        CHECK(net.delivered <= (uint64_t)world * 13); /* each rank forwards it once */
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
        CHECK_EQ(GW_OK, net.reported[r].status);
        CHECK_EQ(2, net.gone[r]);
        CHECK(gw_control_left(net.rank[r], 2));
    }
    end();
}

static void silence_is_reported_at_the_deadline(void) {
    begin(5);
    net.dead[3] = true; /* it sends nothing, and no link breaks */
    for (int i = 0; i < 9; i++) pass(GW_SECOND);
    for (int r = 0; r < 5; r++) CHECK_EQ(GW_OK, net.reported[r].status);
    for (int i = 0; i < 3; i++) pass(GW_SECOND);
    for (int r = 0; r < 5; r++)
        if (r != 3) CHECK(net.reported[r].status == GW_PEER_LOST && net.reported[r].rank == 3);
    end();
}

/* The time in which this process itself did not run is no peer's fault. */
static void time_asleep_does_not_count_against_peers(void) {
    begin(2);
    for (int i = 0; i < 3; i++) pass(GW_SECOND);
    net.now += 3 * DEADLINE;
    gw_control_poll(net.rank[0], net.now);
    CHECK_EQ(GW_OK, net.reported[0].status);
    end();
}

/* Blame. */

static void wait_for(int rank, int awaited) {
    gw_control_waiting(net.rank[rank], &awaited, 1, "a message", DEADLINE, net.now);
}

static void the_end_of_the_chain_is_blamed(void) {
    begin(6);
    pass(1);
    for (int r = 0; r < 5; r++) wait_for(r, r + 1); /* 0 for 1 for 2 ... for 5, which computes */
    deliver_all();
    pass(DEADLINE / 24);
    pass(DEADLINE / 24 + 1);
    CHECK(strstr(net.slow[0], "rank 5 on here is slow") != NULL);
    for (int r = 1; r < 6; r++) CHECK_STR("", net.slow[r]);
    gw_control_overdue(net.rank[2], (int[]){3}, 1, "a message", DEADLINE, net.now);
    deliver_all();
    for (int r = 0; r < 6; r++) CHECK(net.reported[r].status == GW_TIMEOUT && net.reported[r].rank == 5);
    end();
}

/* 0 waits for 1 and 3, 1 for 2, 2 for 0: a cycle, except for 3, which is the slow rank. */
static void a_cycle_of_waits_does_not_hide_the_slow_rank(void) {
    begin(5);
    pass(1);
    gw_control_waiting(net.rank[0], (int[]){1, 3}, 2, "messages", DEADLINE, net.now);
    wait_for(1, 2);
    wait_for(2, 0);
    deliver_all();
    pass(DEADLINE / 24);
    gw_control_overdue(net.rank[1], (int[]){2}, 1, "a message", DEADLINE, net.now);
    deliver_all();
    for (int r = 0; r < 5; r++) CHECK_EQ(3, net.reported[r].rank);
    end();
}

static void a_rank_that_continues_is_not_blamed(void) {
    begin(4);
    pass(1);
    wait_for(0, 1);
    wait_for(1, 2);
    deliver_all();
    gw_control_waiting(net.rank[1], NULL, 0, "", DEADLINE, net.now);
    deliver_all();
    gw_control_overdue(net.rank[0], (int[]){1}, 1, "a message", DEADLINE, net.now);
    CHECK_EQ(1, net.reported[0].rank);
    end();
}

TEST_MAIN(CASE(the_graph_stays_connected_without_any_rank), CASE(neighbours_are_mutual),
          CASE(an_error_without_a_reason_is_refused), CASE(a_death_reaches_all_ranks),
          CASE(an_abort_reaches_all_ranks_with_its_text), CASE(the_first_cause_is_kept), CASE(leaving_is_not_dying),
          CASE(silence_is_reported_at_the_deadline), CASE(time_asleep_does_not_count_against_peers),
          CASE(the_end_of_the_chain_is_blamed), CASE(a_cycle_of_waits_does_not_hide_the_slow_rank),
          CASE(a_rank_that_continues_is_not_blamed))
