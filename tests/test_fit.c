/* test_fit.c - files of machine speeds, links from the doctor's figures, and fits that recover the figures of
 * predicted steps. */
#include <math.h>

#include "compress/compress.h"
#include "predict/fit.h"
#include "predict/fit_capture.h"
#include "test.h"

static bool near(double expected, double actual, double tolerance) {
    bool good = fabs(actual - expected) <= tolerance * fabs(expected);
    if (!good) printf("    %.12g is not %.12g\n", actual, expected);
    return good;
}

static gw_status parse(const char *text, gw_machine *machine, gw_error *error) {
    *error = (gw_error){.rank = -1};
    return gw_machine_parse(text, strlen(text), "x.machines", machine, error);
}

static void a_model_file_is_read_as_it_was_printed(void) {
    gw_machine m = gw_machine_default(), again;
    gw_error error;
    m.latency = 3.25e-5;
    m.at_once = 2;
    m.error = 0.0125;
    m.codecs[3].encode = 123e6;
    CHECK(gw_machine_set_arch(&m, &(gw_arch_speed){"tree", 7.5e-5, 5e8}));
    m.links[m.link_count++] = (gw_fabric_pair){.from = 0, .to = 3, .latency = 1e-4, .rate = 2e8};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    gw_machine_print(&m, out);
    fclose(out);
    CHECK_EQ(GW_OK, parse(text, &again, &error));
    CHECK(memcmp(&m, &again, sizeof m) == 0);
    free(text);
    CHECK_EQ(GW_OK, parse("# mine\ngradwire-machines 1\n\nrate 1e9\nend\n", &again, &error));
    CHECK(again.rate == 1e9 && again.latency == gw_machine_default().latency);
    CHECK(gw_machine_arch(&m, "tree").rate == 5e8 && gw_machine_arch(&m, "ring").latency == 3.25e-5);
    CHECK(gw_machine_codec(&again, "topk").encode == gw_codec_find("topk")->encode_rate);
    CHECK(gw_machine_codec(&again, "odd").encode == again.memory);
}

static void refuse(const char *text, const char *sentence) {
    gw_machine m = {.rate = 7};
    gw_error error;
    CHECK_EQ(GW_INVALID, parse(text, &m, &error));
    CHECK_STR(sentence, error.text);
    CHECK(m.rate == 7);
}

#define HEAD "gradwire-machines 1\n"

static void a_broken_model_file_is_explained(void) {
    refuse("", "x.machines is cut off: it closes with the line end");
    refuse("rate 1\n", "x.machines line 1: it begins with gradwire-machines 1");
    refuse(HEAD "rate 1\n", "x.machines is cut off: it closes with the line end");
    refuse(HEAD "rate 0\nend\n", "x.machines line 2: rate is followed by one positive number");
    refuse(HEAD "latency -1\nend\n", "x.machines line 2: latency is followed by one non-negative number");
    refuse(HEAD "rate 1 2\nend\n", "x.machines line 2: rate is followed by one positive number");
    refuse(HEAD "rat 1\nend\n", "x.machines line 2: unknown word \"rat\" (did you mean \"rate\"? allowed: codec, arch, "
                                "link, latency, rate, burst, queue, ahead, message, memory, memory_latency, reduce, "
                                "multiply, compute, interference, update, decide, at_once, error)");
    refuse(HEAD "link 1 1 1e-4 1e9\nend\n", "x.machines line 2: a link is: link FROM TO LATENCY RATE, hosts by number, "
                                            "seconds, bytes per second");
    refuse(HEAD "arch ring 1e-4\nend\n",
           "x.machines line 2: an architecture is: arch NAME LATENCY RATE, in seconds and bytes per second");
    refuse(HEAD "codec topk 1\nend\n", "x.machines line 2: a codec is: codec NAME ENCODE DECODE, in bytes per second");
    refuse(HEAD "end\nrate 1\n", "x.machines line 3: nothing follows the end");
}

static void links_are_medians(void) {
    static const char doctor[] = "gradwire-doctor 1\nhosts 3\nhost 0 a 10.0.0.1 1500 8e9\nhost 1 b 10.0.0.2 1500 0\n"
                                 "host 2 c 10.0.0.3 1500 6e9\nlink 0 1 1e-05 1e-09\nlink 1 0 2e-05 2e-09\n"
                                 "link 0 2 3e-05 8e-09\nend\n";
    gw_doctor_table table;
    gw_error error = {.rank = -1};
    gw_machine m = gw_machine_default();
    CHECK_EQ(GW_OK, gw_doctor_parse(doctor, strlen(doctor), "d", &table, &error));
    CHECK_EQ(GW_OK, gw_fit_links(&table, 1, &m, &error));
    CHECK(near(2e-5, m.latency, 1e-12) && near(1 / 2e-9, m.rate, 1e-12) && near(7e9, m.memory, 1e-12));
    double expected = 2e-5 + 65536 * 2e-9, slow = 3e-5 + 65536 * 8e-9;
    CHECK(m.link_count == 3 && m.links[1].from == 0 && m.links[1].to == 2 && near(1.25e8, m.links[1].rate, 1e-12));
    CHECK(near(1 - expected / slow, m.error, 1e-9)); /* of 0, this and a larger one */
    for (int i = 0; i < 9; i++) table.beta[i] = 0;
    CHECK_EQ(GW_INVALID, gw_fit_links(&table, 1, &m, &error));
    CHECK_STR("no link was measured: run gradwire doctor with at least two hosts", error.text);
    gw_doctor_table_free(&table);
}

#define STEPS "profile,ranks,per_host,step_ms,strategy\n"
#define LARGE "arch=ring:chunk=64M transport=tcp schedule="

static const gw_fit_moves none = {.count = 0};

/* Fits figures to steps that were predicted with `hidden`; *found is where it begins, and becomes what it finds. */
static gw_status fit_again(const char *text, const gw_machine *hidden, const char *moved, gw_machine *found,
                           gw_error *error) {
    gw_fit_steps steps;
    gw_fit_moves moves;
    gw_fabric_spec fabric;
    gw_machine made = *hidden;
    *error = (gw_error){.rank = -1};
    CHECK_EQ(GW_OK, gw_fabric_parse("switch", &fabric, error));
    CHECK_EQ(GW_OK, gw_fit_moves_parse(moved, &moves, error));
    CHECK_EQ(GW_OK, gw_fit_steps_parse(text, strlen(text), "s", &steps, error));
    CHECK_EQ(GW_OK, gw_fit_to_steps(&steps, &none, &fabric, &made, NULL, NULL, error));
    for (int i = 0; i < steps.count; i++) steps.steps[i].measured = steps.steps[i].predicted;
    gw_status status = gw_fit_to_steps(&steps, &moves, &fabric, found, NULL, NULL, error);
    gw_fit_steps_free(&steps);
    return status;
}

static void figures_are_found_again(void) {
    gw_error error;
    gw_machine hidden = gw_machine_default(), found = hidden;
    hidden.latency = 180e-6;
    hidden.rate = 4e8;
    hidden.compute = 1.3;
    hidden.at_once = found.at_once = 1;
    CHECK_EQ(GW_OK, fit_again(STEPS "resnet50,4,1,1," LARGE "fifo:fuse=1G\n"
                                    "resnet50,4,1,1," LARGE "wfbp:fuse=4M\n"
                                    "resnet50,4,1,1," LARGE "fifo:fuse=1\n",
                              &hidden, "latency,rate,compute", &found, &error));
    CHECK(near(hidden.latency, found.latency, 0.02));
    CHECK(near(hidden.rate, found.rate, 0.01));
    CHECK(near(hidden.compute, found.compute, 0.01));
    CHECK(found.error < 1e-3);
}

/* Ranks on one host know nothing of links, so memory is told from them by rows with one host and with several. */
static void the_memory_of_a_host_is_found_again(void) {
    gw_error error;
    gw_machine hidden = gw_machine_default(), found = hidden;
    hidden.memory = 3.1e9;
    hidden.rate = 1.7e9;
    hidden.memory_latency = 40e-6;
    hidden.at_once = found.at_once = 1;
    CHECK_EQ(GW_OK, fit_again(STEPS "resnet50,4,4,1," LARGE "fifo:fuse=1G\n"
                                    "resnet50,4,4,1," LARGE "fifo:fuse=1\n"
                                    "resnet50,8,2,1," LARGE "fifo:fuse=1G\n",
                              &hidden, "memory,memory_latency,rate", &found, &error));
    CHECK(near(hidden.memory, found.memory, 0.01));
    CHECK(near(hidden.memory_latency, found.memory_latency, 0.05));
    CHECK(near(hidden.rate, found.rate, 0.01));
}

/* Both are 0 where the fit begins. */
static void what_slows_computing_is_found_again(void) {
    gw_error error;
    gw_machine hidden = gw_machine_default(), found = hidden;
    hidden.interference = 6e9;
    hidden.update = 8e9;
    hidden.at_once = found.at_once = 1;
    CHECK_EQ(GW_OK, fit_again(STEPS "bert-base,4,1,1," LARGE "wfbp:fuse=4M\n"
                                    "resnet50,4,1,1," LARGE "wfbp:fuse=4M\n"
                                    "bert-base,4,1,1," LARGE "dear:fuse=4M\n",
                              &hidden, "interference,update", &found, &error));
    CHECK(near(hidden.interference, found.interference, 0.02));
    CHECK(near(hidden.update, found.update, 0.05));
}

static void refuse_fit(const char *text, const char *moved, const char *sentence) {
    gw_machine machine = gw_machine_default(), before = machine;
    gw_error error;
    CHECK_EQ(GW_INVALID, fit_again(text, &machine, moved, &machine, &error));
    CHECK_STR(sentence, error.text);
    CHECK(memcmp(&machine, &before, sizeof machine) == 0);
}

static void what_no_step_tells_is_refused(void) {
    refuse_fit(STEPS "resnet50,4,1,1," LARGE "fifo:fuse=1G\n", "rate,memory",
               "--move memory: no measured step depends on it, so it cannot be learned; add steps with several ranks "
               "on a host");
    refuse_fit(STEPS "resnet50,4,4,1," LARGE "fifo:fuse=1G\n", "latency",
               "--move latency: no measured step depends on it, so it cannot be learned");
}

static void refuse_moves(const char *text, const char *sentence) {
    gw_fit_moves moves;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_INVALID, gw_fit_moves_parse(text, &moves, &error));
    CHECK_STR(sentence, error.text);
}

static void broken_moves_are_explained(void) {
    gw_fit_moves moves;
    gw_error error = {.rank = -1};
    refuse_moves("latency,memry", "--move \"memry\": did you mean \"memory\"? allowed: " GW_FIT_MOVES_ALLOWED);
    refuse_moves("rate,rate", "--move rate,rate: rate stands there twice");
    CHECK_EQ(GW_OK, gw_fit_moves_parse("none", &moves, &error));
    CHECK_EQ(0, moves.count);
}

static void refuse_steps(const char *text, const char *sentence) {
    gw_fit_steps steps;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_INVALID, gw_fit_steps_parse(text, strlen(text), "s.csv", &steps, &error));
    CHECK_STR(sentence, error.text);
}

static void broken_steps_are_explained(void) {
    refuse_steps("", "s.csv has no measured steps");
    refuse_steps("a,b\n", "s.csv line 1: measured steps begin with the header profile,ranks,per_host,step_ms,strategy");
    refuse_steps(STEPS "vgg16,8,3,1,schedule=wfbp\n",
                 "s.csv line 2: ranks and per_host are whole numbers, and hosts are full");
    refuse_steps(STEPS "vgg16,8,1,0,schedule=wfbp\n", "s.csv line 2: step_ms is a number of milliseconds, more than 0");
    refuse_steps(
        STEPS "vgg61,8,1,1,schedule=wfbp\n",
        "s.csv line 2: no model is called \"vgg61\" (did you mean \"vgg11\"? allowed: mlp, lenet, cnn, branches, "
        "resnet20, vgg11, gpt, resnet50, densenet201, inception4, vgg16, bert-base, bert-large, gpt2; or a file, "
        "whose name has a / or a .)");
    refuse_steps(STEPS "cnn,8,1,1,schedule=wfbp\n", "s.csv line 2: cnn has no built-in layer times: record them with "
                                                    "gradwire profile cnn -o FILE, and give that file");
    refuse_steps(STEPS "vgg16 batch=0,8,1,1,schedule=wfbp\n",
                 "s.csv line 2: a built-in profile may be followed by batch=N and throughput=X, more than 0; a file by "
                 "nothing");
    refuse_steps(STEPS "vgg16,8,1\n", "s.csv line 2: it has 3 fields, not 5 (profile,ranks,per_host,step_ms,strategy)");
}

static void commas_of_a_strategy_are_its_own(void) {
    gw_fit_steps steps;
    gw_error error = {.rank = -1};
    const char *text = STEPS "vgg16,8,1,1,schedule=bytescheduler:slice=2M,credit=8M\n";
    CHECK_EQ(GW_OK, gw_fit_steps_parse(text, strlen(text), "s", &steps, &error));
    CHECK_EQ(8 << 20, gw_strategy_integer(&steps.steps[0].strategy, GW_AXIS_SCHEDULE, "credit"));
    gw_fit_steps_free(&steps);
}

static void a_profile_may_say_how_fast_it_runs(void) {
    gw_fit_steps steps;
    gw_error error = {.rank = -1};
    const char *text = STEPS "bert-large batch=8 throughput=49,8,1,1,schedule=wfbp\n";
    CHECK_EQ(GW_OK, gw_fit_steps_parse(text, strlen(text), "s", &steps, &error));
    CHECK_EQ(8, steps.steps[0].profile.batch);
    CHECK(near(8 / 49.0, gw_profile_seconds(&steps.steps[0].profile), 1e-9));
    gw_fit_steps_free(&steps);
}

/* Four ranks on four hosts, one kind of event. */
typedef struct recording {
    gw_insight insight;
    gw_insight_rank ranks[4];
    gw_insight_event events[4 * 4];
    size_t first[4 * GW_TRACE_KINDS + 1];
    char *names[2];
} recording;

static void record(recording *r, gw_trace_kind kind, const gw_trace_event *list, size_t count) {
    *r = (recording){.names = {"", "allreduce, ring"}};
    r->insight = (gw_insight){.ranks = r->ranks, .rank_count = 4, .names = r->names, .name_count = 2,
                              .events = r->events, .first = r->first};
    for (int rank = 0; rank < 4; rank++) {
        r->ranks[rank] = (gw_insight_rank){.introduced = true, .about = {.world = 4, .host_number = rank}};
        for (int k = 0; k < GW_TRACE_KINDS; k++) {
            for (size_t i = 0; k == (int)kind && i < count; i++)
                r->events[r->insight.event_count++] = (gw_insight_event){.is = list[i], .rank = rank};
            r->first[rank * GW_TRACE_KINDS + k + 1] = r->insight.event_count;
        }
    }
}

/* A ring of four takes 6 rounds and 1.5 times the bytes; overlapping operations are ignored. */
static void architectures_are_found_in_a_capture(void) {
    enum { MS = 1000000 };
    static const gw_trace_event list[] = {
        {.comm = 1, .number = 1, .name = 1, .bytes = 64, .begin = 0, .end = 6 * MS / 10},
        {.comm = 1, .number = 2, .name = 1, .bytes = 1000000, .begin = MS, .end = MS + 6 * MS / 10 + 15 * MS},
        {.comm = 1, .number = 3, .name = 1, .bytes = 1000000, .begin = 20 * MS, .end = 60 * MS},
        {.comm = 1, .number = 4, .name = 1, .bytes = 1000000, .begin = 50 * MS, .end = 90 * MS}};
    gw_capture_arch found[GW_MACHINE_ARCHS_MAX];
    gw_error error = {.rank = -1};
    recording r;
    int count = 0;
    record(&r, GW_TRACE_OPERATION, list, 4);
    CHECK_EQ(GW_OK, gw_capture_archs(&r.insight, 1, found, &count, &error));
    CHECK_EQ(1, count);
    CHECK_STR("ring", found[0].speed.name);
    CHECK(near(1e-4, found[0].speed.latency, 1e-6) && near(1e8, found[0].speed.rate, 1e-6));
    CHECK(found[0].operations == 2 && found[0].error < 2e-3);
}

static void the_speed_of_sums_is_found_in_a_capture(void) {
    static const gw_trace_event list[] = {
        {.comm = 1, .bytes = 1 << 20, .begin = 0, .end = 1 << 19},
        {.comm = 1, .bytes = 1 << 20, .begin = 1 << 20, .end = (1 << 20) + (1 << 19)},
        {.comm = 1, .bytes = 1 << 20, .begin = 1 << 21, .end = 1 << 22}, /* another process had the core */
        {.comm = 0, .bytes = 1 << 30, .begin = 1 << 22, .end = 1 << 22}}; /* a codec's */
    gw_machine m = gw_machine_default();
    recording r;
    record(&r, GW_TRACE_REDUCED, list, 4);
    CHECK(gw_capture_reduce(&r.insight, &m));
    CHECK(near(2e9, m.reduce, 1e-9));
    record(&r, GW_TRACE_REDUCED, list + 3, 1);
    CHECK(!gw_capture_reduce(&r.insight, &m));
}

/* What links are to one architecture does not concern another. */
static void a_prediction_takes_the_figures_of_its_architecture(void) {
    gw_machine m = gw_machine_default();
    gw_fit_steps steps;
    gw_fabric_spec fabric;
    gw_error error = {.rank = -1};
    const char *text = STEPS "vgg16,8,1,1,arch=ring schedule=fifo\nvgg16,8,1,1,arch=tree schedule=fifo\n";
    double before[2];
    CHECK_EQ(GW_OK, gw_fabric_parse("switch", &fabric, &error));
    CHECK_EQ(GW_OK, gw_fit_steps_parse(text, strlen(text), "s", &steps, &error));
    CHECK_EQ(GW_OK, gw_fit_to_steps(&steps, &none, &fabric, &m, NULL, NULL, &error));
    for (int i = 0; i < 2; i++) before[i] = steps.steps[i].predicted;
    CHECK(gw_machine_set_arch(&m, &(gw_arch_speed){"tree", m.latency, m.rate / 2}));
    CHECK_EQ(GW_OK, gw_fit_to_steps(&steps, &none, &fabric, &m, NULL, NULL, &error));
    CHECK(steps.steps[0].predicted == before[0] && steps.steps[1].predicted > 1.2 * before[1]);
    gw_fit_steps_free(&steps);
}

/* A slow link slows a ring that passes it, where there are as many hosts as were measured. */
static void a_slow_link_is_known(void) {
    gw_machine m = gw_machine_default();
    gw_fit_steps steps;
    gw_fabric_spec fabric;
    gw_error error = {.rank = -1};
    const char *text = STEPS "vgg16,4,1,1,arch=ring schedule=fifo\nvgg16,8,1,1,arch=ring schedule=fifo\n";
    double before[2];
    CHECK_EQ(GW_OK, gw_fabric_parse("switch", &fabric, &error));
    CHECK_EQ(GW_OK, gw_fit_steps_parse(text, strlen(text), "s", &steps, &error));
    for (int i = 0; i < 4; i++)
        m.links[m.link_count++] = (gw_fabric_pair){.from = i, .to = (i + 1) % 4, .latency = m.latency, .rate = m.rate};
    CHECK_EQ(GW_OK, gw_fit_to_steps(&steps, &none, &fabric, &m, NULL, NULL, &error));
    for (int i = 0; i < 2; i++) before[i] = steps.steps[i].predicted;
    m.links[2].rate /= 4;
    CHECK_EQ(GW_OK, gw_fit_to_steps(&steps, &none, &fabric, &m, NULL, NULL, &error));
    CHECK(steps.steps[0].predicted > 2 * before[0] && steps.steps[1].predicted == before[1]);
    gw_fit_steps_free(&steps);
}

TEST_MAIN(CASE(a_model_file_is_read_as_it_was_printed), CASE(a_broken_model_file_is_explained), CASE(links_are_medians),
          CASE(figures_are_found_again), CASE(the_memory_of_a_host_is_found_again),
          CASE(what_slows_computing_is_found_again), CASE(what_no_step_tells_is_refused),
          CASE(broken_moves_are_explained), CASE(broken_steps_are_explained), CASE(commas_of_a_strategy_are_its_own),
          CASE(a_profile_may_say_how_fast_it_runs), CASE(architectures_are_found_in_a_capture),
          CASE(the_speed_of_sums_is_found_in_a_capture), CASE(a_prediction_takes_the_figures_of_its_architecture),
          CASE(a_slow_link_is_known))
