/* cmd_sim.c - gradwire sim: runs ranks on a virtual clock with faults; a seed determines everything. One seed in
 * detail, or many seeds. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "cli/common/args.h"
#include "cli/common/json.h"
#include "sim/fault_sim.h"
#include "sim/fault_sim_scenario.h"

#define QUIET (2 * GW_SECOND) /* shorter runs show no progress */
#define SHOW_EVERY (GW_SECOND / 2)

static void say_replay(uint64_t seed, int world) {
    printf("replay: gradwire sim --seed %" PRIu64, seed);
    if (world) printf(" --world %d", world);
    putchar('\n');
}

/* ---- one seed ---- */

static void print_call(int number, const gw_sim_call *call) {
    printf("  #%-2d %s of %zu x %s", number, gw_collective_name(call->collective), call->count,
           gw_dtype_name(call->dtype));
    if (gw_sim_reduces(call->collective)) printf(", %s", gw_redop_name(call->redop));
    if (call->collective == GW_COLL_SEND) printf(", from rank %d to rank %d", call->root, call->peer);
    if (call->tagged)
        printf(", tag %d%s%s", call->tag, call->any_source ? " of any source" : "",
               call->reversed ? ", received in reverse" : "");
    if (call->collective != GW_COLL_SEND && call->root >= 0) printf(", root %d", call->root);
    printf(", by %s%s%s\n", call->builder->technique.name, call->in_place ? ", in place" : "",
           call->uneven ? ", uneven" : "");
}

static void print_fault(const gw_sim_scenario *s) {
    printf("fault: %s", gw_sim_fault_name(s->fault));
    if (s->fault != GW_SIM_NONE) printf(" of rank %d", s->victim);
    if (s->fault == GW_SIM_KILL_TWO) printf(" and rank %d", s->second_victim);
    if (s->fault == GW_SIM_MISMATCH) printf(" in call #%d", s->mismatch_call);
    else if (s->fault != GW_SIM_NONE) printf(" at %.6f s", (double)s->fault_at / (double)GW_SECOND);
    if (gw_sim_shrinks(s)) printf("; the survivors shrink and make %d more calls", GW_SIM_CALLS_AFTER);
    putchar('\n');
}

static void print_scenario(const gw_sim_scenario *s) {
    int hosts = s->host_of[s->world - 1] + 1;
    printf("seed %" PRIu64 ": %d ranks on %d hosts\n", s->seed, s->world, hosts);
    printf("links: latency %.1f us, random delay up to %.1f us, %.0f MB/s; deadline %.0f s\n", (double)s->latency / 1e3,
           (double)s->jitter / 1e3, s->bytes_per_second / 1e6, (double)s->deadline / (double)GW_SECOND);
    printf("program: %d calls, up to %d at once\n", s->calls, s->ahead);
    for (int c = 0; c < s->calls; c++) print_call(c, &s->call[c]);
    print_fault(s);
}

static void print_outcome(const gw_fault_sim_outcome *outcome) {
    printf("outcome: %d right results, %d errors, %" PRIu64 " events, %.6f s of virtual time\n", outcome->right,
           outcome->failed, outcome->events, outcome->seconds);
    puts(outcome->ok ? "every promise held" : outcome->text);
}

static void print_outcome_json(uint64_t seed, const gw_fault_sim_outcome *outcome) {
    printf("{\"seed\": %" PRIu64 ", \"ok\": %s, \"world\": %d, \"calls\": %d, \"fault\": ", seed,
           outcome->ok ? "true" : "false", outcome->world, outcome->operations);
    gw_json_string(stdout, gw_sim_fault_name(outcome->fault));
    printf(", \"right\": %d, \"errors\": %d, \"events\": %" PRIu64 ", \"seconds\": %s, \"text\": ", outcome->right,
           outcome->failed, outcome->events, GW_JSON_FIXED(outcome->seconds, 9));
    gw_json_string(stdout, outcome->text);
    puts("}");
}

static int fail(const gw_error *error) {
    fprintf(stderr, "gradwire sim: %s\n", error->text);
    return GW_EXIT_FAILED;
}

static int run_one(uint64_t seed, int world, bool json) {
    gw_error error = {.rank = -1};
    gw_sim_scenario scenario;
    gw_fault_sim_outcome outcome;
    if (!json) {
        if (gw_sim_scenario_make(&scenario, seed, world, &error) != GW_OK) return fail(&error);
        print_scenario(&scenario);
        gw_sim_scenario_free(&scenario);
    }
    if (gw_fault_sim_run(seed, world, &outcome, &error) != GW_OK) return fail(&error);
    if (json) print_outcome_json(seed, &outcome);
    else print_outcome(&outcome);
    return outcome.ok ? 0 : GW_EXIT_FAILED;
}

/* ---- many seeds ---- */

typedef struct tally {
    uint64_t seeds, broken, first_broken;
    uint64_t right, errors;
    uint64_t by_fault[GW_SIM_FAULTS];
} tally;

static void count(tally *t, uint64_t seed, const gw_fault_sim_outcome *outcome) {
    t->seeds++;
    t->right += (uint64_t)outcome->right;
    t->errors += (uint64_t)outcome->failed;
    t->by_fault[outcome->fault]++;
    if (outcome->ok) return;
    if (!t->broken++) t->first_broken = seed;
}

static void print_tally(const tally *t) {
    printf("%" PRIu64 " seeds: %" PRIu64 " right results, %" PRIu64 " errors;", t->seeds, t->right, t->errors);
    for (int f = 0; f < GW_SIM_FAULTS; f++)
        printf("%s %s %" PRIu64, f ? "," : "", gw_sim_fault_name((gw_sim_fault)f), t->by_fault[f]);
    putchar('\n');
    if (t->broken)
        printf("a promise was broken under %" PRIu64 " of them, the first is %" PRIu64 "\n", t->broken,
               t->first_broken);
    else puts("every promise held");
}

static void print_tally_json(const tally *t) {
    printf("{\"seeds\": %" PRIu64 ", \"broken\": %" PRIu64 ", \"right\": %" PRIu64 ", \"errors\": %" PRIu64
           ", \"faults\": {",
           t->seeds, t->broken, t->right, t->errors);
    for (int f = 0; f < GW_SIM_FAULTS; f++) {
        if (f) fputs(", ", stdout);
        gw_json_string(stdout, gw_sim_fault_name((gw_sim_fault)f));
        printf(": %" PRIu64, t->by_fault[f]);
    }
    puts("}}");
}

/* Progress goes to standard error, so that the result can be piped: one live line on a terminal, else a line now and
 * then. */
static void show_progress(const tally *t, uint64_t seeds, gw_time began, gw_time *shown) {
    gw_time now = gw_clock_now();
    bool live = isatty(STDERR_FILENO);
    if (now < began + QUIET || now < *shown + (live ? SHOW_EVERY : 20 * SHOW_EVERY)) return;
    *shown = now;
    fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " broken%s", live ? "\r" : "", t->seeds, seeds,
            t->broken, live ? "" : "\n");
}

static int run_many(uint64_t first, uint64_t seeds, int world, bool json) {
    tally t = {0};
    gw_time began = gw_clock_now(), shown = 0;
    for (uint64_t seed = first; seed - first < seeds; seed++) {
        gw_fault_sim_outcome outcome;
        gw_error error = {.rank = -1};
        if (gw_fault_sim_run(seed, world, &outcome, &error) != GW_OK) return fail(&error);
        count(&t, seed, &outcome);
        if (!outcome.ok && json) print_outcome_json(seed, &outcome);
        if (!outcome.ok && !json) {
            printf("seed %" PRIu64 " (%d ranks): %s\n", seed, outcome.world, outcome.text);
            say_replay(seed, world);
        }
        show_progress(&t, seeds, began, &shown);
    }
    if (shown && isatty(STDERR_FILENO)) fputc('\n', stderr);
    if (json) print_tally_json(&t);
    else print_tally(&t);
    return t.broken ? GW_EXIT_FAILED : 0;
}

static int run(int argc, char **argv) {
    int64_t seed = -1, seeds = 0, first = -1, world = 0;
    bool json = false;
    const gw_option options[] = {
        {.name = "seed", .kind = GW_OPTION_INTEGER, .integer = &seed, .lowest = 0, .highest = INT64_MAX,
         .about = "run this seed and print its job, faults and outcome (default: 1)"},
        {.name = "seeds", .kind = GW_OPTION_INTEGER, .integer = &seeds, .lowest = 1, .highest = INT64_MAX / 2,
         .about = "run N seeds and print those that broke a promise of the library"},
        {.name = "first", .kind = GW_OPTION_INTEGER, .integer = &first, .lowest = 0, .highest = INT64_MAX / 2,
         .about = "with --seeds: the first seed (default: 1)"},
        {.name = "world", .kind = GW_OPTION_INTEGER, .integer = &world, .lowest = 1, .highest = GW_SIM_WORLD_MAX,
         .about = "number of ranks (default: chosen by the seed, 2 to 17)"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &json, .about = "print JSON"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_sim, options, &argc, argv);
    if (code >= 0) return code;
    if (seed >= 0 && seeds)
        return gw_usage_error(&gw_command_sim, "--seed runs one seed, --seeds many; give one of them");
    if (first >= 0 && !seeds) return gw_usage_error(&gw_command_sim, "--first needs --seeds");
    if (seeds) return run_many(first >= 0 ? (uint64_t)first : 1, (uint64_t)seeds, (int)world, json);
    return run_one(seed >= 0 ? (uint64_t)seed : 1, (int)world, json);
}

const gw_command gw_command_sim = {
    .name = "sim",
    .about = "simulates ranks on a virtual clock, with faults that a seed determines",
    .usage = "[--seed N | --seeds N [--first N]] [--world N] [--json]",
    .example = "gradwire sim --seed 42\ngradwire sim --seeds 1000",
    .run = run,
};
