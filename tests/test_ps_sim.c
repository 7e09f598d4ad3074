/* test_ps_sim.c - workers and parameter servers in virtual time, at random speeds and over random links; processes are
 * killed at any moment. Checks the guarantees of the synchronizations on the whole production step engine.
 * SERVING_SEEDS sets how many seeds each synchronization gets (default 40; make test-step has 1000), SERVING_FIRST the
 * first; SHOW_STRATEGIES=1 prints what each draws. */
#include "test.h"

#include "sim/ps_sim.h"
#include "sync/sync.h"

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : otherwise;
}

static void run_seeds(const gw_technique *technique) {
    const char *sync = technique->name;
    uint64_t first = number_of("SERVING_FIRST", 1), seeds = number_of("SERVING_SEEDS", 40), events = 0, pushes = 0;
    int killed = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        gw_ps_sim serving;
        gw_ps_sim_outcome outcome = {0};
        gw_error error = {.rank = -1};
        gw_status status = gw_ps_sim_make(&serving, seed, sync, &error);
        char line[GW_STRATEGY_PRINT_BYTES];
        if (!status) gw_strategy_print(&serving.strategy, line, sizeof line);
        if (!status && getenv("SHOW_STRATEGIES")) printf("    %s\n", line);
        if (!status) status = gw_ps_sim_run(&serving, &outcome, &error);
        events += outcome.events;
        pushes += outcome.pushes;
        killed += outcome.killed;
        if (status == GW_OK && outcome.ok) continue;
        test_failures++;
        printf("    %s, seed %" PRIu64 ": %s\n", sync, seed, status ? error.text : outcome.text);
        if (test_failures > 5) return;
    }
    printf("    %s: %" PRIu64 " seeds, %" PRIu64 " events, %" PRIu64 " steps, %d killed\n", sync, seeds, events, pushes,
           killed);
    if (seeds >= 40 && !gw_sync_of(technique)->keeps_anchor) CHECK(killed > (int)seeds / 4);
}

static void every_synchronization_keeps_its_promises(void) {
    for (int i = 0; gw_sync_techniques[i]; i++) run_seeds(gw_sync_techniques[i]);
}

TEST_MAIN(CASE(every_synchronization_keeps_its_promises))
