/* test_clip.c - clipping by the norm of all gradients, under every synchronization, over the architectures, with and
 * without a codec, in simulated time, against the same steps in one process; and while workers are lost. */
#include "test.h"

#include <math.h>

#include "base/clip.h"
#include "sim/ps_sim.h"
#include "sim/reducer_sim.h"
#include "small_job.h"
#include "strategy/combine.h"

enum { WORLD = 4, LAYERS = 3, STEPS = 8, STEPS_PUSHED = 4, TOTAL = 20000 + 40 + 1500 };

#define LIMIT 20.0
#define RATE ((double)GW_REDUCER_SIM_RATE)

static const size_t counts[LAYERS] = {20000, 40, 1500}, begins[LAYERS] = {0, 20000, 20040};

typedef enum kind { BSP, PERIODIC, DELAYED, PULLED } kind;

/* What the reference knows of a synchronization. */
typedef struct sync_case {
    const char *text;
    kind kind;
    int from, every;                      /* from: the first step that is local; every: as in periodic */
    double outer, rate, lambda, momentum; /* of the outer step, or of the local optimiser */
    bool alike;                           /* all ranks have the same gradients: any of them may be left out */
} sync_case;

static const sync_case syncs[] = {
    {.text = "bsp", .kind = BSP, .from = STEPS},
    {.text = "periodic:every=2,from=2", .kind = PERIODIC, .from = 2, .every = 2},
    {.text = "periodic:every=4,outer=0.7", .kind = PERIODIC, .every = 4, .outer = 0.7, .momentum = 0.9},
    {.text = "delayed:warmup=2,rate=0.5", .kind = DELAYED, .from = 2, .rate = 0.5},
    {.text = "delayed:warmup=0,local=momentum,momentum=0.7", .kind = DELAYED, .rate = 1, .momentum = 0.7},
    {.text = "delayed:warmup=1,local=dcasgd,lambda=0.3", .kind = DELAYED, .from = 1, .rate = 1, .lambda = 0.3},
    {.text = "asp", .kind = PULLED},
    {.text = "ssp:staleness=1", .kind = PULLED},
    {.text = "backup:n=1", .kind = PULLED, .alike = true}};

static const sync_case *now;
static int absence;

/* Gradients. Every second step has ones that are far longer than the limit, the others are shorter. Three of four
 * elements are zero, so that topk:ratio=0.5 loses nothing. */

static bool is_absent(int rank, int layer, int step) { return (rank * 5 + layer * 3 + step) % 8 < absence; }

static float pull(int rank, int layer, int step, size_t element, double weight) {
    double length = step % 2 ? 0.01 : 40, target = rank * 3 + layer + (int)(element % 5);
    return element % 4 ? 0 : (float)(length * 0.2 * (rank + 1) * (weight - target));
}

/* Servers apply pushes in any order: there gradients do not depend on weights. In the last steps they are zero, so that
 * every rank gets all that was pushed. */
static void gradient_of(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    bool pulled = now->kind == PULLED, none = (pulled && step >= STEPS_PUSHED) || is_absent(rank, layer, step);
    for (size_t i = 0; i < count; i++)
        gradient[i] = none ? 0 : pull(now->alike ? 1 : rank, layer, step, i, pulled ? 0 : (double)weights[i]);
}

/* The reference. */

typedef struct reference {
    double limit, shared[TOTAL], outer[TOTAL];
    double mean[TOTAL], gradient[WORLD][TOTAL], velocity[WORLD][TOTAL], here[WORLD][TOTAL];
} reference;

static double factor_of(const reference *r, const double *gradient) {
    double squares = 0;
    for (size_t i = 0; i < TOTAL; i++) squares += gradient[i] * gradient[i];
    return sqrt(squares) > r->limit ? r->limit / sqrt(squares) : 1;
}

static void take_gradients(reference *r, int step) {
    static float weights[TOTAL], gradient[TOTAL];
    for (int rank = 0; rank < WORLD; rank++) {
        for (size_t i = 0; i < TOTAL; i++) weights[i] = (float)r->here[rank][i];
        for (int l = 0; l < LAYERS; l++)
            gradient_of(rank, l, step, weights + begins[l], counts[l], gradient + begins[l]);
        for (size_t i = 0; i < TOTAL; i++) r->gradient[rank][i] = (double)gradient[i];
    }
}

/* The mean of what is given for each rank: of factor times its gradient, or of how far it is from the shared weights.
 */
static void take_mean(reference *r, const double *factors, bool differences) {
    for (size_t i = 0; i < TOTAL; i++) {
        r->mean[i] = 0;
        for (int rank = 0; rank < WORLD; rank++)
            r->mean[i] +=
                (differences ? r->here[rank][i] - r->shared[i] : factors[rank] * r->gradient[rank][i]) / WORLD;
    }
}

static void give_shared(reference *r) {
    for (int rank = 0; rank < WORLD; rank++) memcpy(r->here[rank], r->shared, sizeof r->shared);
}

static void apply_mean(reference *r, bool clips) {
    double factor = clips ? factor_of(r, r->mean) : 1;
    for (size_t i = 0; i < TOTAL; i++) r->shared[i] -= RATE * factor * r->mean[i];
}

static void local_sgd(reference *r, int step, const double *own) {
    for (int rank = 0; rank < WORLD; rank++)
        for (size_t i = 0; i < TOTAL; i++) r->here[rank][i] -= RATE * own[rank] * r->gradient[rank][i];
    if ((step - now->from + 1) % now->every) return;
    take_mean(r, NULL, true);
    for (size_t i = 0; i < TOTAL; i++) {
        double mean = r->mean[i], to = mean;
        r->outer[i] = now->momentum * r->outer[i] + mean;
        if (now->outer > 0) to = now->outer * (mean + now->momentum * r->outer[i]);
        r->shared[i] += to;
    }
    give_shared(r);
}

/* The copy on which a rank computes its next gradient is the shared weights of this step and its own update. */
static void od_sgd(reference *r, const double *own) {
    for (int rank = 0; rank < WORLD; rank++)
        for (size_t i = 0; i < TOTAL; i++) {
            double g = own[rank] * r->gradient[rank][i], *velocity = &r->velocity[rank][i];
            *velocity = now->momentum * *velocity + g + now->lambda * g * g * (r->shared[i] - r->here[rank][i]);
            r->here[rank][i] = r->shared[i] - now->rate * RATE * *velocity;
        }
    apply_mean(r, true);
}

static void reference_step(reference *r, int step) {
    static const double whole[WORLD] = {1, 1, 1, 1};
    double own[WORLD];
    take_gradients(r, step);
    for (int rank = 0; rank < WORLD; rank++) own[rank] = factor_of(r, r->gradient[rank]);
    take_mean(r, now->kind == PULLED ? own : whole, false);
    if (now->kind == PERIODIC && step >= now->from) {
        local_sgd(r, step, own);
    } else if (now->kind == DELAYED && step >= now->from) {
        od_sgd(r, own);
    } else {
        apply_mean(r, now->kind != PULLED);
        give_shared(r);
    }
}

static const reference *reference_of(double limit) {
    static reference r;
    memset(&r, 0, sizeof r);
    r.limit = limit;
    for (int step = 0; step < STEPS; step++) reference_step(&r, step);
    return &r;
}

/* The comparison. */

static double expected[TOTAL], largest, furthest;

static double distance(const double *a, const double *b) {
    double most = 0;
    for (size_t i = 0; i < TOTAL; i++) most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

static void expect(void) {
    static const double zeros[TOTAL];
    memcpy(expected, reference_of(LIMIT)->shared, sizeof expected);
    largest = distance(expected, zeros);
    CHECK(distance(expected, reference_of(2 * LIMIT)->shared) > 0.1 * largest);
}

static void compare(void *ctx, int rank, int layer, const float *weights, size_t count) {
    (void)ctx, (void)rank;
    for (size_t i = 0; i < count; i++)
        furthest = fmax(furthest, fabs((double)weights[i] - expected[begins[layer] + i]));
}

static void train(const char *arch, const char *codec, const char *schedule) {
    gw_reducer_sim t = {.seed = 5, .world = WORLD, .layers = LAYERS, .steps = STEPS, .updates = true, .clip = LIMIT,
                        .host_of = {0, 0, 1, 1}, .latency = 20000, .jitter = 100000, .bytes_per_second = 1e9,
                        .unevenness = 0.5, .absence = absence, .micro_steps = absence ? 1 : 0,
                        .gradient = gradient_of, .ended = compare};
    gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    char line[200];
    double rounding = strcmp(codec, "fp16") == 0 ? 5e-3 : 1e-5;
    for (int l = 0; l < LAYERS; l++)
        t.layer[l] = (gw_reducer_sim_layer){.count = counts[l], .forward = 200000, .backward = 500000};
    snprintf(line, sizeof line, "transport=sim arch=%s sync=%s compress=%s schedule=%s", arch, now->text, codec,
             schedule);
    furthest = 0;
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &t.strategy, &error));
    gw_status status = gw_reducer_sim_run(&t, &outcome, &error);
    CHECK_EQ(GW_OK, status);
    bool good = !status && outcome.ok && furthest <= rounding * largest;
    CHECK(good);
    if (!good)
        printf("    %s: %s; up to %g away, of %g\n", line, status ? error.text : outcome.text, furthest, largest);
}

static void every_synchronization(void) {
    static const char *const among_ranks[] = {"ring", "hierarchical", "ps", "ps:servers=3", "sfb"};
    static const char *const at_servers[] = {"ps", "ps:servers=3", "sfb:servers=2"};
    static const char *const codecs[] = {"none", "fp16", "topk:ratio=0.5"};
    static const char *const schedules[] = {"wfbp", "fifo", "p3:slice=16K", "bytescheduler"};
    int number = 0;
    for (size_t s = 0; s < sizeof syncs / sizeof *syncs; s++) {
        now = &syncs[s];
        absence = now->alike ? 0 : (int)(s % 2) * 2;
        expect();
        bool pulled = now->kind == PULLED;
        for (int a = 0; a < (pulled ? 3 : 5); a++)
            for (int c = 0; c < 3; c++)
                train(pulled ? at_servers[a] : among_ranks[a], codecs[c], schedules[number++ % 4]);
    }
}

/* Each push is clipped once, also one that is made again: in the middle of a step its tensors wait for the last. */
static void workers_are_lost(void) {
    static const char *const names[] = {"asp", "ssp", "backup"};
    int killed = 0;
    for (int s = 0; s < 3; s++)
        for (uint64_t seed = 1; seed <= 30; seed++) {
            gw_ps_sim job;
            gw_ps_sim_outcome outcome = {0};
            gw_error error = {.rank = -1};
            CHECK_EQ(GW_OK, gw_ps_sim_make(&job, seed, names[s], &error));
            if (!job.clips || !job.losses) continue;
            CHECK_EQ(GW_OK, gw_ps_sim_run(&job, &outcome, &error));
            CHECK(outcome.ok);
            if (!outcome.ok) printf("    seed %" PRIu64 ": %s\n", seed, outcome.text);
            killed += outcome.killed;
        }
    printf("    %d processes were killed\n", killed);
    CHECK(killed > 10);
}

/* In processes, where the caller and the driver are threads. */

static int port;

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++)
        weights[i] -= GW_REDUCER_SIM_RATE * (float)(u->rate_scale * u->scale) * gradient[i];
}

static void take_steps(gw_comm *comm, const char *line, float *weights) {
    static const char *const names[LAYERS] = {"first", "second", "third"};
    static float gradients[TOTAL];
    gw_reducer_tensor tensors[LAYERS];
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = line;
    options.update = descend;
    options.clip = LIMIT;
    for (int l = 0; l < LAYERS; l++)
        tensors[l] = (gw_reducer_tensor){.name = names[l], .count = counts[l], .dtype = GW_F32,
                                         .gradient = gradients + begins[l], .weights = weights + begins[l]};
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, tensors, LAYERS, &options));
    if (!reducer) printf("    %s: %s\n", line, gw_last_error(NULL)), exit(1);
    for (int step = 0; step < STEPS; step++) {
        for (int l = 0; l < LAYERS; l++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, l));
        for (int l = LAYERS - 1; l >= 0; l--) {
            gradient_of(gw_rank(comm), l, step, weights + begins[l], counts[l], gradients + begins[l]);
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, l));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_reducer_close(reducer);
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, WORLD, port, NULL);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

/* Not asp and backup: a rank may end before all gradients are in its weights. */
static void equals_reference(int rank) {
    gw_comm *comm = join(rank);
    for (size_t s = 0; s < sizeof syncs / sizeof *syncs; s++) {
        float weights[TOTAL] = {0};
        char line[100];
        now = &syncs[s];
        if (strcmp(now->text, "asp") == 0 || now->alike) continue;
        expect();
        furthest = 0;
        snprintf(line, sizeof line, "sync=%s arch=%s", now->text, now->kind == PULLED ? "ps:servers=2" : "auto");
        take_steps(comm, line, weights);
        for (int l = 0; l < LAYERS; l++) compare(NULL, rank, l, weights + begins[l], counts[l]);
        CHECK(furthest <= 1e-5 * largest);
        if (furthest > 1e-5 * largest) printf("    rank %d, %s: %g away, of %g\n", rank, line, furthest, largest);
    }
    gw_finalize(comm);
}

static void equals_bsp(int rank) {
    static float bsp[TOTAL], ssp[TOTAL];
    gw_comm *comm = join(rank);
    now = &syncs[0];
    take_steps(comm, "arch=direct sync=bsp", bsp);
    take_steps(comm, "arch=ps:servers=2 sync=ssp:staleness=0", ssp);
    CHECK(memcmp(bsp, ssp, sizeof bsp) == 0);
    gw_finalize(comm);
}

static void run_job(void (*body)(int rank)) {
    absence = 0;
    port = free_port();
    job_fork(WORLD, body);
}

static void every_synchronization_in_processes(void) { run_job(equals_reference); }
static void ssp_without_staleness_is_bsp(void) { run_job(equals_bsp); }

static void norms_that_are_not_finite(void) {
    CHECK(gw_clip_factor(16, 2) == 0.5);
    CHECK(gw_clip_factor(4, 2) == 1 && gw_clip_factor(0, 2) == 1);
    CHECK(gw_clip_factor(INFINITY, 2) == 1 && gw_clip_factor((double)NAN, 2) == 1);
}

static void needs_an_update(void) {
    gw_strategy strategy;
    gw_reducer_facts facts = {.world = WORLD, .clips = true};
    gw_error error = {.rank = -1};
    gw_strategy_default(&strategy);
    CHECK_EQ(GW_UNSUPPORTED, gw_strategy_check_step(&strategy, &facts, &error));
    CHECK(strstr(error.text, "clip the results after gw_reducer_wait") != NULL);
}

TEST_MAIN(CASE(every_synchronization), CASE(workers_are_lost), CASE(every_synchronization_in_processes),
          CASE(ssp_without_staleness_is_bsp), CASE(norms_that_are_not_finite), CASE(needs_an_update))
