/* test_coded_slices.c - schedules that slice tensors, with codecs: coded tensors have as many slices as dense ones, and
 * every slice has work for all owners; credit counts what payloads take. VGG-16 on 8 ranks; memory is reserved, but
 * never touched. */
#include "test.h"

#include <math.h>

#include "profile/builtin_profiles.h"
#include "reducer/step_engine_internal.h"

enum { WORLD = 8, TENSORS_MAX = 64 };

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}
static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    (void)ctx, (void)neighbour, (void)message;
}
static void failed(void *ctx, const gw_error *error) { (void)ctx, (void)error; }
static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

typedef struct model {
    gw_profile profile;
    gw_reducer_tensor tensors[TENSORS_MAX];
    char names[TENSORS_MAX][80];
    int count;
    float *memory;
} model;

static void add_tensor(model *m, const gw_profile_layer *layer, bool bias, size_t count, float **at) {
    gw_reducer_tensor *t = &m->tensors[m->count];
    CHECK(m->count < TENSORS_MAX);
    snprintf(m->names[m->count], sizeof m->names[0], "%.64s.%s", layer->name, bias ? "bias" : "weight");
    *t = (gw_reducer_tensor){.name = m->names[m->count++], .count = count, .dtype = GW_F32, .gradient = *at,
                             .rows = bias ? 0 : layer->rows};
    *at += count;
}

static void make_model(model *m) {
    gw_error error = {.rank = -1};
    size_t total = 0;
    *m = (model){.count = 0};
    CHECK_EQ(GW_OK, gw_builtin_profile_make(gw_zoo_find("vgg16"), 0, 0, &m->profile, &error));
    for (int i = 0; i < m->profile.count; i++) total += m->profile.layers[i].parameter_bytes / sizeof(float);
    float *at = m->memory = calloc(total, sizeof *m->memory);
    for (int i = 0; i < m->profile.count; i++) {
        const gw_profile_layer *layer = &m->profile.layers[i];
        size_t bias = layer->bias_bytes / sizeof(float), weights = layer->parameter_bytes / sizeof(float) - bias;
        if (weights) add_tensor(m, layer, false, weights, &at);
        if (bias) add_tensor(m, layer, true, bias, &at);
    }
}

/* A rank of a job whose other ranks do not exist. */
typedef struct lone_rank {
    gw_core *core;
    gw_team *team;
    gw_step_engine *engine;
} lone_rank;

static void open_rank(lone_rank *r, const model *m, const char *line) {
    gw_error error = {.rank = -1};
    int members[WORLD], hosts[WORLD];
    gw_strategy strategy;
    gw_topology topology = {.world = WORLD, .host_of = hosts};
    gw_core_config core = {.world = WORLD, .deadline = GW_SECOND, .host_name = host_name, .send = send_control,
                           .failed = failed, .slow = slow};
    for (int i = 0; i < WORLD; i++) members[i] = hosts[i] = i;
    *r = (lone_rank){.core = NULL};
    CHECK_EQ(GW_OK, gw_core_open(&r->core, &core, 0, &error));
    CHECK_EQ(GW_OK, gw_team_open(&r->team, gw_core_engine(r->core), 0, 0, members, &topology, NULL, &error));
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_step_engine_config config = {.core = r->core, .team = r->team, .first_id = 1, .tensors = m->tensors,
                                    .count = m->count, .options = options};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    CHECK_EQ(GW_OK, gw_step_engine_config_from_strategy(&config, &strategy, &error));
    CHECK_EQ(GW_OK, gw_step_engine_open(&r->engine, &config, &error));
    if (error.status) printf("    %s: %s\n", line, error.text);
}

static void close_rank(lone_rank *r) {
    gw_step_engine_close(r->engine);
    gw_team_close(r->team);
    gw_core_close(r->core);
}

/* Elements that an owner has of a slice. */
static uint64_t owned(const gw_owners *owners, int owner, const gw_tensor_range *range) {
    gw_stripes has = gw_owners_at_host(owners, 0, 1, owner);
    return gw_stripes_place(&has, range->first + range->count) - gw_stripes_place(&has, range->first);
}

/* The largest share of a slice of one tensor that one owner has; all of them have some. */
static double largest_share(const gw_step_engine *s) {
    double largest = 0;
    for (int p = 0; s->coded && p < gw_schedule_buckets(s->schedule); p++) {
        const gw_tensor_range *range = gw_schedule_ranges(s->schedule, p);
        if (gw_schedule_bucket(s->schedule, p)->ranges > 1 || range->count < 32 * 1024) continue;
        for (int owner = 0; owner < WORLD; owner++) {
            uint64_t count = owned(&s->coded[range->tensor].owners, owner, range);
            CHECK(count > 0);
            if ((double)count > largest * (double)range->count) largest = (double)count / (double)range->count;
        }
    }
    return largest;
}

static int slices_of(const model *m, const char *schedule, const char *codec) {
    char line[120];
    lone_rank r;
    snprintf(line, sizeof line, "arch=ring schedule=%s compress=%s", schedule, codec);
    open_rank(&r, m, line);
    if (!r.engine) return 0;
    int buckets = gw_step_engine_buckets(r.engine);
    double share = largest_share(r.engine);
    CHECK(share <= 0.25); /* an eighth, rounded to stripes */
    printf("    %-60s %4d slices, an owner has at most %.2f of one\n", line, buckets, share);
    close_rank(&r);
    return buckets;
}

/* What all slices together take of the credit, as a part of the model. */
static double payload_of(const model *m, const char *codec) {
    char line[120];
    lone_rank r;
    size_t bytes = 0, payload = 0;
    snprintf(line, sizeof line, "arch=ring schedule=bytescheduler compress=%s", codec);
    open_rank(&r, m, line);
    for (int p = 0; r.engine && p < gw_step_engine_buckets(r.engine); p++) {
        bytes += gw_schedule_bucket(gw_step_engine_schedule(r.engine), p)->bytes;
        payload += gw_schedule_bucket(gw_step_engine_schedule(r.engine), p)->payload;
    }
    close_rank(&r);
    return (double)payload / (double)bytes;
}

static void credit_counts_payloads(void) {
    static model m;
    make_model(&m);
    CHECK(fabs(1 - payload_of(&m, "none")) < 1e-9);
    CHECK(fabs(0.5 - payload_of(&m, "fp16")) < 1e-3);
    CHECK(fabs(0.252 - payload_of(&m, "int8")) < 1e-3);
    CHECK(fabs(1.0 / 31 - payload_of(&m, "onebit")) < 1e-3);
    CHECK(fabs(0.015 - payload_of(&m, "topk")) < 1e-3);
    free(m.memory);
    gw_profile_free(&m.profile);
}

static void coded_tensors_are_sliced_like_dense_ones(void) {
    static const char *const codecs[] = {"int8", "qsgd", "onebit", "topk", "dgc", "threshold", "randomk", "fp16"};
    static const char *const schedules[] = {"p3:slice=200000", "bytescheduler:slice=512K"};
    static model m;
    make_model(&m);
    for (int s = 0; s < 2; s++) {
        int dense = slices_of(&m, schedules[s], "none");
        CHECK(dense > 500);
        for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
            CHECK_EQ(dense, slices_of(&m, schedules[s], codecs[c]));
    }
    free(m.memory);
    gw_profile_free(&m.profile);
}

TEST_MAIN(CASE(coded_tensors_are_sliced_like_dense_ones), CASE(credit_counts_payloads))
