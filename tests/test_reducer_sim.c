/* test_reducer_sim.c - training steps in virtual time: guarantees of schedules and synchronizations, over random
 * models, worlds, links, codecs and orders of events. STEP_SEEDS sets how many seeds each policy gets (default 40),
 * STEP_FAULT_SEEDS how many with a fault (default 20), STEP_FIRST the first of these. SHOW_STRATEGIES=1 prints what
 * each seed draws. */
#include "test.h"

#include "schedule/schedule.h"
#include "sim/reducer_sim.h"

static void run_seeds(uint64_t first, uint64_t seeds, const char *policy) {
    uint64_t events = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        gw_reducer_sim training;
        gw_reducer_sim_outcome outcome = {0};
        gw_error error = {.rank = -1};
        char line[GW_STRATEGY_PRINT_BYTES];
        CHECK_EQ(GW_OK, gw_reducer_sim_make(&training, seed, policy, &error));
        gw_strategy_print(&training.strategy, line, sizeof line);
        if (getenv("SHOW_STRATEGIES")) printf("    %s\n", line);
        gw_status status = gw_reducer_sim_run(&training, &outcome, &error);
        events += outcome.events;
        if (status == GW_OK && outcome.ok) continue;
        test_failures++;
        printf("    seed %" PRIu64 ", %d ranks, %d layers, %s:\n    %s\n", seed, training.world, training.layers, line,
               status ? error.text : outcome.text);
        if (test_failures > 5) return;
    }
    printf("    %s: %" PRIu64 " seeds, %" PRIu64 " events\n", policy, seeds, events);
}

static void every_policy_keeps_its_promises(void) {
    const char *seeds = getenv("STEP_SEEDS");
    for (int i = 0; gw_schedule_techniques[i]; i++)
        run_seeds(1, seeds ? strtoull(seeds, NULL, 10) : 40, gw_schedule_techniques[i]->name);
}

/* So many ranks that some pass the start order on (announcement_tree.h). */
static void enlarge(gw_reducer_sim *t, uint64_t seed) {
    int per_host = 1 + (int)(seed % 4);
    t->world = 10 + (int)(seed % (GW_REDUCER_SIM_WORLD_MAX - 9));
    for (int r = 0; r < t->world; r++) t->host_of[r] = r / per_host;
}

/* Ranks are killed, cut off or abort at any moment of a run. */
static bool breaks_well(uint64_t seed, const char *policy, bool large, int *survivors, uint64_t *events) {
    gw_reducer_sim training;
    gw_reducer_sim_outcome outcome = {0};
    gw_error error = {.rank = -1};
    char line[GW_STRATEGY_PRINT_BYTES];
    CHECK_EQ(GW_OK, gw_reducer_sim_make(&training, seed, policy, &error));
    if (large) enlarge(&training, seed);
    gw_status status = gw_reducer_sim_run(&training, &outcome, &error);
    gw_reducer_sim_break(&training, seed, outcome.began[training.steps]);
    if (!status && training.world > 1) status = gw_reducer_sim_run(&training, &outcome, &error);
    *survivors += outcome.survivors;
    *events += outcome.events;
    if (status == GW_OK && outcome.ok) return true;
    test_failures++;
    gw_strategy_print(&training.strategy, line, sizeof line);
    printf("    seed %" PRIu64 ", %d ranks, %d layers, %s of rank %d at %.3f ms, %s:\n    %s\n", seed, training.world,
           training.layers, gw_sim_fault_name(training.fault), training.victim, (double)training.fault_at / 1e6, line,
           status ? error.text : outcome.text);
    return false;
}

static void losses_leave_no_wrong_value(void) {
    const char *text = getenv("STEP_FAULT_SEEDS"), *from = getenv("STEP_FIRST");
    uint64_t seeds = text ? strtoull(text, NULL, 10) : 20, first = from ? strtoull(from, NULL, 10) : 1, events = 0;
    int survivors = 0, failed = 0;
    for (int i = 0; gw_schedule_techniques[i] && failed < 6; i++)
        for (uint64_t seed = first; seed < first + seeds && failed < 6; seed++)
            failed += !breaks_well(seed, gw_schedule_techniques[i]->name, false, &survivors, &events);
    printf("    %" PRIu64 " seeds for each policy, %d ranks went on, %" PRIu64 " events\n", seeds, survivors, events);
    CHECK(survivors > 0);
}

static void losses_in_the_tree_of_announcements(void) {
    const char *text = getenv("STEP_FAULT_SEEDS");
    uint64_t seeds = text ? strtoull(text, NULL, 10) / 5 : 4, events = 0;
    int survivors = 0, failed = 0;
    for (int i = 0; gw_schedule_techniques[i]; i++)
        for (uint64_t seed = 1; gw_policy_of(gw_schedule_techniques[i])->reorders && seed <= seeds && failed < 6;
             seed++)
            failed += !breaks_well(seed, gw_schedule_techniques[i]->name, true, &survivors, &events);
    printf("    %" PRIu64 " seeds, %d ranks went on, %" PRIu64 " events\n", seeds, survivors, events);
    CHECK(survivors > 0);
}

TEST_MAIN(CASE(every_policy_keeps_its_promises), CASE(losses_leave_no_wrong_value),
          CASE(losses_in_the_tree_of_announcements))
