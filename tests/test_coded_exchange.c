/* test_coded_exchange.c - codecs through plans: every codec and form over the simulated network: results, bytes on the
 * wire, and limits. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "coded_net.h"

/* Heavy-tailed values, as gradients are. */
static void fill(mini *m, const gw_codec_tensor *what, uint64_t step) {
    for (int r = 0; r < m->world; r++) {
        gw_rng rng = gw_rng_make(step * 100 + (uint64_t)r, 3);
        for (int t = 0; t < 2; t++) {
            for (uint64_t i = 0; i < what[t].count; i++) {
                double u = gw_rng_unit(&rng) * 2 - 1;
                m->ranks[r].gradient[t][i] = (float)(u * u * u);
            }
        }
    }
}

static double relative_error(mini *m, const gw_codec_tensor *what, int t) {
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < what[t].count; i++) {
        double mean = 0;
        for (int r = 0; r < m->world; r++) mean += m->ranks[r].gradient[t][i];
        mean /= m->world;
        error += (m->ranks[0].result[t][i] - mean) * (m->ranks[0].result[t][i] - mean);
        norm += mean * mean;
    }
    return sqrt(error / norm);
}

static void all_ranks_agree(mini *m, const gw_codec_tensor *what) {
    for (int r = 1; r < m->world; r++)
        for (int t = 0; t < 2; t++)
            CHECK(memcmp(m->ranks[0].result[t], m->ranks[r].result[t], what[t].count * sizeof(float)) == 0);
}

/* What one step may lose at most of the mean's norm; LOSS_MAX where a codec is not named here. */
#define LOSS_MAX 20 /* unbiased codecs with few bits: a large variance */
static const struct {
    const char *codec;
    double loss;
} losses[] = {{"none", 1e-6},       {"fp16", 2e-3},
              {"bf16", 2e-2},       {"int8", 2e-2},
              {"onebit", 3},        {"qsgd:bits=4", 1},
              {"qsgd:bits=8", 0.2}, {"terngrad", 4},
              {"topk", 1},          {"randomk", 6},
              {"threshold", 1},     {"dgc", 1.1},
              {"powersgd", 1.1},    {"doublesqueeze:codec=topk", 1.1},
              {"doublesqueeze", 3}};

/* Of the first that the text begins with. */
static double loss_max(const char *text) {
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
        if (strncmp(text, losses[i].codec, strlen(losses[i].codec)) == 0) return losses[i].loss;
    return LOSS_MAX;
}

static void gives_all_ranks_the_same_near_mean(const char *text, int world) {
    size_t count = 64 * 200;
    const gw_codec_tensor *what = tensors(count);
    mini m;
    open_mini(&m, world, "auto", text, count, GW_FORM_AUTO);
    double loss = 0;
    for (uint64_t step = 0; step < 3; step++) {
        fill(&m, what, step);
        run_step(&m, step);
        all_ranks_agree(&m, what);
        if (step == 0) loss = relative_error(&m, what, 0); /* before residuals join in */
    }
    if (!(loss <= loss_max(text))) printf("    %s, world %d: loses %g\n", text, world, loss);
    CHECK(loss <= loss_max(text));
    CHECK(relative_error(&m, what, 1) < 1e-6); /* too small to be worth coding: sent exact */
    close_mini(&m);
}

static void every_codec_gives_all_ranks_the_same_near_mean(void) {
    char text[GW_TECHNIQUE_TEXT_BYTES];
    for (const gw_technique *const *t = gw_compress_techniques; *t; t++)
        for (int i = 0; gw_technique_example(*t, i, text); i++)
            for (int world = 1; world <= MINI_WORLD_MAX; world += world < 4 ? 1 : 5)
                gives_all_ranks_the_same_near_mean(text, world);
}

static void two_pass_and_one_pass_both_work(void) {
    size_t count = 64 * 200;
    const gw_codec_tensor *what = tensors(count);
    for (int form = GW_FORM_ONE_PASS; form <= GW_FORM_TWO_PASS; form++) {
        mini m;
        open_mini(&m, 5, "auto", "int8", count, (gw_coded_form)form);
        CHECK_EQ(form, gw_coded_exchange_chosen(m.ranks[0].exchange));
        fill(&m, what, 1);
        run_step(&m, 1);
        all_ranks_agree(&m, what);
        CHECK(relative_error(&m, what, 0) < 0.03);
        close_mini(&m);
    }
}

static uint64_t bytes_of_step(const char *codec, int world, size_t count, gw_coded_form form, gw_coded_form *chosen) {
    mini m;
    open_mini(&m, world, "auto", codec, count, form);
    *chosen = gw_coded_exchange_chosen(m.ranks[0].exchange);
    fill(&m, tensors(count), 1);
    run_step(&m, 1);
    uint64_t most = 0;
    for (int r = 0; r < world; r++) {
        gw_engine_counters counters = gw_engine_count(gw_core_engine(m.ranks[r].core));
        if (counters.bytes_sent > most) most = counters.bytes_sent;
    }
    close_mini(&m);
    return most;
}

/* The busiest rank's bytes against dense 2n(p-1)/p, which also is what is promised for each form. */
static void bytes_on_the_wire(void) {
    size_t count = 64 * 32768;
    gw_coded_form chosen;
    for (int world = 2; world <= MINI_WORLD_MAX; world++) {
        double dense = 2.0 * (double)(count * 4) * (world - 1) / world;
        double onebit = (double)bytes_of_step("onebit", world, count, GW_FORM_TWO_PASS, &chosen) / dense;
        double topk = (double)bytes_of_step("topk:ratio=0.001", world, count, GW_FORM_TWO_PASS, &chosen) / dense;
        double onebit_all = (double)bytes_of_step("onebit", world, count, GW_FORM_ONE_PASS, &chosen) / dense;
        double topk_all = (double)bytes_of_step("topk:ratio=0.001", world, count, GW_FORM_ONE_PASS, &chosen) / dense;
        printf("    world %d: onebit 1/%.1f in two passes, %.2f/60 in one; topk 0.1 %% 1/%.0f and %.2f/1300\n", world,
               1 / onebit, onebit_all * 60, 1 / topk, topk_all * 1300);
        CHECK(onebit <= 1.0 / 30);
        CHECK(topk <= 1.0 / 600);
        CHECK(onebit_all <= world / 60.0);
        CHECK(topk_all <= world / 1300.0);
        uint64_t automatic = bytes_of_step("onebit", world, count, GW_FORM_AUTO, &chosen);
        CHECK((double)automatic / dense <= (onebit < onebit_all ? onebit : onebit_all) * 1.001);
    }
}

/* Beyond its limit a tensor is sent exact, together with its residual. */
static void a_limit_sends_exact(void) {
    size_t count = 64 * 100;
    const gw_codec_tensor *what = tensors(count);
    mini m;
    open_mini(&m, 3, "auto", "topk:ratio=0.001,limit=0.05", count, GW_FORM_AUTO);
    for (uint64_t step = 0; step < 2; step++) {
        fill(&m, what, step);
        run_step(&m, step);
        CHECK(m.ranks[0].coded[0].guard.exact); /* from the next step on */
    }
    for (size_t i = 0; i < count; i++) CHECK(m.ranks[0].coded[0].state.residual[i] == 0);
    close_mini(&m);
}

static void impossible_forms_are_refused(void) {
    mini m;
    gw_error error = {0};
    open_mini(&m, 2, "auto", "fp16", 64 * 100, GW_FORM_AUTO);
    gw_coded_part part = {&m.ranks[0].coded[0], 0, 64 * 100};
    gw_coded_exchange_config config = {.parts = &part, .count = 1, .arch = "auto"};
    gw_coded_exchange *x = NULL;
    CHECK_EQ(GW_OK, gw_codec_parse("int8", &config.setup, &error));
    config.setup.form = GW_FORM_IN_FLIGHT;
    CHECK_EQ(GW_UNSUPPORTED, gw_coded_exchange_open(&x, m.ranks[0].core, m.ranks[0].team, &config, &error));
    CHECK(strstr(error.text, "compress=int8:form=inflight") != NULL);
    error = (gw_error){0};
    CHECK_EQ(GW_OK, gw_codec_parse("fp16", &config.setup, &error));
    config.setup.limit = 0.1;
    CHECK_EQ(GW_UNSUPPORTED, gw_coded_exchange_open(&x, m.ranks[0].core, m.ranks[0].team, &config, &error));
    CHECK(strstr(error.text, "no error limit is possible") != NULL);
    close_mini(&m);
}

/* The length of a piece has 31 bits. Nothing of that size is allocated before it is refused. */
static void pieces_of_2_gib_are_refused(void) {
    mini m;
    gw_error error = {0};
    const int hosts[2] = {0, 1};
    gw_topology topology = {.world = 2, .host_of = hosts};
    gw_lanes lanes = gw_lanes_of(&topology, 0, true);
    gw_codec_tensor huge = gw_codec_tensor_make("huge", (size_t)1 << 16, (size_t)1 << 16);
    gw_coding coding;
    gw_coded_tensor tensor = {0};
    gw_coded_part part = {&tensor, 0, huge.count};
    gw_coded_exchange_config config = {.parts = &part, .count = 1, .ranks = 2, .arch = "auto"};
    gw_coded_exchange *x = NULL;
    open_mini(&m, 2, "auto", "fp16", 64 * 100, GW_FORM_AUTO);
    CHECK_EQ(GW_OK, gw_codec_parse("qsgd:bits=8,form=onepass", &config.setup, &error));
    CHECK_EQ(GW_OK, gw_coding_open(&coding, &config.setup, 42, 0, 2, &error));
    CHECK_EQ(GW_OK, gw_coding_tensor_open(&coding, &tensor, &huge, false, &lanes, false, &error));
    CHECK_EQ(GW_UNSUPPORTED, gw_coded_exchange_open(&x, m.ranks[0].core, m.ranks[0].team, &config, &error));
    CHECK(strstr(error.text, "huge: a piece of it may take ") && strstr(error.text, "cut the tensor in two"));
    gw_coding_tensor_free(&tensor);
    close_mini(&m);
}

TEST_MAIN(CASE(every_codec_gives_all_ranks_the_same_near_mean), CASE(two_pass_and_one_pass_both_work),
          CASE(bytes_on_the_wire), CASE(a_limit_sends_exact), CASE(impossible_forms_are_refused),
          CASE(pieces_of_2_gib_are_refused))
