/* test_feedback.c - error feedback: decoded values plus residuals equal the input, for every codec, on one pass and on
 * both; the guard sends exact. */
#include "codec_run.h"

#include <pthread.h>

#define STEPS 1000

static const char *const compensated[] = {
    "fp16:feedback=worker",
    "bf16:feedback=worker",
    "int8:feedback=worker",
    "onebit",
    "onebit:threshold=mean",
    "qsgd:bits=1,feedback=worker",
    "qsgd:bits=2,feedback=worker",
    "qsgd:feedback=worker",
    "qsgd:bits=2,elias,feedback=worker",
    "terngrad:feedback=worker",
    "terngrad:shared,feedback=worker",
    "topk:ratio=0.01",
    "topk:ratio=1",
    "randomk",
    "threshold",
    "powersgd",
    "dgc:momentum=0,ratio=0.01,warmup=0",
    NULL,
};

#define COUNT 3000
static float input[140000], decoded[140000];

/* The larger; a NaN is larger than anything. */
static double worse(double a, double b) { return isnan(b) ? INFINITY : fmax(a, b); }

static double worst_gap(const double *came, const double *went, const float *kept, size_t count) {
    double worst = 0;
    for (size_t i = 0; i < count; i++) worst = worse(worst, fabs(came[i] - went[i] - (double)kept[i]));
    return worst;
}

static void feedback_conserves(void) {
    for (int s = 0; compensated[s]; s++) {
        double came[COUNT] = {0}, went[COUNT] = {0}, largest = 0;
        codec_run r;
        if (!run_open(&r, compensated[s], 50, COUNT)) continue;
        for (int step = 0; step < STEPS; step++) {
            fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
            memset(decoded, 0, COUNT * sizeof *decoded);
            run_encode(&r, input);
            run_decode(&r, decoded);
            for (size_t i = 0; i < COUNT; i++) {
                came[i] += (double)input[i];
                went[i] += (double)decoded[i];
                largest = worse(largest, fabs((double)decoded[i]) + fabs((double)r.state.residual[i]));
            }
        }
        /* a few roundings a step, of numbers up to the largest, in random directions */
        double worst = worst_gap(came, went, r.state.residual, COUNT), allowed = 4 * sqrt(STEPS) * largest * 0x1p-23;
        if (worst > allowed) printf("    %s: %g is missing, %g allowed\n", compensated[s], worst, allowed);
        CHECK(worst <= allowed);
        if (largest > 100) printf("    %s: residuals grow to %g\n", compensated[s], largest);
        CHECK(largest <= 100); /* inputs are below 0.04 */
        run_close(&r);
    }
}

/* One value in 64 matters: what waits of it is at most two of its gradients, and small ones have no more than a large
 * one's size of it. */
static void onebit_does_not_make_sparse_gradients_wait(void) {
    codec_run r;
    run_open(&r, "onebit", 1, COUNT);
    double waits = 0, large = 0, worst = 0;
    for (int step = 0; step < 100; step++) {
        fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
        for (size_t i = 0; i < COUNT; i++) input[i] = i % 64 ? input[i] / 64 : 0.01f;
        run_encode(&r, input);
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 64 == 0) waits += (double)r.state.residual[i], large += 0.01;
        worst = fmax(worst, fabs((double)r.state.residual[i]));
    }
    if (waits > 2 * large || worst > 0.03) printf("    %g gradients wait, the most is %g\n", waits / large, worst);
    CHECK(waits <= 2 * large);
    CHECK(worst <= 0.03);
    run_close(&r);
}

/* The report is the norm of the residual, and of the values to be sent. */
static void reports_are_true(void) {
    for (int s = 0; codec_setup(s); s++) {
        codec_run r;
        if (!run_open(&r, codec_setup(s), 50, COUNT)) continue;
        double error = 0, came = 0;
        fill_input(input, COUNT, INPUT_NORMAL, 4);
        memset(decoded, 0, COUNT * sizeof *decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
        for (size_t i = 0; i < COUNT; i++) {
            double off = (double)input[i] - (double)decoded[i];
            error += off * off;
            came += (double)input[i] * (double)input[i];
        }
        if (r.call.clip == 1) { /* DGC's clipping sends less than came in */
            CHECK(fabs(r.report.input - came) <= 1e-4 * came);
            CHECK(fabs(r.report.error - error) <= 1e-4 * error + 1e-6 * came);
        }
        run_close(&r);
    }
}

/* Three workers and, for each third of the blocks, an owner: what all ranks decode in the end, plus the owners'
 * residuals, plus the workers' mean residuals, is the sum of the mean gradients. */
typedef struct squeeze {
    codec_run worker[3];
    gw_codec_setup second;
    gw_codec_state owner[3];
    gw_codec_range part[3];
    uint8_t *payload; /* of one part */
    size_t room;
} squeeze;

enum { SQUEEZE_WORLD = 3 };

static void squeeze_open(squeeze *q, const char *text, size_t count) {
    for (int w = 0; w < SQUEEZE_WORLD; w++) {
        run_open(&q->worker[w], text, 1, count);
        q->worker[w].call.rank = (uint32_t)w;
        q->worker[w].call.world = SQUEEZE_WORLD;
    }
    q->second = gw_codec_second(&q->worker[0].setup);
    uint64_t block = q->second.codec->block, blocks = (count + block - 1) / block;
    for (uint64_t w = 0; w < SQUEEZE_WORLD; w++) {
        uint64_t first = blocks * w / SQUEEZE_WORLD * block, end = blocks * (w + 1) / SQUEEZE_WORLD * block;
        q->part[w] = (gw_codec_range){&q->worker[0].tensor, first, (end < count ? end : count) - first};
        CHECK_EQ(GW_OK, gw_codec_state_make(&q->owner[w], &q->second, q->part[w], NULL));
    }
    q->room = q->worker[0].capacity[0];
    q->payload = malloc(q->room);
}

/* One step of all ranks; result += the decoded sum. */
static void squeeze_step(squeeze *q, float *const *gradient, double *result) {
    size_t bytes;
    for (int w = 0; w < SQUEEZE_WORLD; w++) q->worker[w].call.step++;
    for (int o = 0; o < SQUEEZE_WORLD; o++) {
        gw_codec_range part = q->part[o];
        float *mean = calloc(part.count + 1, sizeof *mean), *out = calloc(part.count + 1, sizeof *out);
        for (int w = 0; w < SQUEEZE_WORLD; w++) {
            codec_run *me = &q->worker[w];
            if (o == 0) gw_codec_prepare(&me->setup, &me->call, &me->tensor, &me->state, gradient[w]);
            CHECK_EQ(GW_OK, gw_codec_encode(&me->setup, &me->call, part, &me->state, gradient[w] + part.first,
                                            q->payload, q->room, &bytes, NULL, NULL));
            CHECK_EQ(GW_OK, gw_codec_decode_add(&me->setup, &me->call, part, q->payload, bytes, 1.0f / SQUEEZE_WORLD,
                                                mean, NULL));
        }
        gw_codec_call again = q->worker[o].call;
        again.pass = 1;
        gw_codec_prepare(&q->second, &again, part.tensor, &q->owner[o], NULL);
        CHECK_EQ(GW_OK, gw_codec_encode(&q->second, &again, part, &q->owner[o], mean, q->payload, q->room, &bytes, NULL,
                                        NULL));
        CHECK_EQ(GW_OK, gw_codec_decode_add(&q->second, &again, part, q->payload, bytes, 1.0f, out, NULL));
        for (uint64_t i = 0; i < part.count; i++) result[part.first + i] += (double)out[i];
        free(out);
        free(mean);
    }
}

static void squeeze_close(squeeze *q) {
    for (int w = 0; w < SQUEEZE_WORLD; w++) {
        run_close(&q->worker[w]);
        gw_codec_state_free(&q->owner[w]);
    }
    free(q->payload);
}

static void check_squeeze(const char *text, size_t count, int steps) {
    squeeze q = {0};
    squeeze_open(&q, text, count);
    float *gradient[SQUEEZE_WORLD];
    double *came = calloc(count, sizeof *came), *went = calloc(count, sizeof *went), worst = 0, largest = 0;
    for (int w = 0; w < SQUEEZE_WORLD; w++) gradient[w] = malloc(count * sizeof(float));
    for (int step = 0; step < steps; step++) {
        for (int w = 0; w < SQUEEZE_WORLD; w++) {
            fill_input(gradient[w], count, INPUT_NORMAL, (uint64_t)(step * SQUEEZE_WORLD + w));
            for (size_t i = 0; i < count; i++) came[i] += (double)gradient[w][i] / SQUEEZE_WORLD;
        }
        squeeze_step(&q, gradient, went);
    }
    for (int o = 0; o < SQUEEZE_WORLD; o++) {
        for (uint64_t i = q.part[o].first; i < q.part[o].first + q.part[o].count; i++) {
            double kept = (double)q.owner[o].residual[i - q.part[o].first];
            largest = worse(largest, fabs(kept) + 1);
            for (int w = 0; w < SQUEEZE_WORLD; w++) kept += (double)q.worker[w].state.residual[i] / SQUEEZE_WORLD;
            worst = worse(worst, fabs(came[i] - went[i] - kept));
        }
    }
    double allowed = 8 * sqrt(steps) * largest * 0x1p-23;
    if (worst > allowed) printf("    %s: %g is missing on two passes, %g allowed\n", text, worst, allowed);
    CHECK(worst <= allowed);
    for (int w = 0; w < SQUEEZE_WORLD; w++) free(gradient[w]);
    free(went);
    free(came);
    squeeze_close(&q);
}

static void both_passes_conserve(void) {
    check_squeeze("doublesqueeze", 10000, STEPS / 2);
    check_squeeze("qsgd:bits=2,feedback=both", 4000, STEPS / 2);
    check_squeeze("onebit:feedback=both", 6000, 100);
    check_squeeze("int8:feedback=both", 4000, 100);
    check_squeeze("doublesqueeze:codec=topk", 140000, 20);
}

/* PowerSGD of a matrix of rank 2 is exact once Q has settled. */
static void powersgd_finds_low_rank(void) {
    codec_run r;
    enum { ROWS = 40, COLS = 70 };
    run_open(&r, "powersgd:rank=2", ROWS, ROWS * COLS);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            input[i * COLS + j] = (float)((i - 20) * (j % 7) * 0.01 + (i % 3) * (30 - j) * 0.02);
        }
    }
    for (int step = 0; step < 3; step++) {
        memset(decoded, 0, ROWS * COLS * sizeof *decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
    }
    CHECK(sqrt(r.report.error / r.report.input) < 1e-4);
    for (int i = 0; i < ROWS * COLS; i++) CHECK(fabsf(decoded[i] - input[i]) < 1e-3f);
    CHECK_EQ((ROWS + COLS) * 2 * 4, r.bytes[0] + r.bytes[1]);
    CHECK(gw_codec_refuses(&r.setup, &(gw_codec_tensor){.name = "bias", .count = 100, .rows = 1, .cols = 100}, 1) !=
          NULL);
    run_close(&r);
}

/* A bad tensor is sent exact, which flushes its residual, until its running error has halved. */
static void guard_sends_exact(void) {
    codec_run r;
    gw_codec_guard guard = {.limit = 0.5};
    run_open(&r, "topk:ratio=0.001", 1, COUNT);
    bool was_exact = false, recovered = false;
    gw_codec_setup exact = gw_codec_exact(&r.setup);
    uint8_t *payload = malloc(COUNT * sizeof(float));
    for (int step = 0; step < 30 && !recovered; step++) {
        fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
        if (guard.exact) {
            size_t bytes;
            r.report = (gw_codec_report){0};
            CHECK_EQ(GW_OK, gw_codec_encode(&exact, &r.call, gw_codec_whole(&r.tensor), &r.state, input, payload,
                                            COUNT * sizeof(float), &bytes, &r.report, NULL));
            CHECK_EQ(COUNT * sizeof(float), bytes);
            for (size_t i = 0; i < COUNT; i++) CHECK(r.state.residual[i] == 0);
        } else {
            run_encode(&r, input);
        }
        bool changed = gw_codec_guard_update(&guard, &r.report);
        was_exact |= guard.exact;
        recovered = was_exact && changed && !guard.exact;
        CHECK(guard.exact || was_exact || guard.residual_norm > 0);
    }
    CHECK(was_exact);
    CHECK(recovered);
    free(payload);
    run_close(&r);
}

/* Several threads encode ranges of one tensor with one state, as lanes do. */
typedef struct lane {
    pthread_t thread;
    codec_run *run;
    gw_codec_range range;
    uint8_t *payload;
    size_t bytes, room;
} lane;

static void *encode_lane(void *data) {
    lane *l = data;
    gw_codec_encode(&l->run->setup, &l->run->call, l->range, &l->run->state, input + l->range.first, l->payload,
                    l->room, &l->bytes, NULL, NULL);
    return NULL;
}

static void check_lanes(const char *text) {
    enum { LANES = 4, LENGTH = 140000 };
    codec_run whole, shared;
    lane lanes[LANES];
    run_open(&whole, text, 1, LENGTH);
    run_open(&shared, text, 1, LENGTH);
    fill_input(input, LENGTH, INPUT_NORMAL, 1);
    run_encode(&whole, input);
    shared.call.step++;
    gw_codec_prepare(&shared.setup, &shared.call, &shared.tensor, &shared.state, input);
    uint64_t block = whole.setup.codec->block, blocks = (LENGTH + block - 1) / block;
    for (uint64_t i = 0; i < LANES; i++) {
        uint64_t first = blocks * i / LANES * block, end = blocks * (i + 1) / LANES * block;
        lanes[i] = (lane){.run = &shared, .range = {&shared.tensor, first, (end < LENGTH ? end : LENGTH) - first}};
        lanes[i].room = gw_codec_bound(&shared.setup, &shared.call, lanes[i].range);
        lanes[i].payload = malloc(lanes[i].room + 1);
        CHECK_EQ(0, pthread_create(&lanes[i].thread, NULL, encode_lane, &lanes[i]));
    }
    size_t at = 0;
    for (int i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        CHECK(at + lanes[i].bytes <= whole.bytes[0]);
        CHECK(memcmp(whole.payload[0] + at, lanes[i].payload, lanes[i].bytes) == 0);
        at += lanes[i].bytes;
        free(lanes[i].payload);
    }
    CHECK_EQ(whole.bytes[0], at);
    CHECK(memcmp(whole.state.residual, shared.state.residual, LENGTH * sizeof(float)) == 0);
    run_close(&shared);
    run_close(&whole);
}

static void threads_share_a_state(void) {
    check_lanes("onebit");
    check_lanes("qsgd:feedback=worker");
    check_lanes("dgc:momentum=0.9,warmup=0");
}

static void setups_are_read(void) {
    gw_codec_setup setup;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_codec_parse("dgc:ratio=0.002,warmup=500", &setup, &error));
    CHECK(setup.codec == &gw_codec_dgc && gw_codec_value(&setup, "ratio") == 0.002);
    CHECK(gw_codec_value(&setup, "warmup") == 500 && gw_codec_value(&setup, "momentum") == 0);
    setup = gw_codec_second(&setup);
    CHECK(setup.codec == &gw_codec_dgc && gw_codec_value(&setup, "warmup") == 500 && gw_codec_residual(&setup));
    CHECK_EQ(GW_OK, gw_codec_parse("doublesqueeze:codec=qsgd,limit=0.5", &setup, &error));
    CHECK(setup.codec == &gw_codec_qsgd && setup.feedback == GW_FEEDBACK_BOTH && setup.limit == 0.5);
    CHECK_EQ(GW_OK, gw_codec_parse("doublesqueeze", &setup, &error));
    CHECK(setup.codec == &gw_codec_onebit && setup.limit == 0);
    CHECK_EQ(GW_OK, gw_codec_parse("int8:limit=0.25,feedback=worker", &setup, &error));
    CHECK(setup.feedback == GW_FEEDBACK_WORKER && setup.limit == 0.25);
    CHECK_EQ(GW_OK, gw_codec_parse("onebit:feedback=none", &setup, &error));
    CHECK(setup.feedback == GW_FEEDBACK_NONE && gw_codec_default(setup.codec).feedback == GW_FEEDBACK_BOTH);
    CHECK_EQ(GW_OK, gw_codec_parse("terngrad:shared", &setup, &error));
    CHECK(gw_codec_merges(&setup) && gw_codec_rounds(&setup) == 2);
    setup = gw_codec_second(&setup);
    CHECK(!gw_codec_merges(&setup) && gw_codec_rounds(&setup) == 1 && !gw_codec_residual(&setup));
    CHECK_STR("", error.text);
    static const char *const wrong[] = {"",
                                        "nope",
                                        "topk:ratio=0",
                                        "topk:ratio=2",
                                        "topk:ratio=x",
                                        "topk:ratio",
                                        "topk:k=3",
                                        "qsgd:bits=3",
                                        "powersgd:rank=2.5",
                                        "onebit:feedback=yes",
                                        "topk:",
                                        "dgc:warmup=-1",
                                        "topk:ratio=nan",
                                        "topk:ratio=0.1,ratio=0.2",
                                        "randomk:limit=0.1",
                                        "none:feedback=worker",
                                        "doublesqueeze:codec=powersgd",
                                        "doublesqueeze:codec=nope"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_codec_setup before = setup;
        error = (gw_error){0};
        gw_status status = gw_codec_parse(wrong[i], &setup, &error);
        if (status != GW_INVALID) printf("    \"%s\" is taken\n", wrong[i]);
        CHECK_EQ(GW_INVALID, status);
        CHECK(error.text[0] && setup.codec == before.codec);
    }
    error = (gw_error){0};
    CHECK_EQ(GW_UNSUPPORTED, gw_codec_parse("terngrad:shared,limit=0.1", &setup, &error));
    CHECK_STR("compress=terngrad: payloads are reduced in flight, so no rank can send one exact on its own: no error "
              "limit is possible",
              error.text);
}

/* Every technique of the axis becomes a setup, and values reach the parameter they were given for. */
static void settings_become_setups(void) {
    gw_codec_setup setup;
    for (int i = 0; gw_compress_techniques[i]; i++) {
        const gw_technique *technique = gw_compress_techniques[i];
        double values[GW_TECHNIQUE_PARAMS_MAX];
        gw_technique_default(technique, values);
        CHECK_EQ(GW_OK, gw_codec_from_setting(technique, values, &setup, NULL));
        CHECK(&setup.codec->technique == technique || strcmp(technique->name, "doublesqueeze") == 0);
        CHECK(gw_codec_find(technique->name) == NULL || gw_codec_find(technique->name) == setup.codec);
        int feedback = gw_technique_param(technique, "feedback"), limit = gw_technique_param(technique, "limit");
        if (feedback >= 0) CHECK(setup.feedback == (gw_codec_feedback)values[feedback]);
        for (int p = 0; technique->params && technique->params[p].name; p++) values[p] = technique->params[p].lowest;
        if (feedback >= 0) values[feedback] = GW_FEEDBACK_WORKER;
        if (limit >= 0) values[limit] = 0.125;
        CHECK_EQ(GW_OK, gw_codec_from_setting(technique, values, &setup, NULL));
        if (feedback >= 0) CHECK_EQ(GW_FEEDBACK_WORKER, setup.feedback);
        CHECK(setup.limit == (limit >= 0 ? 0.125 : 0));
        for (int p = 0; p < feedback; p++) CHECK(gw_codec_value(&setup, technique->params[p].name) == values[p]);
    }
}

TEST_MAIN(CASE(setups_are_read), CASE(settings_become_setups), CASE(feedback_conserves),
          CASE(onebit_does_not_make_sparse_gradients_wait), CASE(reports_are_true), CASE(both_passes_conserve),
          CASE(powersgd_finds_low_rank), CASE(guard_sends_exact), CASE(threads_share_a_state))
