/* bench_step.h - `gradwire bench step`: compares strategies on the replay of a recorded model's training step. */
#ifndef GW_CLI_BENCH_BENCH_STEP_H
#define GW_CLI_BENCH_BENCH_STEP_H

#include "lab/namespace_hosts.h"
#include "strategy/strategy.h"

#define GW_REPLAYS_MAX 24

/* One strategy that is compared. */
typedef struct gw_replay_entry {
    char label[100]; /* as given: "p3:slice=100K" */
    char line[GW_STRATEGY_PRINT_BYTES];
    bool updates;  /* its synchronization works on weights */
    bool checked;  /* its result is exact, so it is compared with the mean */
    bool delayed;  /* the bound of synchronous steps does not apply */
    bool tuned;    /* the tuner finds its sizes before it is timed */
    bool chosen;   /* it is chosen before it is timed (strategy=auto) */
    bool measures; /* its schedule makes new buckets after measuring the first steps */
} gw_replay_entry;

typedef struct gw_replay_settings {
    const char *model, *schedules;
    const char *strategy, *arch, *sync, *compress, *transport; /* NULL: not given */
    const char *scale_text, *shrink_text, *ratio_text, *lab_text, *tune;
    double scale, shrink, ratio; /* ratio 0: scale is used */
    int64_t ranks, steps;
    bool json;
    gw_lab_options lab; /* hosts 0: none */
    gw_replay_entry entries[GW_REPLAYS_MAX];
    int count;
} gw_replay_settings;

/* argv[0] is "step"; returns the exit code. */
int gw_cmd_bench_step(int argc, char **argv);
/* One rank of the job. Returns the exit code. */
int gw_bench_step_rank(const gw_replay_settings *settings);

#endif
