/* test_async_optimisers.c - asp, ssp and backup with every optimiser: what the workers' updates of a step add up to is
 * the step of bsp, decay included; layers have the norms of whole layers; ssp:staleness=0 has the bits of bsp. In
 * virtual time, at random speeds, over servers beside workers and in processes of their own. */
#include "optim/learning_rate.h"
#include "optim/optimiser.h"
#include "sim/ps_sim.h"
#include "strategy/combine.h"
#include "train/train_test.h"

#define WORKERS 4
#define EARLY 20
#define STEPS 120
#define KINDS 3
#define TENSORS (2 * KINDS) /* of each kind one with a gradient, and one that only decays */
#define LARGE 20000         /* elements: cut between servers, if it may be */
#define SMALL 300
#define FLOATS_MAX (LARGE + (TENSORS - 1) * SMALL)

/* A rate, and a decay that users have with it. */
typedef struct trained {
    const char *name;
    const gw_optimiser_kind *kind;
    double rate, momentum, decay;
} trained;

typedef struct group {
    trained kinds[KINDS];
    bool whole; /* their update needs whole tensors */
} group;

/* The rates are the trainer's defaults. */
static const group groups[] = {
    {.kinds = {{"sgd", &gw_sgd, 0.05, 0, 1e-2},
               {"momentum", &gw_sgd, 0.05, 0.9, 5e-4},
               {"adam", &gw_adam, 1e-3, 0, 1e-4}}},
    {.kinds = {{"lars", &gw_lars, 0.05, 0.9, 1e-4},
               {"lamb", &gw_lamb, 5e-3, 0, 1e-2},
               {"adamw", &gw_adamw, 1e-3, 0, 1e-2}},
     .whole = true},
};

static const group *now; /* the group that is trained */
static bool cut_seen;    /* an update had a part of a tensor */
static gw_parameter table[TENSORS];
static float weights[FLOATS_MAX], common[FLOATS_MAX];

static const trained *kind_of(int tensor) { return &now->kinds[tensor / 2]; }
static bool moves(int tensor) { return tensor % 2 == 0; }

static void lay_out(void) {
    gw_rng rng = gw_rng_make(5, 0);
    for (size_t t = 0, at = 0; t < TENSORS; at += table[t++].count)
        table[t] = (gw_parameter){.name = "tensor", .offset = at, .count = t ? SMALL : LARGE, .decay = true};
    for (int i = 0; i < FLOATS_MAX; i++) {
        weights[i] = uniform(&rng, -1, 1);
        common[i] = uniform(&rng, 0.5f, 1.5f) * (gw_rng_below(&rng, 2) ? 1 : -1);
    }
}

/* A common part and, for each worker and step, noise of a tenth of it. */
static void gradient(int member, int step, int tensor, float *to) {
    gw_rng rng = gw_rng_make((uint64_t)(1000 * member + step), (uint64_t)tensor);
    const float *part = common + table[tensor].offset;
    for (size_t i = 0; i < table[tensor].count; i++)
        to[i] = moves(tensor) ? part[i] * (1 + uniform(&rng, -0.1732f, 0.1732f)) : 0;
}

/* Of one process: an optimiser of each kind. */
typedef struct optimisers {
    gw_optimiser *of[KINDS];
} optimisers;

static void update(void *ctx, const gw_reducer_update *u) {
    optimisers *all = ctx;
    gw_update how = {.step = u->updates, .rate = u->rate_scale * kind_of(u->tensor)->rate, .scale = u->scale};
    cut_seen |= u->count != table[u->tensor].count;
    gw_optimiser_update(all->of[u->tensor / 2], u->tensor, u->first, u->count, u->weights,
                        (float *)(uintptr_t)u->gradient, &how);
}

static void open_optimisers(optimisers *all) {
    gw_error error = {0};
    for (int k = 0; k < KINDS; k++) {
        const trained *t = &now->kinds[k];
        gw_optimiser_settings settings = t->kind->defaults;
        settings.momentum = t->momentum;
        settings.decay = t->decay;
        CHECK_EQ(GW_OK, gw_optimiser_create(t->kind, &settings, table, TENSORS, &all->of[k], &error));
    }
}

typedef struct layout {
    const char *arch;
    int apart;
} layout;

static const layout layouts[] = {
    {"ps:servers=1", 0}, {"ps:servers=3,chunk=64K schedule=p3:slice=16K", 0}, {"ps:servers=3", 3}};

/* Trains the group, and leaves the weights of the servers. */
static void train(const layout *where, const char *sync, int steps, float *ended) {
    gw_ps_sim_training training = {.weights = weights, .gradient = gradient, .update = update, .ended = ended,
                                   .whole_tensors = now->whole};
    gw_ps_sim job = {.seed = 9, .workers = WORKERS, .apart = where->apart, .steps = steps, .tensors = TENSORS,
                     .latency = 20000, .jitter = 50000, .bytes_per_second = 1e9, .meets = true, .training = &training};
    gw_ps_sim_outcome outcome = {0};
    gw_error error = {.rank = -1};
    optimisers all[WORKERS] = {0};
    char line[128];
    for (int w = 0; w < WORKERS; w++) {
        job.pace[w] = GW_MILLISECOND * (strstr(sync, "backup") && w == WORKERS - 1 ? 20 : 1);
        open_optimisers(&all[w]);
        training.ctx[w] = &all[w];
    }
    for (int t = 0; t < TENSORS; t++) job.count[t] = table[t].count;
    snprintf(line, sizeof line, "arch=%s sync=%s transport=sim", where->arch, sync);
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &job.strategy, &error));
    CHECK_EQ(GW_OK, gw_strategy_apply_servers(&job.strategy, where->apart, &error));
    CHECK_EQ(GW_OK, gw_ps_sim_run(&job, &outcome, &error));
    CHECK_STR("", outcome.text);
    if (error.status) printf("    %s: %s\n", line, error.text);
    for (int w = 0; w < WORKERS; w++)
        for (int k = 0; k < KINDS; k++) gw_optimiser_destroy(all[w].of[k]);
}

/* The weights after so many steps. */
typedef struct course {
    float early[FLOATS_MAX], late[FLOATS_MAX];
} course;

static void run_course(const layout *where, const char *sync, course *c) {
    train(where, sync, EARLY, c->early);
    train(where, sync, STEPS, c->late);
}

/* Norm of a - b over a tensor, relative to that of b. */
static double apart_by(int tensor, double (*a)(const course *, size_t), const course *c, const course *reference) {
    double difference = 0, all = 0;
    for (size_t i = table[tensor].offset; i < table[tensor].offset + table[tensor].count; i++) {
        double expected = a(reference, i), got = a(c, i);
        difference += (got - expected) * (got - expected);
        all += expected * expected;
    }
    return sqrt(difference / all);
}

static double displacement(const course *c, size_t i) { return (double)c->late[i] - c->early[i]; }
static double at_the_end(const course *c, size_t i) { return c->late[i]; }

/* A tensor without gradient decays alike, and one with a gradient moves as far. */
static void compare(const char *what, const course *c, const course *bsp) {
    for (int t = 0; t < TENSORS; t++) {
        double moved = apart_by(t, displacement, c, bsp), rest = apart_by(t, at_the_end, c, bsp);
        bool good = moved < 0.1 && (moves(t) || rest < 0.01);
        CHECK(good);
        if (!good || getenv("SHOW_COURSES"))
            printf("    %s, %s, %s: displacement differs by %.2f %%, weights by %.3f %%\n", what, kind_of(t)->name,
                   moves(t) ? "with a gradient" : "decay only", 100 * moved, 100 * rest);
    }
}

static void follows_bsp(const char *sync) {
    static course bsp, other;
    char what[96];
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        now = &groups[g];
        lay_out();
        run_course(&layouts[0], "bsp", &bsp);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            cut_seen = false;
            run_course(&layouts[i], sync, &other);
            snprintf(what, sizeof what, "%s over %s%s", sync, layouts[i].arch, layouts[i].apart ? " apart" : "");
            compare(what, &other, &bsp);
            CHECK_EQ(!now->whole && i > 0, cut_seen);
        }
    }
}

static void asp_moves_as_far_as_bsp_with_every_optimiser(void) { follows_bsp("asp"); }
static void ssp_moves_as_far_as_bsp_with_every_optimiser(void) { follows_bsp("ssp:staleness=3"); }
static void backup_moves_as_far_as_bsp_with_every_optimiser(void) { follows_bsp("backup:n=1"); }

static void ssp_without_staleness_has_the_bits_of_bsp(void) {
    static float bsp[FLOATS_MAX], ssp[FLOATS_MAX];
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        now = &groups[g];
        lay_out();
        train(&layouts[0], "bsp", EARLY, bsp);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            train(&layouts[i], "ssp:staleness=0", EARLY, ssp);
            CHECK(memcmp(bsp, ssp, sizeof bsp) == 0);
        }
    }
}

TEST_MAIN(CASE(asp_moves_as_far_as_bsp_with_every_optimiser), CASE(ssp_moves_as_far_as_bsp_with_every_optimiser),
          CASE(backup_moves_as_far_as_bsp_with_every_optimiser), CASE(ssp_without_staleness_has_the_bits_of_bsp))
