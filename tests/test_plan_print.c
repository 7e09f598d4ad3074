/* test_plan_print.c - the walk visits every step of a plan once, in an order that its waits allow; steps as text. */
#include "plan/print.h"

#include "test.h"

static gw_plan_request request_of(gw_collective collective, int world, int rank) {
    static const int host_of[9] = {0, 0, 1, 0, 1, 1, 2, 2, 2};
    return (gw_plan_request){.collective = collective,
                             .topology = {.world = world, .host_of = host_of},
                             .rank = rank,
                             .count = 70,
                             .root = 0,
                             .chunk_count = 8,
                             .pipeline = 2};
}

static bool waits_hold(const gw_waits *waits, const uint64_t *seen) {
    for (int w = 0; w < GW_ACTION_WAITS; w++)
        for (uint32_t s = 0; s < waits[w].streams; s++)
            if (seen[waits[w].first + s] < waits[w].actions) return false;
    return true;
}

static void walk_plan(const gw_plan *plan) {
    uint64_t *done = calloc(plan->streams + 1, sizeof *done), *seen = calloc(plan->streams + 1, sizeof *seen), index;
    gw_plan_walk walk = {.plan = plan, .done = done};
    uint32_t stream;
    gw_action step;
    while (gw_plan_walk_next(&walk, &stream, &index, &step)) {
        CHECK(waits_hold(step.free, seen) && waits_hold(step.ready, seen));
        CHECK_EQ(seen[stream], index);
        seen[stream]++;
    }
    for (uint32_t s = 0; s < plan->streams; s++) {
        gw_stream info;
        gw_plan_stream(plan, s, &info);
        CHECK_EQ(info.actions, seen[s]);
    }
    free(seen);
    free(done);
}

static void every_step_once(void) {
    for (int b = 0; gw_plan_builders[b]; b++)
        for (int collective = 0; collective < GW_COLL_SEND; collective++)
            for (int world = 1; world <= 9; world++)
                for (int rank = 0; rank < world; rank++) {
                    gw_plan plan;
                    gw_plan_request request = request_of((gw_collective)collective, world, rank);
                    if (gw_plan_make(&plan, gw_plan_builders[b], &request, NULL) == GW_OK) walk_plan(&plan);
                }
}

static void words(void) {
    char text[GW_ACTION_TEXT];
    gw_action step = {.kind = GW_ACTION_RECV_REDUCE,
                      .src = {GW_SPACE_IN, 4, 8},
                      .dst = {GW_SPACE_OUT, 4, 8},
                      .land = {GW_SPACE_WORK, 0, 8},
                      .finish = true,
                      .ready = {{1, 1, 4}, {0}, {2, 4, 1}}};
    CHECK_STR("out[4,12) = in[4,12) op landed, finished", gw_action_where_text(&step, text));
    CHECK_STR("#1 >= 4, #2..5 >= 1", gw_waits_text(step.ready, text));
    CHECK_STR("-", gw_waits_text(step.free, text));
    CHECK_EQ(8, gw_action_count(&step));
    step.landed_first = true;
    step.finish = false;
    step.dst = step.land;
    CHECK_STR("work[0,8) = landed op in[4,12)", gw_action_where_text(&step, text));
    step = (gw_action){.kind = GW_ACTION_SHM, .task = GW_SHM_TASK_BARRIER};
    CHECK_STR("barrier", gw_action_where_text(&step, text));
    step = (gw_action){.kind = GW_ACTION_SEND, .src = {GW_SPACE_WORK, SIZE_MAX - 1, 1}};
    CHECK_STR("work[18446744073709551614,18446744073709551615)", gw_action_where_text(&step, text));
}

static void names(void) {
    for (int i = 0; i < GW_COLLECTIVES; i++) {
        gw_collective parsed = GW_COLLECTIVES;
        CHECK(gw_collective_parse(gw_collective_name((gw_collective)i), &parsed));
        CHECK_EQ(i, parsed);
    }
    gw_collective parsed;
    CHECK(!gw_collective_parse("allreduc", &parsed));
    for (int i = 0; gw_plan_builders[i]; i++) {
        CHECK(gw_plan_find(gw_plan_builders[i]->technique.name) == gw_plan_builders[i]);
        CHECK(gw_plan_by_id(gw_plan_id(gw_plan_builders[i])) == gw_plan_builders[i]);
    }
    CHECK(gw_plan_id(&gw_plan_ring) == 1 && gw_plan_id(&gw_plan_doubling) == 11); /* on the wire: they never change */
    CHECK(gw_plan_by_id(0) == NULL && gw_plan_id(&gw_plan_single_rank) == 0);
    CHECK(gw_plan_find("rign") == NULL);
}

TEST_MAIN(CASE(every_step_once), CASE(words), CASE(names))
