/* test_coded.c - the calls of gradwire/coded.h in real processes: results against one process or a reducer, runs in the
 * background, recordings and saved state. test_coded_parts.c has several hosts, test_coded_refused.c what goes wrong.
 */
#include "coded_job.h"
#include "coded_reference.h"
#include "gradwire/trace.h"

#define RUNS 3

static void fill(float *values, size_t count, int rank, uint64_t step) {
    for (size_t i = 0; i < count; i++) values[i] = scene_input(rank, step, i);
}

/* All-reduces. */

/* The same tensor as the only one of a reducer. */
static gw_reducer *open_reducer(gw_comm *comm, const char *strategy, float *gradient) {
    gw_reducer *reducer = NULL;
    char text[256];
    snprintf(text, sizeof text, "%s sync=bsp schedule=fifo", strategy);
    gw_reducer_tensor tensor = {.name = "layer", .count = COUNT, .gradient = gradient, .rows = COUNT / 60};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = text;
    options.seed = 5;
    options.momentum_use = GW_MOMENTUM_OFFERED;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, &tensor, 1, &options));
    return reducer;
}

static void one_allreduce(gw_comm *comm, const char *compress) {
    static float in[COUNT], outputs[2][COUNT], gradient[COUNT], first[COUNT];
    const size_t bytes = sizeof in;
    char strategy[200];
    int rank = gw_rank(comm);
    snprintf(strategy, sizeof strategy, "arch=ring compress=%s", compress);
    gw_coded_options options = make_options(GW_COLL_ALLREDUCE, strategy, COUNT);
    options.columns = 60;
    gw_coded *coded = open_one(comm, &options);
    gw_reducer *reducer = open_reducer(comm, strategy, gradient);
    for (uint64_t step = 0; coded && reducer && step < RUNS; step++) {
        float *out = outputs[step % 2];
        fill(in, COUNT, rank, step);
        fill(out, COUNT, rank, step);
        fill(gradient, COUNT, rank, step);
        CHECK_EQ(GW_OK, gw_coded_run(coded, step == 1 ? out : in, out));
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, 0));
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
        CHECK_EQ(GW_OK, gw_reducer_wait(reducer, 0));
        CHECK(memcmp(out, gradient, bytes) == 0);
        memcpy(first, out, bytes);
        CHECK_EQ(GW_OK, gw_broadcast(comm, first, first, COUNT, GW_F32, 0));
        CHECK(memcmp(out, first, bytes) == 0);
    }
    CHECK(gw_coded_sent_bytes(coded) > 0);
    gw_coded_close(coded);
    gw_reducer_close(reducer);
}

static void allreduces_by_every_codec(int rank) {
    gw_comm *comm = join(rank);
    char text[GW_TECHNIQUE_TEXT_BYTES];
    for (const gw_technique *const *t = gw_compress_techniques; *t; t++)
        for (int i = 0; gw_technique_example(*t, i, text) && !test_failures; i++) one_allreduce(comm, text);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void an_allreduce_is_a_training_step_of_one_tensor(void) {
    for (int size = 2; size <= 4; size++) run_job(size, "", allreduces_by_every_codec);
}

/* Reduce-scatters and all-gathers. */

static coded_scene make_scene(gw_collective what, const char *codec, bool even) {
    static const int hosts[REFERENCE_WORLD] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const size_t uneven[] = {4080, 0, 1020, 2040};
    gw_error error = {0};
    coded_scene s = {.collective = what, .topology = {.world = job_world, .host_of = hosts}, .name = "layer", .seed = 5,
                     .average = true, .coded = true, .columns = 60};
    CHECK_EQ(GW_OK, gw_codec_parse(codec, &s.setup, &error));
    for (int r = 0; r < job_world; r++) s.counts[r] = even ? 1500 : uneven[r];
    return s;
}

static void one_of_parts(gw_comm *comm, gw_collective what, const char *codec, bool even) {
    coded_scene s = make_scene(what, codec, even);
    char strategy[200];
    int rank = gw_rank(comm);
    size_t total = scene_total(&s), count = what == GW_COLL_ALLGATHER ? total : s.counts[rank];
    float *in = calloc(total + 1, sizeof *in), *out = calloc(total + 1, sizeof *out), *expected[REFERENCE_WORLD];
    for (int r = 0; r < job_world; r++) expected[r] = calloc(total + 1, sizeof **expected);
    snprintf(strategy, sizeof strategy, "arch=ring compress=%s", codec);
    gw_coded_options options = make_options(what, strategy, even ? s.counts[0] : 0);
    options.counts = even ? NULL : s.counts;
    options.columns = s.columns;
    gw_coded *coded = open_one(comm, &options);
    coded_reference *reference = reference_open(&s);
    for (uint64_t step = 0; coded && step < RUNS; step++) {
        scene_fill(&s, rank, step, in);
        CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
        reference_run(reference, step, expected);
        CHECK(memcmp(out, expected[rank], count * sizeof(float)) == 0);
    }
    gw_coded_close(coded);
    reference_close(reference);
    for (int r = 0; r < job_world; r++) free(expected[r]);
    free(in);
    free(out);
}

static void parts_by_some_codecs(int rank) {
    static const char *const codecs[] = {"fp16", "int8", "qsgd:bits=4", "onebit", "topk:ratio=0.02", "powersgd"};
    gw_comm *comm = join(rank);
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs && !test_failures; c++)
        for (int what = GW_COLL_REDUCE_SCATTER; what <= GW_COLL_ALLGATHER; what++) {
            one_of_parts(comm, (gw_collective)what, codecs[c], true);
            one_of_parts(comm, (gw_collective)what, codecs[c], false);
            if (test_failures) printf("    %s, collective %d\n", codecs[c], what);
        }
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void parts_match_plain_loops(void) {
    for (int size = 2; size <= 4; size++) run_job(size, "transport=tcp", parts_by_some_codecs);
}

/* Without a codec every type works, by the architecture. */
static void exact_ones(int rank) {
    gw_comm *comm = join(rank);
    static const char *const archs[] = {"arch=ring compress=none", "arch=direct compress=none",
                                        "arch=hierarchical compress=int8"}; /* on one host: nothing to encode */
    for (int a = 0; a < 3; a++) {
        int32_t in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
        gw_coded_options options = make_options(GW_COLL_REDUCE_SCATTER, archs[a], 2);
        options.op = GW_SUM;
        options.dtype = a < 2 ? GW_I32 : GW_F32;
        for (int i = 0; a == 2 && i < 6; i++) ((float *)in)[i] = (float)(i + 1);
        gw_coded *coded = open_one(comm, &options);
        CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
        for (int i = 0; i < 2; i++) CHECK_EQ(3 * (2 * rank + i + 1), a < 2 ? out[i] : (int32_t)((float *)out)[i]);
        gw_coded_close(coded);
    }
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void without_a_codec_it_is_the_plain_collective(void) { run_job(3, "", exact_ones); }

static void alone(int rank) {
    gw_comm *comm = join(rank);
    for (int what = GW_COLL_ALLREDUCE; what <= GW_COLL_ALLGATHER; what++) {
        float in[3] = {1, 2, 3}, out[3] = {0};
        char text[512];
        gw_coded_options options = make_options((gw_collective)what, "compress=topk", 3);
        gw_coded *coded = open_one(comm, &options);
        CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
        CHECK(memcmp(in, out, sizeof in) == 0);
        CHECK(gw_coded_describe(coded, text, sizeof text) > 0 && strstr(text, "nothing is sent") != NULL);
        CHECK_EQ(0, gw_coded_sent_bytes(coded));
        gw_coded_close(coded);
    }
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void a_single_rank_encodes_nothing(void) { run_job(1, "", alone); }

/* The strategy of the communicator. */

static void with_a_strategy(int rank) {
    gw_comm *comm = join(rank);
    static float in[COUNT], out[COUNT];
    char text[512];
    fill(in, COUNT, rank, 0);
    CHECK_EQ(GW_OK, gw_allreduce(comm, in, out, COUNT, GW_F32, GW_SUM));
    for (size_t i = 0; i < COUNT; i++) CHECK(out[i] == scene_input(0, 0, i) + scene_input(1, 0, i));
    gw_coded_options options = make_options(GW_COLL_ALLREDUCE, NULL, COUNT);
    gw_coded *coded = open_one(comm, &options);
    CHECK(gw_coded_describe(coded, text, sizeof text) < (int)sizeof text);
    CHECK_STR("allreduce of layer, 6000 x f32, avg, arch=ring compress=onebit: coded exchange among all ranks", text);
    CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
    gw_coded_close(coded);
    options = make_options(GW_COLL_REDUCE_SCATTER, "compress=fp16", 300);
    coded = open_one(comm, &options);
    gw_coded_describe(coded, text, sizeof text);
    CHECK_STR("reduce_scatter of layer, 600 x f32, avg, arch=ring compress=fp16: all-to-all of payloads among all "
              "ranks; 2 of 2 parts are sent exact",
              text);
    gw_coded_close(coded);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void plain_collectives_ignore_the_codec_of_the_communicator(void) {
    run_job(2, "arch=ring compress=onebit sync=ssp schedule=p3", with_a_strategy);
}

/* In the background. */

static void in_the_background(int rank) {
    gw_comm *comm = join(rank);
    enum { MANY = 3 };
    static float in[MANY][3 * COUNT], out[MANY][3 * COUNT], again[3 * COUNT];
    gw_coded *coded[MANY], *other[MANY];
    for (int i = 0; i < MANY; i++) {
        gw_coded_options options = make_options((gw_collective)i, "compress=topk", COUNT);
        coded[i] = open_one(comm, &options);
        other[i] = open_one(comm, &options);
    }
    for (uint64_t step = 0; step < 20; step++) {
        for (int n = 0; n < MANY; n++) { /* each rank in an order of its own */
            int i = (n + rank) % MANY;
            fill(in[i], 3 * COUNT, rank, step);
            CHECK_EQ(GW_OK, gw_coded_start(coded[i], in[i], out[i]));
            CHECK_EQ(GW_INVALID, gw_coded_start(coded[i], in[i], out[i]));
        }
        for (int i = 0; i < MANY; i++) {
            bool done = false;
            while (i == 1 && !done && !test_failures) CHECK_EQ(GW_OK, gw_coded_test(coded[i], &done));
            CHECK_EQ(GW_OK, gw_coded_wait(coded[i]));
            memset(again, 0, sizeof again);
            CHECK_EQ(GW_OK, gw_coded_run(other[i], in[i], again));
            CHECK(memcmp(out[i], again, sizeof again) == 0);
        }
    }
    CHECK_EQ(GW_OK, gw_coded_start(coded[1], in[1], out[1])); /* closed while it runs */
    for (int i = 0; i < MANY; i++) gw_coded_close(coded[i]), gw_coded_close(other[i]);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void runs_in_the_background(void) { run_job(3, "", in_the_background); }

/* In a recording. */

static char folder[] = "/tmp/test_coded.XXXXXX";

static void recorded(int rank) {
    gw_comm *comm = join(rank);
    static float in[2 * COUNT], out[COUNT];
    char path[64], words[64] = "";
    snprintf(path, sizeof path, "%s/timeline.json", folder);
    gw_coded_options options = make_options(GW_COLL_REDUCE_SCATTER, "compress=topk", COUNT);
    options.name = "the shard";
    gw_coded *coded = open_one(comm, &options);
    CHECK_EQ(GW_OK, gw_trace_start(comm, path, NULL));
    CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
    CHECK_EQ(GW_OK, gw_trace_stop(comm));
    CHECK_EQ(GW_OK, gw_barrier(comm));
    if (rank == 0) {
        snprintf(words, sizeof words, "cat %s/* | grep -q 'the shard'", folder);
        CHECK_EQ(0, system(words));
        snprintf(words, sizeof words, "cat %s/* | grep -q encode", folder);
        CHECK_EQ(0, system(words));
    }
    gw_coded_close(coded);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void recordings_know_it_by_its_name(void) {
    CHECK(mkdtemp(folder) != NULL);
    run_job(2, "", recorded);
    char words[64];
    snprintf(words, sizeof words, "rm -r %s", folder);
    CHECK_EQ(0, system(words));
}

/* State. */

static void break_off_and_continue(gw_comm *comm, gw_collective what, const char *strategy) {
    static float in[3 * COUNT], out[3 * COUNT], again[3 * COUNT];
    gw_coded_options options = make_options(what, strategy, COUNT);
    options.columns = 60;
    gw_coded *whole = open_one(comm, &options), *broken = open_one(comm, &options);
    for (uint64_t step = 0; step < 2 * RUNS; step++) {
        fill(in, 3 * COUNT, gw_rank(comm), step);
        if (step == RUNS) {
            size_t bytes = gw_coded_state_bytes(broken);
            uint8_t *saved = malloc(bytes);
            CHECK_EQ(GW_OK, gw_coded_state_save(broken, saved));
            CHECK_EQ(GW_OK, gw_coded_run(broken, in, again)); /* is not part of the state */
            CHECK_EQ(GW_OK, gw_coded_state_restore(broken, saved, bytes));
            CHECK_EQ(GW_OK, gw_coded_run(broken, in, again));
            gw_coded_close(broken);
            broken = open_one(comm, &options);
            CHECK_EQ(GW_OK, gw_coded_state_restore(broken, saved, bytes));
            free(saved);
        }
        CHECK_EQ(GW_OK, gw_coded_run(whole, in, out));
        CHECK_EQ(GW_OK, gw_coded_run(broken, in, again));
        CHECK(memcmp(out, again, COUNT * sizeof(float)) == 0);
    }
    gw_coded_close(whole);
    gw_coded_close(broken);
}

static void with_saved_state(int rank) {
    static const char *const codecs[] = {"compress=topk:ratio=0.01,feedback=both", "compress=qsgd:bits=4",
                                         "compress=powersgd", "compress=dgc:clip=0,warmup=2,momentum=0"};
    gw_comm *comm = join(rank);
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (int what = GW_COLL_ALLREDUCE; what <= GW_COLL_ALLGATHER; what++) {
            break_off_and_continue(comm, (gw_collective)what, codecs[c]);
            if (test_failures) printf("    %s, collective %d\n", codecs[c], what), exit(1);
        }
    break_off_and_continue(comm, GW_COLL_ALLREDUCE, "compress=dgc:warmup=2,momentum=0.9");
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void saved_state_continues_with_the_same_bits(void) { run_job(3, "", with_saved_state); }

TEST_MAIN(CASE(an_allreduce_is_a_training_step_of_one_tensor), CASE(parts_match_plain_loops),
          CASE(without_a_codec_it_is_the_plain_collective), CASE(a_single_rank_encodes_nothing),
          CASE(plain_collectives_ignore_the_codec_of_the_communicator), CASE(runs_in_the_background),
          CASE(recordings_know_it_by_its_name), CASE(saved_state_continues_with_the_same_bits))
