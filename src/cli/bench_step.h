/* bench_step.h - `gradwire bench step`: strategies for a training step, compared on the replay of a recorded model. */
#ifndef GW_CLI_BENCH_STEP_H
#define GW_CLI_BENCH_STEP_H

#include "lab/lab.h"
#include "strategy/strategy.h"

#define GW_REPLAYS_MAX 24

/* One strategy that is compared. */
typedef struct gw_replay_entry {
    char label[100];  /* as it was given: "p3:slice=100K" */
    char line[GW_STRATEGY_PRINT_BYTES];
    bool updates;     /* its synchrony works on weights */
    bool checked;     /* its result is exact, and can be compared with the mean */
    bool delayed;     /* outside the bound */
    bool tuned;       /* its sizes are looked for before it is timed */
    bool measures;    /* its schedule is cut anew after its first steps */
} gw_replay_entry;

typedef struct gw_replay_settings {
    const char *profile, *schedules;
    const char *strategy, *arch, *sync, *compress, *transport; /* NULL: not given */
    const char *scale_text, *shrink_text, *ratio_text, *lab_text, *tune;
    double scale, shrink, ratio; /* ratio 0: by scale */
    int64_t ranks, steps;
    bool json;
    gw_lab_options lab;          /* hosts 0: none */
    gw_replay_entry entries[GW_REPLAYS_MAX];
    int count;
} gw_replay_settings;

/* argv[0] is "step"; gives the exit code. */
int gw_cmd_bench_step(int argc, char **argv);
/* As one rank of a job. Exit code. */
int gw_bench_step_rank(const gw_replay_settings *settings);

#endif
