/* test_ps_codec.c - codecs over parameter servers, in real processes: the same bits as exchanges between ranks where
 * both add the same, the bytes that are counted, answers of servers that keep weights, and saved states. */
#include <math.h>

#include "reducer/coded_payload.h"
#include "schedule/schedule.h"
#include "small_job.h"
#include "strategy/strategy.h"

#define TENSORS 4
#define COUNT 132000 /* of all tensors, at most */

static const struct {
    const char *name;
    size_t count, rows;
} shapes[TENSORS] = {{"conv", 1500, 0}, {"fc1.weight", 70000, 200}, {"fc1.bias", 200, 0}, {"fc2.weight", 60000, 100}};

static int world, port;
static const char *line, *other;

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float gradients[COUNT], weights[COUNT];
} model;

static void make_model(model *m) {
    size_t at = 0;
    memset(m, 0, sizeof *m);
    for (int t = 0; t < TENSORS; t++) {
        m->tensors[t] = (gw_reducer_tensor){.name = shapes[t].name, .count = shapes[t].count, .rows = shapes[t].rows,
                                         .dtype = GW_F32, .gradient = m->gradients + at, .weights = m->weights + at};
        at += shapes[t].count + 5 * (size_t)(t == 1);
    }
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.25f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, "transport=tcp");
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void run(const char *strategy, const char *second, int ranks, void (*body)(int rank)) {
    line = strategy;
    other = second;
    world = ranks;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s\n", ranks, strategy);
}

/* Residuals follow it, on both sides; halved, so that they stay whole numbers. */
static double falling_rate(void *ctx, uint64_t step) {
    (void)ctx;
    return ldexp(1, -(int)step);
}

static gw_reducer_rate_fn *rate;

static gw_reducer *commit(gw_comm *comm, model *m, const char *strategy, uint64_t first) {
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = strategy;
    options.update = descend;
    options.rate = rate;
    options.first_step = first;
    options.momentum_use = GW_MOMENTUM_OFFERED;
    options.momentum = 0.9;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options));
    if (!reducer) printf("    %s: %s\n", strategy, gw_last_error(NULL)), exit(1);
    return reducer;
}

/* Small whole numbers, so that sums do not depend on their order. */
static float gradient_at(int rank, int tensor, int number, size_t i) {
    return (float)((i * 2654435761u + (size_t)(rank * 40503 + tensor * 97 + number * 7919)) % 1009) - 504;
}

static void take_steps(gw_reducer *reducer, model *m, int rank, int first, int steps) {
    for (int number = first; number < first + steps; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (int t = TENSORS - 1; t >= 0; t--) {
            float *gradient = m->tensors[t].gradient;
            for (size_t i = 0; i < shapes[t].count; i++) gradient[i] = gradient_at(rank, t, number, i);
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
}

/* Largest difference of the weights, by the largest weight. */
static double distance(const model *a, const model *b) {
    double largest = 0, furthest = 0;
    for (size_t i = 0; i < COUNT; i++) {
        largest = fmax(largest, fabs((double)a->weights[i]));
        furthest = fmax(furthest, fabs((double)a->weights[i] - (double)b->weights[i]));
    }
    return furthest / largest;
}

static double tolerance;

static void equals_exchange(int rank) {
    static model ours, theirs;
    gw_comm *comm = join(rank);
    make_model(&ours);
    make_model(&theirs);
    gw_reducer *reducer = commit(comm, &theirs, other, 0);
    take_steps(reducer, &theirs, rank, 0, 4);
    gw_reducer_close(reducer);
    reducer = commit(comm, &ours, line, 0);
    take_steps(reducer, &ours, rank, 0, 4);
    gw_reducer_close(reducer);
    double apart = distance(&ours, &theirs);
    CHECK(apart <= tolerance);
    if (apart > tolerance) printf("    %s: weights are apart by %g\n", line, apart);
    gw_finalize(comm);
}

/* Three ranks, so that exchanges go through owners too. fp16 is rounded at other places by a ring. */
static void servers_equal_exchanges(void) {
    tolerance = 0;
    rate = falling_rate;
    run("arch=ps:servers=2 compress=onebit", "compress=onebit", 3, equals_exchange);
    run("arch=ps:servers=3,chunk=100K compress=topk:ratio=0.02 schedule=p3", "compress=topk:ratio=0.02 schedule=p3", 3,
        equals_exchange);
    run("arch=ps:servers=1 compress=int8:feedback=both schedule=bytescheduler", "compress=int8:feedback=both", 3,
        equals_exchange);
    run("arch=ps:servers=2 compress=dgc:ratio=0.01,warmup=0", "compress=dgc:ratio=0.01,warmup=0", 3, equals_exchange);
    run("arch=ps:servers=2 compress=randomk:ratio=0.1", "compress=randomk:ratio=0.1", 3, equals_exchange);
    run("arch=ps:servers=2 compress=terngrad:shared", "compress=terngrad:shared", 3, equals_exchange);
    tolerance = 2e-3;
    run("arch=ps:servers=2 compress=fp16", "compress=none", 3, equals_exchange);
    run("arch=ps:servers=2 compress=powersgd:rank=2", "compress=powersgd:rank=2", 3, equals_exchange);
    tolerance = 1e-6; /* in one pass each payload is divided before it is added */
    run("arch=ps:servers=2 compress=topk:feedback=worker", "compress=topk:feedback=worker", 3, equals_exchange);
    rate = NULL;
}

/* Tensors are cut into as many slices as without a codec. */
static void is_sliced(int rank) {
    static model m;
    int buckets[2];
    const char *const lines[] = {line, other};
    gw_comm *comm = join(rank);
    for (int i = 0; i < 2; i++) {
        make_model(&m);
        gw_reducer *reducer = commit(comm, &m, lines[i], 0);
        buckets[i] = gw_reducer_read_counters(reducer).buckets;
        take_steps(reducer, &m, rank, 0, 2);
        gw_reducer_close(reducer);
    }
    CHECK(buckets[0] > TENSORS);
    CHECK_EQ(buckets[1], buckets[0]);
    gw_finalize(comm);
}

static void codecs_are_sliced(void) {
    run("arch=ps:servers=2 compress=int8 schedule=p3:slice=64K", "arch=ps:servers=2 schedule=p3:slice=64K", 2,
        is_sliced);
    run("arch=ps:servers=2 sync=asp compress=onebit:limit=0.9 schedule=bytescheduler:slice=64K",
        "arch=ps:servers=2 sync=asp schedule=bytescheduler:slice=64K", 2, is_sliced);
}

/* Bytes of all ranks, beside those of the same without a codec. */

static double sent_by_all(gw_comm *comm, const char *strategy) {
    static model m;
    make_model(&m);
    gw_reducer *reducer = commit(comm, &m, strategy, 0);
    take_steps(reducer, &m, gw_rank(comm), 0, 10);
    gw_barrier(comm); /* answers to others are counted here */
    double bytes = (double)gw_reducer_read_counters(reducer).bytes_sent;
    gw_reducer_close(reducer);
    CHECK_EQ(GW_OK, gw_allreduce(comm, &bytes, &bytes, 1, GW_F64, GW_SUM));
    return bytes;
}

static double lowest, highest;

static void counts_bytes(int rank) {
    gw_comm *comm = join(rank);
    double dense = sent_by_all(comm, other), coded = sent_by_all(comm, line);
    CHECK(coded / dense > lowest && coded / dense < highest);
    if (rank == 0 && (coded / dense <= lowest || coded / dense >= highest))
        printf("    %s: %.0f bytes, %.4f of the dense %.0f\n", line, coded, coded / dense, dense);
    gw_finalize(comm);
}

static void bytes_fall(double least, double most, const char *sync, const char *codec) {
    char with[128], without[128];
    snprintf(with, sizeof with, "arch=ps:servers=2 sync=%s compress=%s", sync, codec);
    snprintf(without, sizeof without, "arch=ps:servers=2 sync=%s", sync);
    lowest = least;
    highest = most;
    run(with, without, 4, counts_bytes);
}

static void bytes_on_the_wire(void) {
    bytes_fall(0.45, 0.52, "bsp", "fp16");
    bytes_fall(0.02, 0.06, "bsp", "onebit");
    bytes_fall(0.50, 0.56, "bsp", "onebit:feedback=worker"); /* means come back as they are */
    bytes_fall(0.50, 0.56, "asp", "onebit:feedback=worker"); /* weights come back as they are */
    bytes_fall(0.05, 0.14, "asp", "onebit:feedback=both");   /* those of the first step do */
    bytes_fall(0.50, 0.56, "ssp:staleness=1", "topk:feedback=worker");
    bytes_fall(0.01, 0.06, "delayed:warmup=1", "powersgd:rank=2");
}

/* One server, beside rank 0: that rank sends answers only, the other one pushes only. Each value that is sent takes
 * its four bytes and one or two of its place. */
static void follows_warmup(int rank) {
    static const double density[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001};
    static model m;
    gw_comm *comm = join(rank);
    make_model(&m);
    gw_reducer *reducer = commit(comm, &m, line, 7);
    for (int number = 0; number < 6; number++) {
        uint64_t before = gw_reducer_read_counters(reducer).bytes_sent;
        take_steps(reducer, &m, rank, 7 + number, 1);
        CHECK_EQ(GW_OK, gw_barrier(comm));
        double bytes = (double)(gw_reducer_read_counters(reducer).bytes_sent - before);
        double least = density[number] * 131500 * 4.9, most = density[number] * 131500 * 6.1 + 3000;
        CHECK(bytes >= least && bytes <= most);
        if (bytes < least || bytes > most)
            printf("    rank %d sent %.0f bytes in step %d, not %.0f to %.0f\n", rank, bytes, number, least, most);
    }
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void warmups_go_both_ways(void) {
    run("arch=ps compress=dgc:warmup=5", NULL, 2, follows_warmup);
    run("arch=ps compress=dgc:warmup=5 schedule=p3", NULL, 2, follows_warmup);
}

/* Servers keep the weights and send differences: in the end every worker has all pushes. */
static void differences_add_up(int rank) {
    static model m;
    gw_comm *comm = join(rank);
    make_model(&m);
    for (size_t i = 0; i < COUNT; i++) m.weights[i] = (float)rank; /* rank 0 has the server, and so its weights */
    gw_reducer *reducer = commit(comm, &m, line, 0);
    for (int number = 0; number < 30; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (int t = 0; t < TENSORS; t++) {
            float *gradient = m.tensors[t].gradient;
            for (size_t i = 0; i < shapes[t].count; i++) gradient[i] = number < 10 ? (float)(i % 7) : 0;
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
        if (number != 20) continue;
        CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
        CHECK_EQ(GW_OK, gw_barrier(comm)); /* all that matters was pushed */
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    const float *weights = m.tensors[1].weights;
    int wrong = 0;
    for (size_t i = 0; i < shapes[1].count; i++) wrong += fabsf(weights[i] + 2.5f * (float)(i % 7)) > 0.02f;
    CHECK_EQ(0, wrong);
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

/* A tenth of the values is sent. Rank 0 pushes so large values for a tenth that what rank 1 pushes is never among the
 * largest: it arrives all the same, as late as the differences take that are as long as the weights. */
static void small_values_arrive(int rank) {
    enum { STEPS = 40, LATEST = 10 };
    static model m;
    gw_comm *comm = join(rank);
    make_model(&m);
    gw_reducer *reducer = commit(comm, &m, line, 0);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        const float *weights = m.tensors[1].weights;
        size_t late = 0;
        for (size_t i = 3; rank && i < shapes[1].count; i += 10) late += weights[i] > 0.125f * (float)(LATEST - number);
        CHECK_EQ(0, late);
        for (int t = 0; t < TENSORS; t++) {
            float *gradient = m.tensors[t].gradient;
            for (size_t i = 0; i < shapes[t].count; i++) gradient[i] = i % 10 == (rank ? 3 : 7) ? rank ? 1 : 1000 : 0;
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

/* What a server keeps for differences, beside what it keeps to answer with weights. */
static double kept_for_differences(gw_comm *comm) {
    static model m;
    double bytes[2];
    const char *const lines[] = {line, other};
    for (int i = 0; i < 2; i++) {
        make_model(&m);
        gw_reducer *reducer = commit(comm, &m, lines[i], 0);
        bytes[i] = (double)gw_reducer_read_counters(reducer).memory_bytes;
        gw_reducer_close(reducer);
    }
    return bytes[0] - bytes[1];
}

static void memory_stays(int rank) {
    gw_comm *comm = join(rank), *pair = NULL;
    double all = kept_for_differences(comm);
    CHECK_EQ(GW_OK, gw_comm_split(comm, rank < 2, rank, &pair));
    double two = kept_for_differences(pair);
    CHECK(rank || (all == two && all > 0));
    if (rank == 0 && all != two) printf("    %.0f bytes for two workers, %.0f for four\n", two, all);
    gw_finalize(pair);
    gw_finalize(comm);
}

static void differences_of_weights(void) {
    run("arch=ps sync=asp compress=int8:feedback=both", NULL, 3, differences_add_up);
    run("arch=ps sync=ssp:staleness=2 compress=qsgd:bits=8,feedback=both schedule=p3", NULL, 2, differences_add_up);
    run("arch=ps sync=ssp:staleness=0 compress=powersgd:feedback=both", NULL, 2, differences_add_up);
    run("arch=ps sync=ssp:staleness=0 compress=topk:ratio=0.1", NULL, 2, small_values_arrive);
    run("arch=ps sync=asp compress=onebit:feedback=both", "arch=ps sync=asp compress=onebit:feedback=worker", 4,
        memory_stays);
}

/* Servers apply each push when it comes: in the end weights have all that was encoded, to rounding, whatever the order,
 * the slices and the cuts in between. The reference encodes whole tensors, worker by worker, in this process. */

enum { APPLIED_STEPS = 7 }; /* mgwfbp cuts other buckets after 5 */

static void apply_alone(model *m, const gw_codec_setup *setup, int worker, int t) {
    size_t count = shapes[t].count, rows = shapes[t].rows ? shapes[t].rows : 1;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_error error = {.rank = -1};
    gw_coding coding;
    gw_coded_tensor tensor = {.parts = 0};
    gw_codec_tensor given = gw_codec_tensor_make(shapes[t].name, rows, count / rows);
    CHECK_EQ(GW_OK, gw_coding_open(&coding, setup, options.seed, worker, world, &error));
    CHECK_EQ(GW_OK, gw_coding_name(&coding, &tensor, &given, false, &error));
    gw_codec_range all = gw_codec_whole(&tensor.what);
    if (!tensor.exact) CHECK_EQ(GW_OK, gw_codec_state_make(&tensor.state, setup, all, &error));
    float *gradient = m->tensors[t].gradient, *weights = m->tensors[t].weights;
    uint8_t *payload = malloc(gw_coding_bound(&coding, &tensor, setup, all));
    for (int number = 0; number < APPLIED_STEPS; number++) {
        uint8_t *end = payload;
        const uint8_t *at = payload;
        for (size_t i = 0; i < count; i++) gradient[i] = gradient_at(worker, t, number, i);
        coding.call.step = (uint64_t)number;
        gw_coding_prepare(&coding, &tensor, gradient);
        CHECK_EQ(GW_OK, gw_coding_encode(&coding, &tensor, setup, &tensor.state, all, gradient, &end, &error));
        CHECK_EQ(GW_OK, gw_coding_decode_add(&coding, &tensor, setup, all, 0, &at, end, -0.25f / (float)world, weights,
                                             &error));
    }
    free(payload);
    gw_coding_tensor_free(&tensor);
}

static void applies_what_was_encoded(int rank) {
    static model ours, alone;
    gw_strategy strategy;
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    gw_comm *comm = join(rank);
    make_model(&ours);
    make_model(&alone);
    gw_reducer *reducer = commit(comm, &ours, line, 0);
    take_steps(reducer, &ours, rank, 0, APPLIED_STEPS);
    if (strstr(line, "asp")) { /* when all have pushed, an answer has it all */
        CHECK_EQ(GW_OK, gw_barrier(comm));
        memset(ours.gradients, 0, sizeof ours.gradients);
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    gw_reducer_close(reducer);
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    const gw_setting *compress = &strategy.axes[GW_AXIS_COMPRESS];
    CHECK_EQ(GW_OK, gw_codec_from_setting(compress->technique, compress->values, &setup, &error));
    const gw_setting *schedule = &strategy.axes[GW_AXIS_SCHEDULE];
    if (gw_policy_of(schedule->technique)->slices) setup = gw_codec_sliced(&setup);
    for (int w = 0; w < world; w++)
        for (int t = 0; t < TENSORS; t++) apply_alone(&alone, &setup, w, t);
    double apart = distance(&alone, &ours);
    CHECK(apart < 1e-5);
    if (apart >= 1e-5) printf("    %s: weights are apart by %g\n", line, apart);
    gw_finalize(comm);
}

/* A zero is encoded as zero by codecs without a residual: asp. With ssp:staleness=0 the last answers have it all. */
static void every_codec_over_servers_with_weights(void) {
    static const char *const pairs[] = {"asp compress=fp16",
                                        "asp compress=bf16",
                                        "asp compress=int8",
                                        "asp compress=qsgd",
                                        "asp compress=terngrad",
                                        "ssp:staleness=0 compress=onebit:feedback=worker",
                                        "ssp:staleness=0 compress=qsgd:bits=2,feedback=worker",
                                        "ssp:staleness=0 compress=topk:feedback=worker",
                                        "ssp:staleness=0 compress=randomk",
                                        "ssp:staleness=0 compress=threshold:feedback=worker",
                                        "ssp:staleness=0 compress=dgc:momentum=0.9,warmup=10,feedback=worker",
                                        "ssp:staleness=0 compress=powersgd"};
    static const char *const schedules[] = {"p3:slice=64K", "mgwfbp", "bytescheduler", "tictac", "wfbp"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char with[200];
        snprintf(with, sizeof with, "arch=%s:servers=2 sync=%s schedule=%s", i % 3 ? "ps" : "sfb", pairs[i],
                 schedules[i % (sizeof schedules / sizeof *schedules)]);
        run(with, NULL, 3, applies_what_was_encoded);
    }
}

/* State saved after three steps and restored into a new reducer continues bit for bit. */
static void goes_on(int rank) {
    static model whole, parts;
    gw_comm *comm = join(rank);
    make_model(&whole);
    make_model(&parts);
    gw_reducer *reducer = commit(comm, &whole, line, 0);
    take_steps(reducer, &whole, rank, 0, 6);
    gw_reducer_close(reducer);
    reducer = commit(comm, &parts, line, 0);
    take_steps(reducer, &parts, rank, 0, 3);
    gw_barrier(comm);
    size_t bytes = gw_reducer_state_bytes(reducer);
    void *saved = malloc(bytes);
    CHECK_EQ(GW_OK, gw_reducer_state_save(reducer, saved));
    gw_reducer_close(reducer);
    gw_barrier(comm);
    reducer = commit(comm, &parts, line, 3);
    CHECK_EQ(GW_OK, gw_reducer_state_restore(reducer, saved, bytes));
    gw_barrier(comm); /* no worker may push to a server that is not restored */
    take_steps(reducer, &parts, rank, 3, 3);
    gw_reducer_close(reducer);
    CHECK(memcmp(whole.weights, parts.weights, sizeof whole.weights) == 0);
    free(saved);
    gw_finalize(comm);
}

static void saved_states_continue(void) {
    run("arch=ps:servers=2 compress=onebit", NULL, 3, goes_on);
    run("arch=ps:servers=2 compress=powersgd", NULL, 3, goes_on);
    run("arch=ps sync=asp compress=topk:feedback=worker", NULL, 1, goes_on);
}

TEST_MAIN(CASE(servers_equal_exchanges), CASE(codecs_are_sliced), CASE(bytes_on_the_wire), CASE(warmups_go_both_ways),
          CASE(every_codec_over_servers_with_weights), CASE(differences_of_weights), CASE(saved_states_continue))
