/* test_advice.c - what follows from recordings whose answers are known: one for each finding. */
#include <math.h>

#include "capture_files.h"
#include "predict/advice.h"
#include "predict/forecast.h"
#include "strategy/accuracy_risk.h"

#define US 1000
enum { RANKS_MAX = 8, LAYERS = 4, STEPS = 6 };

/* A job of four layers and STEPS steps. Every rank computes, exchanges each gradient around a ring, and waits. */
typedef struct job {
    int ranks, hosts;
    gw_time compute[RANKS_MAX]; /* us of a step */
    gw_time late[RANKS_MAX];    /* us between compute and exchange, of no layer */
    gw_time exposed;            /* us of a step, in which the wire is busy */
    gw_time hidden;             /* us of a step, before it */
    bool slow_link;             /* a message from host 0 to 1 takes four times as long as the others */
    uint64_t bytes;             /* of a layer */
    const char *strategy;
} job;

static void put(gw_trace *t, gw_trace_event e, gw_time begin, gw_time end) {
    e.begin = 1000 + begin * US;
    e.end = 1000 + end * US;
    gw_trace_put(t, &e);
}

static gw_trace *open_rank(const job *j, int rank) {
    gw_error error = {.rank = -1};
    gw_trace *trace = NULL;
    char path[128];
    int host = rank * j->hosts / j->ranks;
    snprintf(path, sizeof path, host ? "%s.host%d" : "%s", place("c.gwt"), host);
    gw_trace_config config = {.rank = rank,
                              .capture = path,
                              .about = {.world = j->ranks, .host_number = host, .origin = 1000, .host = "here"}};
    snprintf(config.about.strategy, sizeof config.about.strategy, "%s", j->strategy);
    if (rank == 0 || host != (rank - 1) * j->hosts / j->ranks) CHECK_EQ(GW_OK, gw_trace_create(NULL, path, &error));
    CHECK_EQ(GW_OK, gw_trace_open(&trace, &config, &error));
    return trace;
}

/* When the last rank begins its exchange, from the begin of a step. */
static gw_time last_begin(const job *j) {
    gw_time last = 0;
    for (int r = 0; r < j->ranks; r++) last = j->compute[r] + j->late[r] > last ? j->compute[r] + j->late[r] : last;
    return last;
}

static void write_layers(gw_trace *t, const job *j, int rank, uint64_t step, gw_time begin) {
    gw_time each = j->compute[rank] / (2 * LAYERS);
    for (int pass = 0; pass < 2 * LAYERS; pass++) {
        int layer = pass < LAYERS ? pass : 2 * LAYERS - 1 - pass;
        char name[32];
        snprintf(name, sizeof name, "dense%d", layer);
        uint8_t kind = pass < LAYERS ? GW_TRACE_FORWARD : GW_TRACE_BACKWARD;
        put(t, (gw_trace_event){.kind = kind, .number = step, .name = gw_trace_name(t, name), .peer = -1},
            begin + (gw_time)pass * each, begin + (gw_time)(pass + 1) * each);
        if (pass < LAYERS) continue;
        for (int bias = 0; bias < 2; bias++) {
            snprintf(name, sizeof name, "dense%d.%s", layer, bias ? "bias" : "weight");
            put(t,
                (gw_trace_event){.kind = GW_TRACE_READY,
                                 .number = step,
                                 .name = gw_trace_name(t, name),
                                 .peer = -1,
                                 .bytes = bias ? 1024 : j->bytes},
                begin + (gw_time)(pass + 1) * each, begin + (gw_time)(pass + 1) * each);
        }
    }
}

/* Messages to the next rank and from the one before, one after the other from `begin` to `end`. */
static void write_messages(gw_trace *t, const job *j, int rank, uint64_t step, gw_time begin, gw_time end) {
    int next = (rank + 1) % j->ranks, before = (rank + j->ranks - 1) % j->ranks;
    gw_time each = (end - begin) / LAYERS;
    for (int i = 0; i < LAYERS; i++) {
        gw_time at = begin + (gw_time)i * each;
        gw_time out = j->slow_link && rank != 0 ? each / 4 : each, in = j->slow_link && rank != 1 ? each / 4 : each;
        gw_trace_event e = {.number = step,
                            .comm = 2,
                            .index = (uint32_t)i,
                            .bytes = 2 * j->bytes,
                            .name = gw_trace_name(t, "allreduce, ring")};
        e.kind = GW_TRACE_SENT;
        e.peer = next;
        put(t, e, at, at + out);
        e.kind = GW_TRACE_ARRIVED;
        e.peer = before;
        put(t, e, at, at + in);
    }
}

static void write_step(gw_trace *t, const job *j, int rank, uint64_t step, gw_time begin) {
    gw_time own = begin + j->compute[rank] + j->late[rank], last = begin + last_begin(j), end = last + j->exposed;
    gw_trace_event op = {.kind = GW_TRACE_OPERATION,
                         .number = step,
                         .comm = 2,
                         .peer = -1,
                         .bytes = LAYERS * j->bytes,
                         .name = gw_trace_name(t, "allreduce, ring")};
    write_layers(t, j, rank, step, begin);
    put(t, op, j->hidden ? last - j->hidden : own, end);
    op.kind = GW_TRACE_WAITED;
    put(t, op, own, end);
    write_messages(t, j, rank, step, last - j->hidden, end);
    put(t,
        (gw_trace_event){.kind = GW_TRACE_STEP,
                         .number = step,
                         .name = gw_trace_name(t, j->strategy),
                         .peer = -1,
                         .index = step == 0},
        begin, end);
}

static gw_advice advise(const job *j) {
    gw_advice advice;
    gw_error error = {.rank = -1};
    gw_time length = last_begin(j) + j->exposed;
    for (int r = 0; r < j->ranks; r++) {
        gw_trace *t = open_rank(j, r);
        for (uint64_t s = 0; s < STEPS; s++) write_step(t, j, r, s, s * length);
        gw_trace_close(t);
    }
    gw_view v = look();
    CHECK_EQ(j->ranks, gw_insight_ranks(v.insight));
    CHECK_EQ(GW_OK, gw_advice_of_capture(&v, TEST_PATIENCE_S, &advice, &error));
    gw_view_free(&v);
    for (int h = 1; h < j->hosts; h++) {
        char name[32];
        snprintf(name, sizeof name, "c.gwt.host%d", h);
        remove_file(name);
    }
    return advice;
}

static job even(int ranks, int hosts) {
    job j = {.ranks = ranks, .hosts = hosts, .bytes = 1 << 20, .strategy = "arch=ring schedule=fifo"};
    for (int r = 0; r < ranks; r++) j.compute[r] = 40000;
    return j;
}

static bool says(const gw_advice *a, int line, const char *words) {
    return line < a->count && strstr(a->list[line].text, words) != NULL;
}

/* 40 ms of compute, 40 ms in which 4 MiB are exchanged: half could be hidden, or sent as fewer bytes. */
static void a_busy_wire(void) {
    job j = even(4, 4);
    j.exposed = 40000;
    gw_advice a = advise(&j);
    CHECK_EQ(2, a.count);
    CHECK(says(&a, 0, "the wire is busy 50 % of a step, and a step waits 50 % of its time for it; schedule="));
    CHECK(says(&a, 0, "(accuracy=exact)") && says(&a, 1, "(accuracy=safe)"));
    CHECK(a.list[0].gain > 1.2 && a.list[0].gain < 2 && a.list[1].gain > 1.05 * a.list[0].gain &&
          a.list[1].gain < 2.05);
    CHECK_EQ(GW_ADVICE_WIRE, a.list[0].kind);
    CHECK(strcmp(a.list[0].accuracy, "exact") == 0 && strcmp(a.list[1].accuracy, "safe") == 0);
    gw_strategy strategy;
    gw_error error = {.rank = -1};
    for (int i = 0; i < a.count; i++) CHECK_EQ(GW_OK, gw_strategy_parse(a.list[i].strategy, &strategy, &error));
    CHECK(gw_accuracy_risk_of(&strategy, NULL).safe && !gw_accuracy_risk_of(&strategy, NULL).exact);
}

/* 400 messages' worth of latency: four tensors of 4 KiB in 20 ms. */
static void start_ups(void) {
    job j = even(4, 4);
    j.exposed = 20000;
    j.bytes = 4096;
    gw_advice a = advise(&j);
    CHECK(a.count >= 1 && a.list[0].kind == GW_ADVICE_START_UPS);
    CHECK(says(&a, 0, "most of it start-ups of "));
}

static void a_hidden_wire(void) {
    job j = even(4, 4);
    j.hidden = 20000;
    j.exposed = 500;
    gw_advice a = advise(&j);
    CHECK_EQ(1, a.count);
    CHECK_EQ(GW_ADVICE_NOTHING, a.list[0].kind);
    CHECK(says(&a, 0, "communication is hidden: 1.2 % of a step is exposed; nothing to gain"));
}

static void a_slow_rank(void) {
    job j = even(4, 2);
    j.compute[3] = 56000;
    j.exposed = 500;
    gw_advice a = advise(&j);
    CHECK_EQ(1, a.count);
    CHECK_EQ(GW_ADVICE_SLOW_RANK, a.list[0].kind);
    CHECK(says(&a, 0, "rank 3 computes 1.40 times as long as the others, who wait 28 % of a step for it"));
    CHECK(fabs(a.list[0].gain - 56.5 / 40.5) < 0.01);
}

static void a_late_rank(void) {
    job j = even(4, 2);
    j.late[2] = 10000;
    j.exposed = 500;
    gw_advice a = advise(&j);
    CHECK_EQ(1, a.count);
    CHECK_EQ(GW_ADVICE_LATE_RANK, a.list[0].kind);
    CHECK(says(&a, 0, "rank 2 begins its exchanges late"));
}

static void a_slow_link(void) {
    job j = even(4, 4);
    j.exposed = 40000;
    j.hidden = 0;
    j.slow_link = true;
    gw_advice a = advise(&j);
    int at = 0;
    while (at < a.count && a.list[at].kind != GW_ADVICE_SLOW_LINK) at++;
    CHECK(says(&a, at, "the link from host 0 to host 1 carries 210 MB/s, the others 839 MB/s"));
    CHECK(at < a.count && a.list[at].gain > 1.5 && a.list[at].gain < 2);
}

/* Nothing is predicted for one host, nor for ranks without layers; what is known is said. */
static void what_is_not_known(void) {
    job j = even(2, 1);
    j.exposed = 10000;
    gw_advice a = advise(&j);
    CHECK_EQ(1, a.count);
    CHECK(says(&a, 0,
               "a step waits 20 % of its time for communication; what another strategy would gain is not "
               "known: all ranks are on one host"));
    const gw_advice_rank ranks[2] = {{.compute = 1}, {.compute = 1}};
    gw_advice_facts facts = {.rank = ranks,
                             .ranks = 2,
                             .hosts = 2,
                             .step = 2,
                             .exposed = 1,
                             .busy = -1,
                             .strategy = "arch=ring",
                             .machine = gw_machine_default()};
    gw_advice_make(&facts, &a);
    CHECK(says(&a, 0, "is not known: layers were not recorded"));
    facts.ranks = 1;
    gw_advice_make(&facts, &a);
    CHECK_EQ(0, a.count);
}

/* Of ranks that are waited for in turn none is late. */
static void nobody_is_late_where_all_are(void) {
    const gw_advice_rank ranks[3] = {
        {.compute = 1, .awaited = 0.5}, {.compute = 1, .awaited = 0.55}, {.compute = 1, .awaited = 0.6}};
    gw_advice_facts facts = {.rank = ranks, .ranks = 3, .hosts = 1, .step = 2, .exposed = 1, .busy = -1};
    facts.strategy = "arch=ring";
    facts.machine = gw_machine_default();
    gw_advice a;
    gw_advice_make(&facts, &a);
    for (int i = 0; i < a.count; i++)
        CHECK(a.list[i].kind != GW_ADVICE_LATE_RANK && a.list[i].kind != GW_ADVICE_SLOW_RANK);
}

/* Findings of one job, the largest gain first. */
static void order_of_findings(void) {
    const gw_advice_rank ranks[2] = {{.compute = 1, .awaited = 0.2}, {.compute = 0.5}};
    gw_advice_facts facts = {.rank = ranks, .ranks = 2, .hosts = 1, .step = 2, .exposed = 1.5, .exchange = 0.5};
    facts.busy = -1;
    facts.local_ranks = 2;
    facts.cores = 1;
    facts.strategy = "arch=ring";
    facts.machine = gw_machine_default();
    gw_advice a;
    gw_advice_make(&facts, &a);
    CHECK_EQ(GW_ADVICE_LINES, a.count);
    CHECK_EQ(GW_ADVICE_UNEVEN, a.list[0].kind);
    CHECK(says(&a, 0, "ranks wait 50 % of a step for each other"));
    CHECK_EQ(GW_ADVICE_SLOW_RANK, a.list[1].kind);
    CHECK(says(&a, 1, "rank 0 computes 2.0 times as long as the others, who wait 10 % of a step for it"));
    CHECK(a.list[0].gain > a.list[1].gain);
}

/* 64 ranks with 200 layers, whose prediction would take seconds. */
static void a_large_job_in_time(void) {
    gw_error error = {.rank = -1};
    gw_profile profile = {.name = "deep", .count = 200, .layers = calloc(200, sizeof *profile.layers)};
    gw_forecast_job large = {.profile = &profile,
                             .machine = gw_machine_default(),
                             .ranks = 64,
                             .per_host = 1,
                             .exposed = 0.3,
                             .seconds = TEST_PATIENCE_S};
    gw_forecast *forecast = malloc(sizeof *forecast);
    for (int i = 0; i < profile.count; i++)
        profile.layers[i] = (gw_profile_layer){.name = "l",
                                               .kind = "layer",
                                               .rows = 512,
                                               .parameter_bytes = 1 << 20,
                                               .forward_us = 500,
                                               .backward_us = 1000};
    CHECK_EQ(GW_OK, gw_strategy_parse("arch=auto schedule=wfbp", &large.strategy, &error));
    CHECK_EQ(GW_OK, gw_forecast_make(&large, forecast, &error));
    CHECK(fabs(forecast->now.step_seconds - 0.6) < 0.03);
    CHECK(forecast->safe.saves > 0.1 && forecast->safe.saves < 0.31);
    large.seconds = GW_ADVICE_SECONDS;
    gw_time begun = gw_clock_now();
    gw_forecast_make(&large, forecast, &error); /* a slow machine predicts less, or nothing */
    double took = (double)(gw_clock_now() - begun) / (double)GW_SECOND;
    CHECK(took < GW_ADVICE_SECONDS + test_slowdown());
    large.seconds = 1e-6;
    CHECK_EQ(GW_TIMEOUT, gw_forecast_make(&large, forecast, &error));
    free(forecast);
    free(profile.layers);
}

TEST_MAIN(CASE(in_a_folder), CASE(a_busy_wire), CASE(start_ups), CASE(a_hidden_wire), CASE(a_slow_rank),
          CASE(a_late_rank), CASE(a_slow_link), CASE(what_is_not_known), CASE(nobody_is_late_where_all_are),
          CASE(order_of_findings), CASE(a_large_job_in_time), CASE(clean_up))
