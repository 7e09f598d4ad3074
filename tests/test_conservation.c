/* test_conservation.c - error feedback loses nothing: for every codec with feedback, in every form, what has been
 * delivered plus all residuals, of workers and owners, is the sum of all gradients, and what is still to be delivered
 * does not grow with the number of steps. Exchanges alone, after every step; and training steps in simulated time, on
 * every architecture, servers among them, on hosts of equal and of different sizes and in racks. CONSERVATION=all walks
 * all combinations; the default is a selection in which every codec, form, architecture and layout occurs. */
#include "test.h"

#include <math.h>

#include "coded_net.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"
#include "sim/reducer_sim.h"
#include "strategy/combine.h"

enum { CODECS_MAX = 200, WORLD_MAX = 8, LAYERS = 2 };

/* Codecs with feedback, such as "topk:ratio=0.01,feedback=both,form=onepass". */
static char codecs[CODECS_MAX][GW_TECHNIQUE_TEXT_BYTES + 60];
static int codec_count;

static bool is_refused(const char *line, int world) {
    gw_reducer_facts facts = {.world = world, .updates = true};
    gw_error error = {.rank = -1};
    gw_strategy strategy;
    return gw_strategy_parse(line, &strategy, &error) || gw_strategy_check_step(&strategy, &facts, &error);
}

static void list(const char *codec, const char *more) {
    char *text = codecs[codec_count], line[300];
    CHECK(codec_count < CODECS_MAX);
    snprintf(text, sizeof codecs[0], "%s%s%s%s", codec, *more ? strchr(codec, ':') ? "," : ":" : "", more,
             strncmp(codec, "dgc", 3) == 0 ? ",momentum=0,warmup=0" : "");
    snprintf(line, sizeof line, "compress=%s", text);
    if (codec_count < CODECS_MAX - 1 && !is_refused(line, 4)) codec_count++;
}

/* Those of refused settings are left out: nothing else may be. */
static void list_codecs(void) {
    static const char *const forms[] = {"auto", "inflight", "onepass", "twopass"};
    static const char *const feedback[] = {"worker", "both"};
    char codec[GW_TECHNIQUE_TEXT_BYTES], more[60];
    codec_count = 0;
    for (const gw_technique *const *t = gw_compress_techniques + 1; *t; t++)
        for (int i = 0; gw_technique_example(*t, i, codec); i++) {
            if (gw_technique_param(*t, "feedback") < 0) list(codec, "");
            for (int f = 0; f < 8 && gw_technique_param(*t, "feedback") >= 0; f++) {
                snprintf(more, sizeof more, "feedback=%s,form=%s", feedback[f / 4], forms[f % 4]);
                list(codec, more);
            }
        }
}

static bool all(void) { return getenv("CONSERVATION") != NULL; }

/* Sums that are rounded in flight lose that, at every hop and step. */
static double tolerance(const char *codec, int world) {
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_codec_parse(codec, &setup, &error));
    bool rounds = gw_coded_form_of(&setup, world, false) == GW_FORM_IN_FLIGHT && setup.codec->significand;
    return 1e-5 + (rounds ? world * ldexp(1, -setup.codec->significand) : 0);
}

/* Fractions; some are much larger than the others, as in gradients. */
static float value(int rank, int layer, int step, size_t i) {
    uint64_t x = (uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + (uint64_t)layer * 97 + (uint64_t)step * 7919;
    x ^= x >> 15;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    double u = (double)(x >> 11) * 0x1p-53 * 2 - 1;
    return (float)(u * u * u);
}

/* 0: it keeps none of this element. */
static double residual(const gw_codec_state *state, uint64_t element) {
    if (!state || !state->residual || !gw_stripes_cover(&state->covers, element, 1)) return 0;
    return *gw_codec_residual_at(state, element);
}

/* One exchange. */

typedef struct account {
    size_t count;
    double *in, *out; /* of all steps, summed over ranks */
} account;

static void run_constant(mini *m, account *a, int step, bool constant) {
    for (int r = 0; r < m->world; r++)
        for (size_t i = 0; i < a->count; i++) m->ranks[r].gradient[0][i] = value(r, 0, constant ? 0 : step, i);
    run_step(m, (uint64_t)step);
    for (size_t i = 0; i < a->count; i++) {
        for (int r = 0; r < m->world; r++) a->in[i] += m->ranks[r].gradient[0][i];
        a->out[i] += (double)m->ranks[0].result[0][i] * m->world;
    }
}

static double kept_of(const mini *m, size_t i) {
    double kept = 0;
    for (int r = 0; r < m->world; r++)
        kept += residual(&m->ranks[r].coded[0].state, i) + residual(&m->ranks[r].coded[0].second, i);
    return kept;
}

/* Relative to the sum of gradients: what is missing, and what is still to be delivered. */
static double missing(const mini *m, const account *a, double *undelivered) {
    double gap = 0, norm = 0, kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        double held = kept_of(m, i);
        gap += (a->in[i] - a->out[i] - held) * (a->in[i] - a->out[i] - held);
        norm += a->in[i] * a->in[i];
        kept += held * held;
    }
    *undelivered = sqrt(kept / norm);
    return sqrt(gap / norm);
}

static account open_account(size_t count) {
    return (account){.count = count, .in = calloc(count, sizeof(double)), .out = calloc(count, sizeof(double))};
}

static void close_account(account *a) {
    free(a->in);
    free(a->out);
}

static void an_exchange_conserves(const char *codec, const char *arch, int world) {
    size_t count = (size_t)64 * 150;
    account a = open_account(count);
    double most = 0, undelivered;
    mini m;
    open_mini(&m, world, arch, codec, count, GW_FORM_AUTO);
    for (int step = 0; step < 4; step++) {
        run_constant(&m, &a, step, false);
        most = fmax(most, missing(&m, &a, &undelivered));
    }
    CHECK(most < tolerance(codec, world));
    if (!(most < tolerance(codec, world))) printf("    %s, %s, %d ranks: %g is missing\n", codec, arch, world, most);
    close_mini(&m);
    close_account(&a);
}

static void exchanges_conserve(void) {
    static const char *const archs[] = {"ring", "tree", "halving", "direct"};
    static const int worlds[] = {2, 3, 4, 8};
    int walked = 0;
    list_codecs();
    for (int number = 0; number < codec_count * 16 && test_failures < 8; number++) {
        int codec = number / 16, arch = number / 4 % 4, world = number % 4;
        if (!all() && (arch != codec % 4 || world != codec / 4 % 4)) continue;
        an_exchange_conserves(codecs[codec], archs[arch], worlds[world]);
        walked++;
    }
    printf("    %d codecs with feedback, %d combinations\n", codec_count, walked);
}

/* With a constant gradient, residuals reach a size and stay there. */
static void residuals_stay_bounded(const char *codec, int world) {
    size_t count = (size_t)64 * 32;
    account a = open_account(count);
    double early = 0, late = 0;
    mini m;
    open_mini(&m, world, "auto", codec, count, GW_FORM_AUTO);
    for (int step = 0; step < 2000; step++) {
        run_constant(&m, &a, step, true);
        if (step == 199) missing(&m, &a, &early);
    }
    missing(&m, &a, &late);
    CHECK(late <= 0.15 * early);
    if (getenv("VERBOSE") || late > 0.15 * early)
        printf("    %-50s %d ranks: %.4f undelivered after 200 steps, %.5f after 2,000\n", codec, world, early, late);
    close_mini(&m);
    close_account(&a);
}

/* The ratio decides after how many steps that is: 200 are enough for 1 %. */
static void at_one_percent(const char *codec, char text[300]) {
    const char *ratio = strstr(codec, "ratio=");
    int before = (int)(ratio ? (size_t)(ratio - codec) : strlen(codec));
    const char *after = ratio ? ratio + strcspn(ratio, ",") : "";
    snprintf(text, 300, "%.*s%s%s", before, codec, ratio ? "ratio=0.01" : "", after);
}

static void what_waits_does_not_grow(void) {
    char text[300];
    for (int codec = 0; codec < codec_count && test_failures < 8; codec++) {
        at_one_percent(codecs[codec], text);
        if (all() || codec % 7 == 0) residuals_stay_bounded(text, all() ? 4 : 3);
    }
}

/* Training steps. */

typedef struct layout {
    const char *name;
    int world, host_of[WORLD_MAX], rack_of[WORLD_MAX];
} layout;

static const layout layouts[] = {
    {"2 ranks", 2, {0, 1}, {0}},
    {"3 ranks", 3, {0, 1, 2}, {0}},
    {"4 ranks", 4, {0, 1, 2, 3}, {0}},
    {"8 ranks", 8, {0, 1, 2, 3, 4, 5, 6, 7}, {0}},
    {"2 hosts of 4", 8, {0, 0, 0, 0, 1, 1, 1, 1}, {0}},
    {"3 ranks and 1", 4, {0, 0, 0, 1}, {0}},
    {"racks of 2 hosts and 1", 6, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1}},
};
static const char *const archs[] = {"ring", "tree",         "halving", "direct",       "hierarchical",
                                    "ps",   "ps:servers=3", "sfb",     "sfb:servers=2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, ARCHS = sizeof archs / sizeof *archs };

static const gw_reducer_sim_layer layers[LAYERS] = {
    {.count = 20000, .rows = 100, .forward = 200000, .backward = 500000},
    {.count = 9000, .rows = 90, .forward = 100000, .backward = 200000}};

static void gradient_of(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)weights;
    for (size_t i = 0; i < count; i++) gradient[i] = value(rank, layer, step, i);
}

/* What a run kept and delivered: residuals of all ranks together, and the weights of rank 0. */
typedef struct totals {
    double *kept[LAYERS];
    float *weights[LAYERS];
} totals;

static const gw_codec_state *state_of(const gw_step_engine *s, int layer, bool owner) {
    if (s->ps) return gw_ps_codec_state(s->ps, layer, owner);
    return owner ? &s->coded[layer].second : &s->coded[layer].state;
}

static void add_kept(void *ctx, int rank, const gw_step_engine *s) {
    totals *t = ctx;
    (void)rank;
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < layers[layer].count; i++)
            t->kept[layer][i] += residual(state_of(s, layer, false), i) + residual(state_of(s, layer, true), i);
}

static void take_weights(void *ctx, int rank, int layer, const float *weights, size_t count) {
    totals *t = ctx;
    if (rank == 0) memcpy(t->weights[layer], weights, count * sizeof *weights);
}

static double missing_of(const totals *t, int layer, int world, int steps) {
    double gap = 0, norm = 0;
    for (size_t i = 0; i < layers[layer].count; i++) {
        double in = 0, out = -(double)t->weights[layer][i] / (double)GW_REDUCER_SIM_RATE * world;
        for (int step = 0; step < steps; step++)
            for (int r = 0; r < world; r++) in += value(r, layer, step, i);
        gap += (in - out - t->kept[layer][i]) * (in - out - t->kept[layer][i]);
        norm += in * in;
    }
    return sqrt(gap / norm);
}

static void steps_conserve_for(const layout *l, const char *line, const char *codec, int steps) {
    gw_reducer_sim t = {.seed = 3, .world = l->world, .layers = LAYERS, .steps = steps, .updates = true,
                        .latency = 20000, .jitter = 100000, .bytes_per_second = 1e9, .unevenness = 0.5,
                        .gradient = gradient_of, .kept = add_kept, .ended = take_weights};
    gw_reducer_sim_outcome outcome = {.ok = false};
    gw_error error = {.rank = -1};
    totals sums;
    t.ctx = &sums;
    memcpy(t.host_of, l->host_of, sizeof l->host_of);
    memcpy(t.rack_of, l->rack_of, sizeof l->rack_of);
    for (int i = 0; i < LAYERS; i++) {
        t.layer[i] = layers[i];
        sums.kept[i] = calloc(layers[i].count, sizeof(double));
        sums.weights[i] = calloc(layers[i].count, sizeof(float));
    }
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &t.strategy, &error));
    CHECK_EQ(GW_OK, gw_reducer_sim_run(&t, &outcome, &error));
    CHECK(outcome.ok);
    if (!outcome.ok) printf("    %s, %s: %s%s\n", l->name, line, error.text, outcome.text);
    for (int i = 0; i < LAYERS; i++) {
        double gap = missing_of(&sums, i, l->world, steps);
        CHECK(gap < tolerance(codec, l->world));
        if (!(gap < tolerance(codec, l->world)))
            printf("    %s, %s, %d steps: %g of layer %d is missing\n", l->name, line, steps, gap, i);
        free(sums.kept[i]);
        free(sums.weights[i]);
    }
}

/* Servers have no halves to start apart. */
static const char *schedule_for(const char *arch, int number) {
    static const char *const schedules[] = {"wfbp", "p3", "dear"};
    bool serves = strncmp(arch, "ps", 2) == 0 || strstr(arch, "servers");
    return schedules[number % (serves ? 2 : 3)];
}

static void training_steps_conserve(void) {
    int walked = 0, refused = 0;
    for (int number = 0; number < codec_count * ARCHS * LAYOUTS && test_failures < 8; number++) {
        int codec = number / (ARCHS * LAYOUTS), arch = number / LAYOUTS % ARCHS;
        const layout *l = &layouts[number % LAYOUTS];
        char line[300];
        snprintf(line, sizeof line, "transport=sim arch=%s compress=%s schedule=%s", archs[arch], codecs[codec],
                 schedule_for(archs[arch], number + codec));
        if (!all() && (number + codec) % 41) continue;
        refused += is_refused(line, l->world); /* a form with servers; more servers than ranks */
        if (is_refused(line, l->world)) continue;
        for (int steps = all() ? 1 : 3; steps <= 3; steps++) steps_conserve_for(l, line, codecs[codec], steps);
        walked++;
    }
    printf("    %d combinations of arch, codec, form and hosts; %d more are refused\n", walked, refused);
}

TEST_MAIN(CASE(exchanges_conserve), CASE(what_waits_does_not_grow), CASE(training_steps_conserve))
