/* step_engine_open.c - checks a strategy against the tensors and allocates all memory. See step_engine.h. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"
#include "strategy/combine.h"

#define FLAT_ALIGNMENT 64 /* bytes, of a tensor whose type differs from that of the tensor before */

static void follow_fault_tolerance(gw_step_engine_config *c, const gw_strategy *strategy) {
    c->replicas = (int)gw_strategy_integer(strategy, GW_AXIS_ARCH, "replicas");
    c->snapshot_every = (uint64_t)gw_strategy_integer(strategy, GW_AXIS_ARCH, "snapshot");
}

/* Servers cut nothing, and their partitions must not change when a worker is lost. */
gw_schedule_settings gw_step_engine_sizes(const gw_strategy *strategy, const gw_team *team) {
    const gw_setting *schedule = &strategy->axes[GW_AXIS_SCHEDULE];
    gw_schedule_settings settings = gw_policy_of(schedule->technique)->settings(schedule->values);
    settings.parts = gw_strategy_servers(strategy) ? 0 : gw_team_size(team);
    return settings;
}

gw_status gw_step_engine_config_from_strategy(gw_step_engine_config *c, const gw_strategy *strategy, gw_error *error) {
    const gw_setting *axes = strategy->axes;
    c->arch = gw_strategy_name(strategy, GW_AXIS_ARCH);
    c->chunk_bytes = (size_t)gw_strategy_integer(strategy, GW_AXIS_ARCH, "chunk");
    c->servers = gw_strategy_servers(strategy);
    c->factors = gw_strategy_is(strategy, GW_AXIS_ARCH, "sfb");
    c->watch_accuracy = strategy->accuracy == GW_ACCURACY_SAFE;
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "ps")) follow_fault_tolerance(c, strategy);
    c->policy = gw_policy_of(axes[GW_AXIS_SCHEDULE].technique);
    c->settings = gw_step_engine_sizes(strategy, c->team);
    c->sync = gw_sync_of(axes[GW_AXIS_SYNC].technique);
    c->sync_values = axes[GW_AXIS_SYNC].values;
    gw_status status =
        gw_codec_from_setting(axes[GW_AXIS_COMPRESS].technique, axes[GW_AXIS_COMPRESS].values, &c->codec, error);
    if (!status && c->policy->slices) c->codec = gw_codec_sliced(&c->codec);
    return status;
}

/* Sets the offsets of tensors in the pack buffer, and returns its size. tensors may be NULL. */
static size_t lay_out_flat(const gw_step_engine_config *c, gw_step_engine_tensor *tensors) {
    size_t at = 0;
    for (int i = 0; i < c->count; i++) {
        if (i && c->tensors[i].dtype != c->tensors[i - 1].dtype)
            at = (at + FLAT_ALIGNMENT - 1) / FLAT_ALIGNMENT * FLAT_ALIGNMENT;
        if (tensors) tensors[i].offset = at;
        at += c->tensors[i].count * gw_dtype_bytes(c->tensors[i].dtype);
    }
    return at;
}

size_t gw_step_engine_flat_bytes(const gw_step_engine_config *c) {
    bool scattered = c->sync->travels_apart;
    if (c->serves_only) return 0;
    for (int i = 1; i < c->count; i++) {
        const gw_reducer_tensor *t = &c->tensors[i - 1], *next = &c->tensors[i];
        bool follows = (uint8_t *)t->gradient + t->count * gw_dtype_bytes(t->dtype) == (uint8_t *)next->gradient;
        scattered |= !follows && t->dtype == next->dtype && gw_transfers_may_pack(c, t);
    }
    return scattered ? lay_out_flat(c, NULL) : 0;
}

static size_t payload_of(const gw_step_engine_config *c, const gw_reducer_tensor *t) {
    if (t->exact || !gw_transfers_encode(c, t)) return 0;
    size_t rows = t->rows ? t->rows : 1;
    gw_codec_tensor named = gw_codec_tensor_make(t->name, rows, t->count / rows);
    return gw_coding_payload_bytes(&c->codec, &named, (uint32_t)gw_team_size(c->team));
}

bool gw_step_engine_updates_whole(const gw_step_engine_config *c) {
    return c->options.whole_tensors && c->servers && c->sync->rule;
}

/* Factors are a bucket of their own, never cut or fused. Coded tensors are cut at the codec's blocks. */
static void describe(const gw_step_engine_config *c, gw_schedule_tensor *described) {
    for (int i = 0; i < c->count; i++) {
        const gw_reducer_tensor *t = &c->tensors[i];
        bool factors = gw_factors_chosen(c, t), codec = gw_transfers_encode(c, t);
        described[i] = (gw_schedule_tensor){.count = factors ? t->batch * (t->rows + t->count / t->rows) : t->count,
                                            .element = gw_dtype_bytes(t->dtype),
                                            .kind = factors ? GW_DTYPES + i : (int)t->dtype,
                                            .whole = factors || gw_step_engine_updates_whole(c) ||
                                                     (codec && c->codec.codec->block == 0),
                                            .grain = codec ? gw_codec_block(&c->codec) : 0,
                                            .piece = factors ? 0 : gw_transfers_piece_bytes(c, t),
                                            .payload = factors ? 0 : payload_of(c, t),
                                            .after = t->after,
                                            .after_count = t->after_count};
    }
}

size_t gw_step_engine_buckets_most(const gw_reducer_tensor *tensors, int count) {
    size_t buckets = 0;
    for (int i = 0; i < count; i++)
        buckets += 1 + tensors[i].count * gw_dtype_bytes(tensors[i].dtype) / GW_SLICE_BYTES_MIN;
    return buckets;
}

uint32_t gw_step_engine_teams(const gw_step_engine_config *c, size_t buckets_most) {
    return gw_transfers_teams(c, buckets_most);
}

/* Checks. */

static gw_status check_tensor(const gw_step_engine_config *c, const gw_reducer_tensor *t, gw_error *error) {
    bool updates = c->options.update != NULL;
    if (!t->name || !*t->name) return gw_fail(error, GW_INVALID, "gw_reducer_commit: a tensor has no name");
    if ((unsigned)t->dtype >= GW_DTYPES)
        return gw_fail(error, GW_INVALID, "gw_reducer_commit: %s: %d is not a gw_dtype", t->name, (int)t->dtype);
    const char *why = gw_redop_refuses(t->dtype, c->options.op);
    if (why)
        return gw_fail(error, GW_UNSUPPORTED, "gw_reducer_commit: %s: the %s of %s is not possible: %s", t->name,
                       gw_redop_name(c->options.op), gw_dtype_name(t->dtype), why);
    if (t->count && !t->gradient)
        return gw_fail(error, GW_INVALID, "gw_reducer_commit: %s has no memory for its gradient", t->name);
    if (t->rows && t->count % t->rows)
        return gw_fail(error, GW_INVALID, "gw_reducer_commit: %s: %zu elements are not %zu rows", t->name, t->count,
                       t->rows);
    if (updates && t->count && !t->weights)
        return gw_fail(error, GW_INVALID, "gw_reducer_commit: %s has no weights, which the update writes", t->name);
    if (updates && t->dtype != GW_F32)
        return gw_fail(error, GW_UNSUPPORTED, "gw_reducer_commit: %s is of type %s; a reducer updates only f32 weights",
                       t->name, gw_dtype_name(t->dtype));
    return GW_OK;
}

static gw_status check_after(const gw_step_engine_config *c, int tensor, gw_error *error) {
    const gw_reducer_tensor *t = &c->tensors[tensor];
    for (int i = 0; t->after && i < t->after_count; i++)
        if (t->after[i] < 0 || t->after[i] >= tensor)
            return gw_fail(error, GW_INVALID,
                           "gw_reducer_commit: %s, tensor %d, builds on tensor %d, which does not come before it",
                           t->name, tensor, t->after[i]);
    return GW_OK;
}

static gw_status check(const gw_step_engine_config *c, gw_error *error) {
    gw_status status = GW_OK;
    if (c->options.op != GW_SUM && c->options.op != GW_AVG)
        return gw_fail(error, GW_INVALID, "gw_reducer_commit: gradients are combined by GW_AVG or GW_SUM");
    for (int i = 0; i < c->count && !status; i++) {
        status = check_tensor(c, &c->tensors[i], error);
        if (!status) status = check_after(c, i, error);
        for (int k = 0; !status && k < i; k++)
            if (strcmp(c->tensors[i].name, c->tensors[k].name) == 0)
                status = gw_fail(error, GW_INVALID, "gw_reducer_commit: two tensors are called %s", c->tensors[i].name);
    }
    return status;
}

/* Memory. */

static void apply(void *ctx, float *weights, const float *gradient, bool temporary) {
    gw_step_engine_tensor *t = ctx;
    const gw_step_engine *s = t->step_engine;
    gw_reducer_update update = {.tensor = (int)(t - s->tensors), .count = t->what.count, .weights = weights,
                             .gradient = gradient, .scale = t->view.scale, .temporary = temporary,
                             .step = t->applying, .rate_scale = 1, .updates = t->applying + 1};
    update.momentum = gw_step_engine_momentum(s, update.tensor);
    s->config.options.update(s->config.options.ctx, &update);
}

static bool keeps_momentum(const gw_step_engine_config *c) {
    return c->sync->keeps_momentum && c->sync->keeps_momentum(c->sync_values);
}

/* The caller's memory ends with the call. */
static gw_status copy_after(gw_reducer_tensor *what, gw_error *error) {
    size_t bytes = (size_t)what->after_count * sizeof *what->after;
    int *copy = what->after ? malloc(bytes + 1) : NULL;
    bool fails = what->after && !copy;
    if (copy) memcpy(copy, what->after, bytes);
    what->after = copy;
    return fails ? gw_fail(error, GW_MEMORY, "out of memory for the graph of a model") : GW_OK;
}

static gw_status make_tensors(gw_step_engine *s, gw_error *error) {
    const gw_step_engine_config *c = &s->config;
    size_t total = 0, arrays = c->serves_only ? 0 : (size_t)c->sync->keeps_anchor + keeps_momentum(c);
    for (int i = 0; i < c->count; i++) total += c->tensors[i].count;
    s->tensors = calloc((size_t)c->count + 1, sizeof *s->tensors);
    s->kept = calloc(arrays * total + 1, sizeof *s->kept);
    s->held = calloc((size_t)c->count + 1, sizeof *s->held);
    if (!s->tensors || !s->kept || !s->held) return gw_fail(error, GW_MEMORY, "out of memory for %d tensors", c->count);
    s->memory += arrays * total * sizeof *s->kept;
    s->flat_bytes = lay_out_flat(c, s->tensors);
    float *kept = s->kept;
    for (int i = 0; i < c->count; i++) {
        gw_step_engine_tensor *t = &s->tensors[i];
        t->step_engine = s;
        t->what = c->tensors[i];
        t->what.name = strdup(c->tensors[i].name);
        if (copy_after(&t->what, error)) return GW_MEMORY;
        if (!t->what.name) return gw_fail(error, GW_MEMORY, "out of memory for a name");
        t->view = (gw_sync_tensor){.count = t->what.count, .gradient = t->what.gradient, .apply = apply, .ctx = t,
                                   .weights = c->options.update || c->serves_only ? t->what.weights : NULL};
        t->view.travels = t->view.gradient;
        atomic_store(&t->reached, c->options.first_step);
        if (c->serves_only) continue;
        if (c->sync->travels_apart && c->flat) t->view.travels = (float *)((uint8_t *)c->flat + t->offset);
        if (c->sync->keeps_anchor) t->view.anchor = kept, kept += t->what.count;
        if (keeps_momentum(c)) t->view.momentum = kept, kept += t->what.count;
    }
    return GW_OK;
}

static gw_status make_factors(gw_step_engine *s, gw_error *error) {
    const gw_step_engine_config *c = &s->config;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < c->count; i++)
        if (gw_factors_chosen(c, &c->tensors[i]))
            status = gw_factors_open(&s->tensors[i].factors, c, i, gw_transfers_factor_team(c, i), error);
    return status;
}

static gw_status make_schedule(gw_step_engine *s, gw_error *error) {
    gw_schedule_tensor *described = calloc((size_t)s->config.count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for a schedule");
    describe(&s->config, described);
    gw_status status =
        gw_schedule_open(&s->schedule, s->config.policy, &s->config.settings, described, s->config.count, error);
    free(described);
    return status;
}

static gw_status make_ring(gw_step_engine *s, gw_error *error) {
    uint32_t size = 4;
    while (size < 2 * (uint32_t)s->config.count + 4) size *= 2;
    s->ring = calloc(size, sizeof *s->ring);
    s->ring_mask = size - 1;
    return s->ring ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a reducer");
}

static gw_status make_transfers(gw_step_engine *s, gw_error *error) {
    size_t buckets = (size_t)gw_schedule_buckets_max(s->schedule) + 1;
    s->transfers = calloc(buckets, sizeof *s->transfers);
    s->counts = calloc((size_t)gw_team_size(s->config.team), sizeof *s->counts);
    s->awaited = calloc(buckets, sizeof *s->awaited);
    if (!s->transfers || !s->counts || !s->awaited)
        return gw_fail(error, GW_MEMORY, "out of memory for %zu buckets", buckets);
    gw_step_engine_await_all(s);
    gw_status status = gw_transfers_prepare(s, error);
    if (!status) status = gw_transfers_bind(s, error);
    if (!status && s->config.policy->reorders && !s->config.servers && gw_team_size(s->config.team) > 1)
        status = gw_start_order_open(&s->start_order, s->config.core, s->config.team, error);
    return status;
}

gw_status gw_step_engine_build(gw_step_engine *s, gw_error *error) {
    gw_status status = make_factors(s, error);
    if (!status) status = make_schedule(s, error);
    if (!status) status = make_ring(s, error);
    return status ? status : make_transfers(s, error);
}

void gw_step_engine_teardown(gw_step_engine *s) {
    gw_start_order_close(s->start_order);
    gw_transfers_unbind(s, s->transfers, gw_step_engine_buckets(s));
    gw_transfers_release(s);
    for (int i = 0; s->tensors && i < s->config.count; i++) {
        gw_factors_close(s->tensors[i].factors);
        s->tensors[i].factors = NULL;
    }
    gw_schedule_close(s->schedule);
    free(s->awaited);
    free(s->counts);
    free(s->transfers);
    free(s->ring);
    s->start_order = NULL;
    s->schedule = NULL;
    s->awaited = s->ring = NULL;
    s->counts = NULL;
    s->transfers = NULL;
}

gw_status gw_step_engine_open(gw_step_engine **out, const gw_step_engine_config *config, gw_error *error) {
    gw_status status = check(config, error);
    if (status) return status;
    gw_step_engine *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a reducer");
    s->config = *config;
    s->generation = gw_control_generation(gw_core_control(config->core));
    status = make_tensors(s, error);
    if (!status) status = gw_step_engine_build(s, error);
    s->config.members = NULL;
    s->config.tensors = NULL; /* the caller's */
    if (status) gw_step_engine_close(s);
    else *out = s;
    return status;
}

void gw_step_engine_close(gw_step_engine *s) {
    if (!s) return;
    gw_ps_close(s->ps);
    gw_step_engine_teardown(s);
    for (int i = 0; s->tensors && i < s->config.count; i++) {
        free(s->tensors[i].carried);
        free((char *)(uintptr_t)s->tensors[i].what.name);
        free((int *)(uintptr_t)s->tensors[i].what.after);
    }
    free(s->kept_codec);
    free(s->held);
    free(s->kept);
    free(s->tensors);
    free(s);
}

/* Another cut. */

gw_status gw_step_engine_recut(gw_step_engine *s, const gw_schedule_settings *settings, const gw_schedule_facts *facts,
                               gw_error *error) {
    int old_count = gw_schedule_buckets(s->schedule);
    gw_transfer *old = s->transfers;
    s->transfers = calloc((size_t)gw_schedule_buckets_max(s->schedule) + 1, sizeof *s->transfers);
    if (!s->transfers) {
        s->transfers = old;
        return gw_fail(error, GW_MEMORY, "out of memory for other buckets");
    }
    gw_step_engine_take_ready(s); /* takes the end of the last step from the ring */
    gw_schedule_cut(s->schedule, settings, facts);
    gw_step_engine_await_all(s);
    gw_transfers_unbind(s, old, old_count); /* their teams' ids are reused */
    free(old);
    return gw_transfers_bind(s, error);
}

/* Sizes. */

static bool encodes(const gw_step_engine *s, int tensor) {
    if (s->tensors[tensor].factors) return false;
    if (s->ps) return gw_ps_encodes(s->ps, tensor);
    return s->coded && s->coded[tensor].what.name && !s->coded[tensor].exact;
}

double gw_step_engine_momentum(const gw_step_engine *s, int tensor) {
    return encodes(s, tensor) ? gw_codec_momentum(&s->config.codec) : 0;
}

const char *gw_step_engine_name(const gw_step_engine *s, int tensor) { return s->tensors[tensor].what.name; }
const gw_schedule *gw_step_engine_schedule(const gw_step_engine *s) { return s->schedule; }

gw_coded_form gw_step_engine_form(const gw_step_engine *s, int bucket) {
    const gw_transfer *transfer = &s->transfers[bucket];
    return transfer->route.coded ? gw_coded_exchange_chosen(transfer->lanes[0].exchange) : GW_FORM_AUTO;
}

const gw_route *gw_step_engine_route(const gw_step_engine *s, int bucket) { return &s->transfers[bucket].route; }

/* 0 while it is between two teams. */
int gw_step_engine_buckets(const gw_step_engine *s) { return s->schedule ? gw_schedule_buckets(s->schedule) : 0; }

size_t gw_step_engine_codec_bytes(const gw_step_engine *s) {
    size_t bytes = s->ps ? gw_ps_codec_state_bytes(s->ps) : 0;
    for (int i = 0; s->coded && i < s->config.count; i++) bytes += gw_coding_tensor_bytes(&s->coded[i]);
    return bytes;
}

double gw_step_engine_exact_share(const gw_step_engine *s) {
    return s->watched.elements ? (double)s->watched.exact_elements / (double)s->watched.elements : 0;
}

int gw_step_engine_exact_tensors(const gw_step_engine *s, size_t *bytes) {
    int tensors = 0;
    *bytes = 0;
    for (int i = 0; i < s->config.count && !s->config.codec.codec->identity; i++) {
        const gw_reducer_tensor *t = &s->tensors[i].what;
        if (encodes(s, i)) continue;
        tensors++;
        *bytes += t->count * gw_dtype_bytes(t->dtype);
    }
    return tensors;
}

size_t gw_step_engine_memory_bytes(const gw_step_engine *s) {
    size_t bytes = s->memory + gw_step_engine_codec_bytes(s) + (s->config.flat ? s->flat_bytes : 0);
    if (s->ps) bytes += gw_ps_memory_bytes(s->ps);
    if (s->payloads) bytes += gw_payload_pool_bytes(s->payloads);
    for (int i = 0; i < s->config.count; i++)
        if (s->tensors[i].factors) bytes += gw_factors_memory_bytes(s->tensors[i].factors);
    for (int p = 0; p < gw_step_engine_buckets(s); p++) {
        const gw_transfer *transfer = &s->transfers[p];
        bytes += transfer->by_lane ? (size_t)s->lanes.lanes * transfer->lane_room * sizeof(float) : 0;
        for (int l = 0; l < transfer->lane_count; l++)
            if (transfer->lanes[l].exchange) bytes += gw_coded_exchange_memory_bytes(transfer->lanes[l].exchange);
    }
    return bytes;
}
