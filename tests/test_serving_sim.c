/* test_serving_sim.c - workers and parameter servers in virtual time, of random speeds and over random links, where
 * processes are killed at any moment: what the synchronies promise, for the whole production stepper. SERVING_SEEDS
 * sets how many seeds each synchrony gets (default 40; make test-step has 1000), SERVING_FIRST the first. */
#include "test.h"

#include "sim/serving.h"

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : otherwise;
}

static void run_seeds(const char *sync) {
    uint64_t first = number_of("SERVING_FIRST", 1), seeds = number_of("SERVING_SEEDS", 40), events = 0, pushes = 0;
    int killed = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        gw_serving serving;
        gw_serving_outcome outcome = {0};
        gw_error error = {.rank = -1};
        gw_status status = gw_serving_make(&serving, seed, sync, &error);
        if (!status) status = gw_serving_run(&serving, &outcome, &error);
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
    if (seeds >= 40 && strcmp(sync, "delayed") != 0 && strcmp(sync, "periodic") != 0) CHECK(killed > (int)seeds / 4);
}

static void bsp(void) { run_seeds("bsp"); }
static void backup(void) { run_seeds("backup"); }
static void ssp(void) { run_seeds("ssp"); }
static void asp(void) { run_seeds("asp"); }
static void delayed(void) { run_seeds("delayed"); }
static void periodic(void) { run_seeds("periodic"); }

TEST_MAIN(CASE(bsp), CASE(backup), CASE(ssp), CASE(asp), CASE(delayed), CASE(periodic))
