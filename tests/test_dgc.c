/* test_dgc.c - deep gradient compression as its paper has it: momentum correction and masking against plain loops; the
 * optimiser's momentum is taken over, or the line is refused; the density that travels follows the warm-up in both
 * passes. Clipping on routes: test_dgc_clip.c. */
#include "codec_run.h"

#include <stddef.h>

#include "gradwire/coded.h"
#include "small_job.h"
#include "strategy/combine.h"

static float input[140000], decoded[140000];

/* One rank: the codec. */

/* The paper's algorithm on plain arrays, selection by sorting. */
typedef struct ranked {
    float magnitude;
    size_t index;
} ranked;

static int by_magnitude(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude) return x->magnitude < y->magnitude ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static void dgc_reference(float *u, float *v, const float *g, size_t count, double ratio, float momentum, float clip,
                          float *sent) {
    for (size_t i = 0; i < count; i++) {
        u[i] = momentum * u[i] + clip * g[i];
        v[i] = v[i] + u[i];
        sent[i] = 0;
    }
    for (size_t first = 0; first < count; first += 65536) {
        size_t length = count - first < 65536 ? count - first : 65536;
        size_t k = (size_t)(ratio * (double)length + 0.5);
        ranked *order = malloc(length * sizeof *order);
        for (size_t i = 0; i < length; i++) order[i] = (ranked){fabsf(v[first + i]), first + i};
        qsort(order, length, sizeof *order, by_magnitude);
        for (size_t i = 0; i < (k ? k : 1); i++) {
            size_t at = order[i].index;
            sent[at] = v[at];
            u[at] = v[at] = 0;
        }
        free(order);
    }
}

static double norm_of(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void check_dgc(const char *text, size_t count, double clip, int warmup) {
    static const double stages[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001};
    codec_run r;
    run_open(&r, text, 1, count);
    r.call.world = 4;
    float *u = calloc(count, sizeof *u), *v = calloc(count, sizeof *v), *sent = calloc(count, sizeof *sent);
    for (int step = 0; step < 15; step++) {
        fill_input(input, count, INPUT_NORMAL, (uint64_t)step);
        double norm = norm_of(input, count), most = clip / 2; /* sqrt(4 ranks) */
        float factor = clip > 0 && norm > most ? (float)(most / norm) : 1.0f;
        double ratio = step < warmup ? stages[step * 5 / warmup] : 0.001;
        ratio = fmax(ratio, 32.0 / (double)count); /* at least 32 values of a tensor */
        memset(decoded, 0, count * sizeof *decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
        CHECK(fabsf(r.call.clip - factor) <= 1e-6f * factor);
        dgc_reference(u, v, input, count, ratio, 0.9f, r.call.clip, sent);
        CHECK(memcmp(sent, decoded, count * sizeof *sent) == 0);
        CHECK(memcmp(v, r.state.residual, count * sizeof *v) == 0);
        CHECK(memcmp(u, r.state.own, count * sizeof *u) == 0);
    }
    free(sent);
    free(v);
    free(u);
    run_close(&r);
}

static void dgc_follows_the_paper(void) {
    check_dgc("dgc:momentum=0.9,warmup=0", 2000, 0, 0);
    check_dgc("dgc:momentum=0.9,warmup=0", 70000, 0, 0);
    check_dgc("dgc:momentum=0.9,warmup=10", 70000, 0, 10);
    check_dgc("dgc:momentum=0.9,warmup=0,clip=0.4", 3000, 0.4, 0);
}

/* Masking: wherever something was sent, momentum and residual are zero. */
static void dgc_masks(void) {
    codec_run r;
    run_open(&r, "dgc:ratio=0.01,momentum=0.9,warmup=0", 1, 5000);
    for (int step = 0; step < 5; step++) {
        size_t sent = 0;
        fill_input(input, 5000, INPUT_NORMAL, (uint64_t)step);
        memset(decoded, 0, 5000 * sizeof *decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
        for (size_t i = 0; i < 5000; i++) {
            if (decoded[i] == 0) continue;
            sent++;
            CHECK(r.state.own[i] == 0 && r.state.residual[i] == 0);
        }
        CHECK_EQ(50, sent);
    }
    run_close(&r);
}

/* Automatic parameters, and refusals: pure functions of the line and of what is known of the job. */

static const gw_reducer_facts plain = {.world = 4, .updates = true, .momentum = 0.9, .steps = 5000};

static gw_strategy chosen(const char *text, const gw_reducer_facts *facts) {
    gw_strategy strategy;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_strategy_parse(text, &strategy, &error));
    gw_strategy_choose_codec(&strategy, facts);
    return strategy;
}

static double value_of(const char *text, const gw_reducer_facts *facts, const char *param) {
    gw_strategy strategy = chosen(text, facts);
    const gw_setting *compress = &strategy.axes[GW_AXIS_COMPRESS];
    return compress->values[gw_technique_param(compress->technique, param)];
}

static void takes_what_is_known(void) {
    gw_reducer_facts unknown = {.world = 4, .updates = true, .momentum = -1};
    CHECK(value_of("compress=dgc", &plain, "momentum") == 0.9);
    CHECK(value_of("compress=dgc", &plain, "warmup") == 1000);
    CHECK(value_of("compress=dgc:momentum=0.5,warmup=7", &plain, "momentum") == 0.5);
    CHECK(value_of("compress=dgc:momentum=0.5,warmup=7", &plain, "warmup") == 7);
    CHECK(value_of("compress=dgc:momentum=0,warmup=0", &plain, "momentum") == 0);
    CHECK(value_of("compress=dgc:momentum=0,warmup=0", &plain, "warmup") == 0);
    CHECK(value_of("compress=dgc:momentum=auto,warmup=auto", &plain, "momentum") == 0.9);
    CHECK(value_of("compress=dgc", &unknown, "momentum") == 0);
    CHECK(value_of("compress=dgc", &unknown, "warmup") == 1000);
    unknown.steps = 100;
    CHECK(value_of("compress=dgc", &unknown, "warmup") == 20);
    CHECK(value_of("sync=periodic compress=dgc", &plain, "momentum") == 0); /* differences of weights travel */
    CHECK(value_of("sync=delayed compress=dgc", &plain, "momentum") == 0.9);
    CHECK(value_of("arch=ps sync=asp compress=dgc", &plain, "momentum") == 0.9);
    gw_reducer_facts apart = plain;
    apart.apart = true;
    CHECK(value_of("arch=ps sync=asp compress=dgc", &apart, "momentum") == 0);
}

static void refuses(const char *text, const gw_reducer_facts *facts, const char *sentence) {
    gw_error error = {0};
    gw_strategy strategy = chosen(text, facts);
    gw_status status = gw_strategy_check_step(&strategy, facts, &error);
    CHECK_EQ(sentence ? GW_UNSUPPORTED : GW_OK, status);
    CHECK(!sentence || strstr(error.text, sentence));
    if (sentence && !strstr(error.text, sentence)) printf("    %s: %s\n", text, error.text);
}

static void never_two_momenta(void) {
    gw_reducer_facts adam = plain, unknown = plain, none = plain;
    adam.keeps_momentum = true;
    unknown.momentum = -1;
    none.momentum = 0;
    refuses("compress=dgc", &plain, NULL);
    refuses("compress=dgc:momentum=0.5", &plain, NULL);
    refuses("compress=dgc", &adam, "use dgc:momentum=0, or an optimiser with one plain momentum");
    refuses("compress=dgc:momentum=0.9", &adam, "use dgc:momentum=0, or an optimiser with one plain momentum");
    refuses("compress=dgc:momentum=0", &adam, NULL);
    refuses("compress=topk", &adam, NULL);
    refuses("compress=dgc", &unknown, NULL);
    refuses("compress=dgc:momentum=0.9", &unknown, "use dgc:momentum=0, or set gw_reducer_options.momentum_use");
    refuses("compress=dgc:momentum=0.9", &none, NULL);
    refuses("sync=periodic compress=dgc", &plain, NULL);
    refuses("sync=periodic compress=dgc", &adam, NULL);
    refuses("sync=periodic compress=dgc:momentum=0.9", &plain, "differences of weights travel here: use momentum=0");
    refuses("compress=dgc:limit=0.9", &plain, "leave limit out");
    refuses("compress=dgc:limit=0.9,momentum=0", &plain, NULL);
}

/* Jobs. A matrix that is encoded, and a vector that is sent exact. */

enum { MATRIX, VECTOR, TENSORS };
#define COUNT 70000
#define SMALL 500
#define RATE 0.125f
#define MOMENTUM 0.9f

static int world, port;
static const char *line;

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float gradients[TENSORS][COUNT], weights[TENSORS][COUNT], velocity[TENSORS][COUNT];
    double told[TENSORS]; /* momentum that updates said their gradients have had */
} model;

static const size_t counts[TENSORS] = {COUNT, SMALL};

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, "transport=tcp");
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void run(const char *strategy, int ranks, void (*body)(int rank)) {
    line = strategy;
    world = ranks;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s\n", ranks, strategy);
}

/* Descent with momentum, which it leaves out where the codec has it. */
static void descend(void *ctx, const gw_reducer_update *u) {
    model *m = ctx;
    float *weights = u->weights, *v = m->velocity[u->tensor] + u->first;
    const float *gradient = u->gradient;
    m->told[u->tensor] = u->momentum;
    for (size_t i = 0; i < u->count; i++) {
        v[i] = (u->momentum > 0 ? 0 : MOMENTUM * v[i]) + (float)u->scale * gradient[i];
        weights[i] -= RATE * v[i];
    }
}

static gw_reducer *commit(gw_comm *comm, model *m, gw_reducer_options options) {
    gw_reducer *reducer = NULL;
    for (int t = 0; t < TENSORS; t++)
        m->tensors[t] = (gw_reducer_tensor){.name = t == MATRIX ? "matrix" : "vector", .count = counts[t],
                                            .gradient = m->gradients[t], .weights = m->weights[t]};
    options.strategy = line;
    options.update = descend;
    options.ctx = m;
    gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options);
    return reducer;
}

static gw_reducer_options with_momentum(void) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.momentum_use = GW_MOMENTUM_OFFERED;
    options.momentum = MOMENTUM;
    return options;
}

static void fill_gradient(int rank, int tensor, int step, float *gradient) {
    fill_input(gradient, counts[tensor], INPUT_NORMAL, (uint64_t)(step * 100 + tensor * 10 + rank));
}

static void take_steps(gw_reducer *reducer, model *m, int rank, int steps) {
    for (int step = 0; step < steps; step++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (int t = 0; t < TENSORS; t++) {
            fill_gradient(rank, t, step, m->gradients[t]);
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
}

/* Two ranks exchange in one pass: the paper's algorithm to the letter. */
static void paper_step(float u[2][COUNT], float v[2][COUNT], model *m, int step, double ratio) {
    static float sent[2][COUNT];
    for (int rank = 0; rank < 2; rank++) {
        fill_gradient(rank, MATRIX, step, input);
        dgc_reference(u[rank], v[rank], input, COUNT, ratio, MOMENTUM, 1, sent[rank]);
    }
    for (size_t i = 0; i < COUNT; i++) m->weights[MATRIX][i] -= RATE * (0.5f * sent[0][i] + 0.5f * sent[1][i]);
    fill_gradient(0, VECTOR, step, input);
    fill_gradient(1, VECTOR, step, decoded);
    for (size_t i = 0; i < SMALL; i++) {
        float *velocity = &m->velocity[VECTOR][i];
        *velocity = MOMENTUM * *velocity + 0.5f * (input[i] + decoded[i]);
        m->weights[VECTOR][i] -= RATE * *velocity;
    }
}

static float furthest(const float *a, const float *b, size_t count) {
    float most = 0;
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

static void trains_as_the_paper(int rank) {
    static model ours, theirs;
    static float u[2][COUNT], v[2][COUNT];
    gw_comm *comm = join(rank);
    gw_reducer *reducer = commit(comm, &ours, with_momentum());
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    CHECK(gw_reducer_takes_momentum(reducer, MATRIX) == (double)MOMENTUM);
    CHECK(gw_reducer_takes_momentum(reducer, VECTOR) == 0);
    CHECK(gw_reducer_takes_momentum(reducer, TENSORS) == 0);
    take_steps(reducer, &ours, rank, 8);
    for (int step = 0; step < 8; step++) paper_step(u, v, &theirs, step, 0.01);
    for (int t = 0; t < TENSORS; t++) {
        CHECK(furthest(ours.weights[t], theirs.weights[t], counts[t]) <= 1e-7f);
        CHECK(ours.told[t] == gw_reducer_takes_momentum(reducer, t));
    }
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void momentum_moves_to_the_codec(void) {
    run("compress=dgc:ratio=0.01,warmup=0", 2, trains_as_the_paper);
    run("compress=dgc:ratio=0.01,warmup=0,feedback=worker schedule=dear", 2, trains_as_the_paper);
}

/* Servers that keep the weights, and pushes that come before this rank's commit has returned. */
static void tells_servers(int rank) {
    static model m;
    gw_comm *comm = join(rank);
    gw_reducer *reducer = commit(comm, &m, with_momentum());
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    take_steps(reducer, &m, rank, 3);
    gw_barrier(comm);
    CHECK(gw_reducer_takes_momentum(reducer, MATRIX) == (double)MOMENTUM);
    if (rank == 0) CHECK(m.told[MATRIX] == (double)MOMENTUM && m.told[VECTOR] == 0);
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void servers_are_told(void) { run("arch=ps sync=asp compress=dgc", 2, tells_servers); }

/* Nothing crosses a link: the optimiser keeps everything. */
static void keeps_alone(int rank) {
    static model m;
    gw_comm *comm = join(rank);
    gw_reducer *reducer = commit(comm, &m, with_momentum());
    for (int t = 0; t < TENSORS; t++) CHECK(gw_reducer_takes_momentum(reducer, t) == 0);
    take_steps(reducer, &m, rank, 2);
    CHECK(m.told[MATRIX] == 0);
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void exact_tensors_keep_it(void) {
    run("compress=dgc", 1, keeps_alone);
    run("arch=hierarchical compress=dgc", 2, keeps_alone);
}

static void refuses_at_commit(int rank) {
    static model m;
    gw_comm *comm = join(rank);
    gw_reducer_options options = with_momentum();
    options.momentum_use = GW_MOMENTUM_KEPT;
    CHECK(!commit(comm, &m, options));
    CHECK(strstr(gw_last_error(NULL), "use dgc:momentum=0, or an optimiser with one plain momentum"));
    options.momentum = 1.5;
    CHECK(!commit(comm, &m, options));
    CHECK(strstr(gw_last_error(NULL), "has to be 0 to 1"));
    gw_finalize(comm);
}

/* A program that was built before the library asked for the momentum. */
static void old_callers(int rank) {
    static model m;
    char text[200];
    gw_comm *comm = join(rank);
    gw_reducer_options options = with_momentum();
    options.size = offsetof(gw_reducer_options, momentum);
    gw_reducer *reducer = commit(comm, &m, options);
    CHECK(reducer && gw_reducer_takes_momentum(reducer, MATRIX) == 0);
    gw_reducer_strategy(reducer, text, sizeof text);
    CHECK(strstr(text, "compress=dgc:momentum=0,warmup=1000"));
    gw_reducer_close(reducer);
    line = "compress=dgc:momentum=0.9";
    CHECK(!commit(comm, &m, options));
    CHECK(strstr(gw_last_error(NULL), "does not say which momentum its optimiser has"));
    gw_finalize(comm);
}

static void commits_say_why(void) {
    run("compress=dgc", 2, refuses_at_commit);
    run("compress=dgc", 2, old_callers);
}

/* A coded collective has no optimiser: its line says all. */
static void codes_alone(int rank) {
    gw_comm *comm = join(rank);
    gw_coded_options options = GW_CODED_OPTIONS_DEFAULT;
    gw_coded *coded = NULL;
    char text[300];
    options.name = "gradient";
    options.count = COUNT;
    static const struct {
        const char *asked, *done;
    } lines[] = {{"compress=dgc", "compress=dgc:momentum=0,warmup=1000"},
                 {"compress=dgc:momentum=0.9,warmup=3", "compress=dgc:momentum=0.9,warmup=3"}};
    for (size_t i = 0; i < 2; i++) {
        options.strategy = lines[i].asked;
        CHECK_EQ(GW_OK, gw_coded_open(&coded, comm, &options));
        gw_coded_describe(coded, text, sizeof text);
        CHECK(strstr(text, lines[i].done));
        CHECK_EQ(GW_OK, gw_coded_run(coded, input, decoded));
        gw_coded_close(coded);
    }
    gw_finalize(comm);
}

static void collectives_follow_their_line(void) { run("", 2, codes_alone); }

/* Warm-up. Elements whose number is a multiple of 1,024 are the largest, then those of 256, 64, 16 and 4: so every
 * stage sends neighbours at one distance, and the bytes of a payload are known. */

#define WIDE (1 << 21)
#define STAGES 6 /* the last one after the warm-up */

static const double densities[STAGES] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001};
static const int value_bytes[STAGES] = {5, 5, 5, 6, 6, 6};

static float staged(size_t i) {
    float value = 1;
    for (size_t every = 4; every <= 1024; every *= 4)
        if (i % every == 0) value *= 1000;
    return value;
}

static size_t nonzero(const float *x, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += x[i] != 0;
    return found;
}

static bool within(double value, double expected) { return fabs(value / expected - 1) <= 0.05; }

static void follows_warmup(int rank) {
    float *gradient = malloc(WIDE * sizeof *gradient);
    gw_comm *comm = join(rank);
    gw_reducer_tensor tensor = {.name = "wide", .count = WIDE, .gradient = gradient};
    gw_reducer_options options = with_momentum();
    gw_reducer *reducer = NULL;
    options.strategy = line;
    options.steps = 5 * (STAGES - 1); /* a fifth of it: one step for each stage */
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, &tensor, 1, &options));
    double payloads = world == 2 ? 1 : 1.5; /* one pass: to the other; two passes: three quarters in each */
    for (int step = 0; step < STAGES; step++) {
        uint64_t before = gw_reducer_read_counters(reducer).bytes_sent;
        for (size_t i = 0; i < WIDE; i++) gradient[i] = staged(i);
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, 0));
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
        CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
        CHECK_EQ(GW_OK, gw_barrier(comm));
        double bytes = (double)(gw_reducer_read_counters(reducer).bytes_sent - before);
        double values = densities[step] * WIDE, expected = payloads * values * value_bytes[step];
        double arrived = (double)nonzero(gradient, WIDE);
        CHECK(within(bytes, expected) && within(arrived, values));
        if (!within(bytes, expected) || !within(arrived, values))
            printf("    step %d: %.0f bytes, not %.0f; %.0f values, not %.0f\n", step, bytes, expected, arrived,
                   values);
    }
    gw_reducer_close(reducer);
    gw_finalize(comm);
    free(gradient);
}

static void density_follows_the_warmup(void) {
    run("compress=dgc", 2, follows_warmup);
    run("compress=dgc", 4, follows_warmup);
}

TEST_MAIN(CASE(dgc_follows_the_paper), CASE(dgc_masks), CASE(takes_what_is_known), CASE(never_two_momenta),
          CASE(momentum_moves_to_the_codec), CASE(servers_are_told), CASE(exact_tensors_keep_it), CASE(commits_say_why),
          CASE(collectives_follow_their_line), CASE(density_follows_the_warmup))
