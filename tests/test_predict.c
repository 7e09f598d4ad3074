/* test_predict.c - steps on the virtual clock: overlap of communication and compute, against sums by hand. */
#include <math.h>

#include "compress/compress.h"
#include "plan/plan.h"
#include "predict/predict.h"
#include "profile/builtin_profiles.h"
#include "schedule/schedule.h"
#include "strategy/combine.h"
#include "test.h"

#define ALPHA 1e-4
#define BETA 1e-8 /* 100 MB/s */

typedef struct scene {
    gw_profile profile;
    gw_profile_layer layers[4];
    gw_machine machine;
    int ranks, per_host;
    bool unfolded;
} scene;

/* Layers of 1 ms forward and 2 ms backward with so many bytes each. No sum takes time unless a test says so. */
static void set(scene *s, int ranks, int layers, const uint64_t *bytes) {
    *s = (scene){.ranks = ranks, .per_host = 1, .machine = gw_machine_default()};
    s->machine.latency = ALPHA;
    s->machine.rate = 1 / BETA;
    s->machine.reduce = 1e18;
    for (int i = 0; i < layers; i++) {
        s->layers[i] = (gw_profile_layer){.parameter_bytes = bytes[i], .forward_us = 1000, .backward_us = 2000};
        snprintf(s->layers[i].name, sizeof s->layers[i].name, "%d", i);
    }
    s->profile = (gw_profile){.batch = 10, .count = layers, .layers = s->layers};
}

static gw_prediction ask(const scene *s, const char *line) {
    gw_prediction p = {.step_seconds = NAN};
    gw_error error = {.rank = -1};
    gw_strategy strategy;
    gw_fabric_spec fabric;
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    CHECK_EQ(GW_OK, gw_fabric_parse("switch", &fabric, &error));
    gw_predict_config config = {.profile = &s->profile, .strategy = &strategy, .machine = &s->machine,
                                .fabric = fabric, .ranks = s->ranks, .per_host = s->per_host,
                                .unfolded = s->unfolded};
    CHECK_EQ(GW_OK, gw_predict(&config, &p, &error));
    CHECK_STR("", error.text);
    double sum = 0;
    for (int i = 0; i < GW_TIME_PARTS; i++) sum += p.path.seconds[i];
    CHECK(fabs(sum - p.step_seconds) < 1e-9);
    return p;
}

static bool near(double expected, double actual, double tolerance) {
    bool good = fabs(actual - expected) <= tolerance * fabs(expected);
    if (!good) printf("    %.12g is not %.12g\n", actual, expected);
    return good;
}

/* Half of an all-reduce around a ring of two, by small messages. */
static double half(uint64_t bytes) { return ALPHA + (double)bytes / 2 * BETA; }

static void one_rank_only_computes(void) {
    scene s;
    set(&s, 1, 2, (uint64_t[]){40000, 80000});
    gw_prediction p = ask(&s, "schedule=wfbp");
    CHECK(near(6e-3, p.step_seconds, 1e-9));
    CHECK(near(10 / 6e-3, p.samples_per_second, 1e-9));
    CHECK(p.bytes == 0);
}

/* An update is part of a step whose throughput was measured, and follows one whose passes were. */
static void an_update_takes_its_time(void) {
    scene s;
    set(&s, 1, 2, (uint64_t[]){40000, 80000});
    s.machine.update = 120e6;
    CHECK(near(7e-3, ask(&s, "schedule=wfbp").step_seconds, 1e-9));
    s.profile.whole_steps = true;
    CHECK(near(6e-3, ask(&s, "schedule=wfbp").step_seconds, 1e-9));
    s.machine.update = 1; /* an optimiser takes at most nine tenths of the step */
    CHECK(near(6e-3, ask(&s, "schedule=wfbp").step_seconds, 1e-9));
}

/* The exchange of the last layer begins while the first one computes. */
static void exchanges_slow_computing(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){0, 80000});
    for (int unfolded = 0; unfolded < 2; unfolded++) {
        s.unfolded = unfolded;
        s.machine.interference = 0;
        CHECK(near(6e-3, ask(&s, "arch=ring schedule=wfbp").step_seconds, 1e-9));
        s.machine.interference = 160e6;
        CHECK(near(6.5e-3, ask(&s, "arch=ring schedule=wfbp").step_seconds, 1e-9));
    }
}

/* In one queue, each of two slices waits for its decision. */
static void a_decision_takes_its_time(void) {
    scene s;
    set(&s, 2, 1, (uint64_t[]){80000});
    s.machine.at_once = 1;
    for (int unfolded = 0; unfolded < 2; unfolded++) {
        s.machine.decide = 0;
        s.unfolded = unfolded;
        double at_once = ask(&s, "arch=ring schedule=p3:slice=40000").step_seconds;
        s.machine.decide = 5e-4;
        CHECK(near(at_once + 2 * 5e-4, ask(&s, "arch=ring schedule=p3:slice=40000").step_seconds, 1e-9));
        CHECK(near(ask(&s, "arch=ring schedule=wfbp").step_seconds, 3e-3 + 2 * half(80000), 1e-9));
    }
}

static void fifo_hides_nothing(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){40000, 80000});
    gw_prediction p = ask(&s, "arch=ring schedule=fifo:fuse=1G");
    CHECK(near(6e-3 + 2 * half(120000), p.step_seconds, 1e-9));
    CHECK(near(2 * half(120000), p.exposed_seconds, 1e-9));
    CHECK(near(120000, p.bytes, 1e-9));
    CHECK(near(2 * 60000 * BETA, p.path.seconds[GW_TIME_TRANSFER], 1e-9));
    CHECK(near(2 * ALPHA, p.path.seconds[GW_TIME_LATENCY], 1e-9));
}

/* The last layer's exchange (2 half(80000) = 1 ms) is over before the first layer's backward (2 ms). */
static void wfbp_hides_all_but_the_first_layer(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){40000, 80000});
    CHECK(near(6e-3 + 2 * half(40000), ask(&s, "arch=ring schedule=wfbp:fuse=1").step_seconds, 1e-9));
    s.layers[1].parameter_bytes = 0; /* nothing of its own to send: all is exposed */
    CHECK(near(6e-3 + 2 * half(40000), ask(&s, "arch=ring schedule=wfbp:fuse=1").step_seconds, 1e-9));
}

/* Scattering behind backward, gathering behind the next forward pass: only the first layer's halves are exposed, and
 * the second's gathering is over within the 1 ms of the first layer. */
static void dear_hides_behind_both(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){40000, 80000});
    s.machine.at_once = 1;
    CHECK(near(6e-3 + 2 * half(40000), ask(&s, "arch=ring schedule=dear:fuse=1").step_seconds, 1e-9));
    set(&s, 2, 2, (uint64_t[]){4000, 240000}); /* and here it is not */
    s.machine.at_once = 1;
    double gathering = half(240000) + ALPHA; /* a large message waits for its grant */
    CHECK(near(6e-3 - 1e-3 + 2 * half(4000) + gathering, ask(&s, "arch=ring schedule=dear:fuse=1").step_seconds, 1e-9));
}

/* Priority: both are ready before the first is over; the one that forward needs first goes first. */
static void p3_lets_the_first_layer_overtake(void) {
    scene s;
    set(&s, 2, 3, (uint64_t[]){40000, 120000, 120000});
    for (int i = 0; i < 2; i++) s.layers[i].backward_us = 1; /* nearly at once */
    double p3 = ask(&s, "arch=ring schedule=p3:slice=1M").step_seconds;
    s.machine.at_once = 1;
    double fifo = ask(&s, "arch=ring schedule=wfbp:fuse=1").step_seconds;
    CHECK(p3 < fifo - 1e-4);
}

static void one_at_a_time_is_sequential(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){40000, 40000});
    s.layers[0].backward_us = 0;
    double together = ask(&s, "arch=ring schedule=wfbp:fuse=1").exposed_seconds;
    s.machine.at_once = 1;
    double apart = ask(&s, "arch=ring schedule=wfbp:fuse=1").exposed_seconds;
    CHECK(near(4 * half(40000), apart, 1e-9));
    CHECK(together < apart - ALPHA);
}

static void synchronization_hides_or_skips(void) {
    scene s;
    set(&s, 2, 2, (uint64_t[]){40000, 80000});
    CHECK(near(6e-3, ask(&s, "arch=ring sync=delayed schedule=fifo").step_seconds, 1e-9));
    double once = ask(&s, "arch=ring schedule=wfbp").exposed_seconds;
    gw_prediction rare = ask(&s, "arch=ring sync=periodic:every=4 schedule=wfbp");
    CHECK(near(once / 4, rare.exposed_seconds, 1e-9));
    CHECK(near(120000 / 4.0, rare.bytes, 1e-9));
}

/* A push and an answer; at one server the workers beside it share its link. */
static void servers_cost_what_they_say(void) {
    scene s;
    double n = 51200;
    set(&s, 2, 1, (uint64_t[]){51200});
    CHECK(near(3e-3 + 2 * (ALPHA + n * BETA), ask(&s, "arch=ps schedule=fifo").step_seconds, 1e-9));
    for (int ranks = 2; ranks <= 17; ranks++) {
        set(&s, ranks, 1, (uint64_t[]){51200});
        CHECK(near(3e-3 + 2 * (ALPHA + (ranks - 1) * n * BETA), ask(&s, "arch=ps schedule=fifo").step_seconds, 1e-9));
    }
    n = 65536;
    set(&s, 4, 1, (uint64_t[]){4 * 65536}); /* four stripes for each server: as an exchange of all with all */
    gw_prediction p = ask(&s, "arch=ps:servers=4 schedule=fifo");
    CHECK(near(3e-3 + 2 * (ALPHA + 3 * n * BETA), p.step_seconds, 1e-9));
    CHECK(near(6 * n, p.bytes, 1e-9));
    CHECK(ask(&s, "arch=ps:servers=2 schedule=p3 sync=ssp").step_seconds > p.step_seconds);
}

/* The worker beside the server waits for nobody, the other one for its push and the answer; a step is their mean. With
 * a staleness the first is held back: both are as fast as the slower one. Without the slowest, a round waits for one.
 */
static void servers_wait_by_their_rule(void) {
    scene s;
    double slow = 3e-3 + 2 * (ALPHA + 51200 * BETA);
    set(&s, 2, 1, (uint64_t[]){51200});
    CHECK(near((3e-3 + slow) / 2, ask(&s, "arch=ps schedule=fifo sync=asp").step_seconds, 1e-6));
    CHECK(near(slow, ask(&s, "arch=ps schedule=fifo sync=ssp:staleness=0").step_seconds, 1e-6));
    CHECK(near(slow, ask(&s, "arch=ps schedule=fifo sync=ssp:staleness=3").step_seconds, 0.03));
    CHECK(near((3e-3 + slow) / 2, ask(&s, "arch=ps schedule=fifo sync=backup").step_seconds, 1e-6));
}

/* A push and an answer of payloads; the server decodes two pushes and encodes once, a worker the other way round. */
static void servers_send_payloads(void) {
    scene s;
    set(&s, 2, 1, (uint64_t[]){1 << 20});
    gw_codec_speed speed = gw_machine_codec(&s.machine, "int8");
    double n = 1 << 20, payload = 4 + n / 4 * (1 + 4.0 / 512), alone = 3 * n / speed.decode + 2 * n / speed.encode;
    gw_prediction p = ask(&s, "arch=ps compress=int8 schedule=fifo");
    CHECK(near(payload, p.bytes, 1e-3));
    CHECK(near(3e-3 + 2 * (2 * ALPHA + payload * BETA) + alone, p.step_seconds, 0.03));
    p = ask(&s, "arch=ps compress=int8:feedback=worker schedule=fifo"); /* the answer is exact */
    alone = 2 * n / speed.decode + n / speed.encode;
    CHECK(near((payload + n) / 2, p.bytes, 1e-3));
    CHECK(near(3e-3 + 4 * ALPHA + (payload + n) * BETA + alone, p.step_seconds, 0.03));
}

/* Hosts of two: each host sends the coded half of what it has, both ways; its ranks share memory, and send nothing. */
static void hosts_combine_before_they_encode(void) {
    scene s;
    set(&s, 4, 1, (uint64_t[]){1 << 22});
    s.per_host = 2;
    double n = 1 << 22;
    gw_prediction p = ask(&s, "arch=hierarchical compress=int8 schedule=fifo");
    CHECK(p.folded);
    CHECK(near(n / 2 / 4 * (1 + 4.0 / 512), p.bytes, 0.01));
    double flat = ask(&s, "arch=ring compress=int8 schedule=fifo").step_seconds;
    CHECK(p.step_seconds < flat);
    CHECK(near(2 * n / 2 / 2, ask(&s, "arch=hierarchical schedule=dear").bytes, 0.01));
}

static void slices_are_cut_at_codec_blocks(void) {
    scene s;
    set(&s, 4, 2, (uint64_t[]){40000, 1 << 24});
    int dense = ask(&s, "arch=ring schedule=p3:slice=200000").buckets,
        coded = ask(&s, "arch=ring compress=int8 schedule=p3:slice=200000").buckets;
    CHECK(dense > 80);
    CHECK(coded >= dense && coded <= dense + 2);
}

/* An all-gather around a ring of four, and the products of all. */
static void factors_are_gathered_and_multiplied(void) {
    scene s;
    set(&s, 4, 1, (uint64_t[]){2000 * 1000 * 4});
    s.layers[0].rows = 2000;
    strcpy(s.layers[0].kind, "Linear");
    double factors = 10 * 3000 * 4, products = 4 * (10 * 2e6 / s.machine.multiply + 8e6 / s.machine.reduce);
    gw_prediction p = ask(&s, "arch=sfb schedule=fifo");
    CHECK(near(3 * factors, p.bytes, 1e-9));
    CHECK(near(3e-3 + 4 * ALPHA + 3 * factors * BETA + products, p.step_seconds, 1e-6));
    s.profile.batch = 1000; /* the matrix is smaller */
    CHECK(near(1.5 * 8e6, ask(&s, "arch=sfb schedule=fifo").bytes, 1e-3));
}

static void codecs_send_less(void) {
    scene s;
    set(&s, 4, 1, (uint64_t[]){1 << 22});
    double dense = ask(&s, "arch=ring").bytes;
    CHECK(near(1.5 * (1 << 22), dense, 1e-6));
    CHECK(near(dense / 2, ask(&s, "compress=fp16").bytes, 1e-3));
    CHECK(near(dense / 4, ask(&s, "compress=int8").bytes, 0.02));
    CHECK(near(dense / 31, ask(&s, "compress=onebit").bytes, 0.02));
    double sparse = ask(&s, "compress=topk:ratio=0.01").bytes;
    CHECK(sparse < dense / 60 && sparse > dense / 90);
    gw_prediction p = ask(&s, "compress=onebit");
    CHECK(p.path.seconds[GW_TIME_CODEC] > 0);
}

static void one_host_stands_for_all(void) {
    scene s;
    for (const gw_technique *const *schedule = gw_schedule_techniques; *schedule; schedule++) {
        for (int per_host = 1; per_host <= 2; per_host++) {
            char line[128];
            set(&s, 6, 4, (uint64_t[]){6 * 65536, 6 * 4096, 6 * 1048576, 6 * 256});
            s.per_host = per_host;
            s.machine.reduce = 2e9;
            snprintf(line, sizeof line, "arch=ring schedule=%s", (*schedule)->name);
            gw_prediction folded = ask(&s, line);
            s.unfolded = true;
            gw_prediction full = ask(&s, line);
            CHECK(folded.folded && !full.folded);
            /* Slices differ by an element; and where rank 0 sends the start order, it is not like the others. */
            bool start_order = gw_policy_of(*schedule)->reorders;
            CHECK(near(full.step_seconds, folded.step_seconds, start_order ? 2e-2 : 1e-5));
            CHECK(near(full.bytes, folded.bytes, 1e-4));
        }
    }
}

/* What can be committed is predicted, and never faster than computing; anything else is refused with a reason. */
static void predict_or_refuse(const scene *s, const gw_strategy *strategy) {
    gw_prediction p = {.step_seconds = NAN};
    gw_error refused = {.rank = -1}, error = {.rank = -1};
    gw_fabric_spec fabric = {.kind = GW_FABRIC_SWITCH};
    gw_strategy_facts job = {.hosts = s->ranks / s->per_host};
    gw_reducer_facts facts = {.world = s->ranks, .updates = true};
    bool foreign = gw_strategy_is(strategy, GW_AXIS_ARCH, "mpi");
    if (!foreign && !gw_strategy_check(strategy, &job, &refused)) gw_strategy_check_step(strategy, &facts, &refused);
    gw_predict_config config = {.profile = &s->profile, .strategy = strategy, .machine = &s->machine,
                                .fabric = fabric, .ranks = s->ranks, .per_host = s->per_host};
    gw_status expected = foreign || refused.status ? GW_UNSUPPORTED : GW_OK, status = gw_predict(&config, &p, &error);
    bool good = status == expected && (status ? error.text[0] != 0 : isfinite(p.step_seconds));
    good = good && (status || p.step_seconds >= gw_profile_seconds(&s->profile) * (1 - 1e-9));
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_strategy_print(strategy, line, sizeof line);
    if (!good) printf("    %s: %g s, %s\n", line, p.step_seconds, error.text);
    CHECK(good);
}

static void set_mixed(scene *s, int ranks, int per_host) {
    set(s, ranks, 4, (uint64_t[]){40000, 4, 400000, 12000});
    s->layers[2].rows = 1000;
    strcpy(s->layers[2].kind, "Linear");
    s->per_host = per_host;
}

static void refuse(const char *line, const char *sentence) {
    scene s;
    gw_strategy strategy;
    gw_prediction p;
    gw_error error = {.rank = -1};
    set_mixed(&s, 4, 2);
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    gw_predict_config config = {.profile = &s.profile, .strategy = &strategy, .machine = &s.machine,
                                .fabric = {.kind = GW_FABRIC_SWITCH}, .ranks = s.ranks, .per_host = s.per_host};
    CHECK_EQ(GW_UNSUPPORTED, gw_predict(&config, &p, &error));
    CHECK(strstr(error.text, sentence) != NULL);
}

static void what_is_not_modelled_is_refused(void) {
    refuse("arch=ps:servers=2,replicas=1", "replicas=1 is not predicted");
    refuse("arch=mpi transport=mpi", "arch=mpi is not predicted");
    refuse("arch=ring sync=asp", "use arch=ps");
}

static void every_pair_is_predicted_or_refused(void) {
    static const int worlds[][2] = {{6, 2}, {4, 4}, {3, 1}, {1, 1}}; /* ranks, of which on a host */
    scene s;
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        for (gw_axis a = 0; a < GW_AXES; a++)
            for (gw_axis b = a + 1; b < GW_AXES; b++)
                for (const gw_technique *const *first = gw_techniques(a); *first; first++)
                    for (const gw_technique *const *second = gw_techniques(b); *second; second++) {
                        gw_strategy strategy;
                        gw_error error = {.rank = -1};
                        set_mixed(&s, worlds[w][0], worlds[w][1]);
                        gw_strategy_combine(a, *first, b, *second, s.ranks, &strategy, &error);
                        predict_or_refuse(&s, &strategy);
                    }
}

static void every_codec_on_every_route(void) {
    scene s;
    set_mixed(&s, 6, 2);
    for (const gw_technique *const *arch = gw_techniques(GW_AXIS_ARCH); *arch; arch++)
        for (const gw_codec *const *codec = gw_codecs; *codec; codec++)
            for (const gw_technique *const *schedule = gw_schedule_techniques; *schedule; schedule++)
                for (int i = 0; i < 2; i++) {
                    char line[256], coded[GW_TECHNIQUE_TEXT_BYTES];
                    gw_strategy strategy;
                    gw_error error = {.rank = -1};
                    gw_technique_example(&(*codec)->technique, i, coded);
                    snprintf(line, sizeof line, "arch=%s schedule=%s compress=%s", (*arch)->name, (*schedule)->name,
                             coded);
                    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
                    predict_or_refuse(&s, &strategy);
                }
}

static gw_prediction of_resnet50(int ranks, int per_host, const char *line) {
    gw_error error = {.rank = -1};
    scene s = {.machine = gw_machine_default(), .ranks = ranks, .per_host = per_host};
    CHECK_EQ(GW_OK, gw_builtin_profile_make(gw_zoo_find("resnet50"), 0, 0, &s.profile, &error));
    gw_prediction p = ask(&s, line);
    gw_profile_free(&s.profile);
    return p;
}

static void large_worlds(void) {
    CHECK(of_resnet50(1024, 1, "arch=ring schedule=dear").efficiency > 0.5);
    gw_prediction p = of_resnet50(16384, 8, "arch=hierarchical schedule=wfbp");
    CHECK(p.folded && p.step_seconds > 1 && p.step_seconds < 2); /* 5 buckets of 4094 latencies */
}

TEST_MAIN(CASE(one_rank_only_computes), CASE(an_update_takes_its_time), CASE(exchanges_slow_computing),
          CASE(a_decision_takes_its_time), CASE(fifo_hides_nothing), CASE(wfbp_hides_all_but_the_first_layer),
          CASE(dear_hides_behind_both), CASE(p3_lets_the_first_layer_overtake), CASE(one_at_a_time_is_sequential),
          CASE(synchronization_hides_or_skips), CASE(servers_cost_what_they_say), CASE(servers_wait_by_their_rule),
          CASE(servers_send_payloads), CASE(hosts_combine_before_they_encode), CASE(slices_are_cut_at_codec_blocks),
          CASE(factors_are_gathered_and_multiplied), CASE(codecs_send_less), CASE(one_host_stands_for_all),
          CASE(what_is_not_modelled_is_refused), CASE(every_pair_is_predicted_or_refused),
          CASE(every_codec_on_every_route), CASE(large_worlds))
