/* stepper_open.c - what a strategy means for these tensors: checked, and all memory taken. See stepper.h. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"
#include "strategy/combine.h"

#define FLAT_ALIGNMENT 64 /* where the type changes */

static bool codes(const gw_stepper_config *c, const gw_step_tensor *tensor) {
    return c->codec.codec != &gw_codec_none && tensor->dtype == GW_F32;
}

static void follow_kept(gw_stepper_config *c, const gw_strategy *strategy) {
    c->replicas = (int)gw_strategy_integer(strategy, GW_AXIS_ARCH, "replicas");
    c->snapshot_every = (uint64_t)gw_strategy_integer(strategy, GW_AXIS_ARCH, "snapshot");
}

gw_status gw_stepper_follow(gw_stepper_config *c, const gw_strategy *strategy, gw_error *error) {
    const gw_setting *axes = strategy->axes;
    c->arch = gw_strategy_name(strategy, GW_AXIS_ARCH);
    c->chunk_bytes = (size_t)gw_strategy_integer(strategy, GW_AXIS_ARCH, "chunk");
    c->servers = gw_strategy_servers(strategy);
    c->factors = gw_strategy_is(strategy, GW_AXIS_ARCH, "sfb");
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "ps")) follow_kept(c, strategy);
    c->policy = gw_policy_of(axes[GW_AXIS_SCHEDULE].technique);
    c->settings = c->policy->settings(axes[GW_AXIS_SCHEDULE].values);
    c->sync = gw_sync_of(axes[GW_AXIS_SYNC].technique);
    c->sync_values = axes[GW_AXIS_SYNC].values;
    return gw_codec_from_setting(axes[GW_AXIS_COMPRESS].technique, axes[GW_AXIS_COMPRESS].values, &c->codec, error);
}

/* Where tensors stand in the flat memory; returns its size. offsets may be NULL. */
static size_t lay_flat(const gw_stepper_config *c, gw_stepper_tensor *tensors) {
    size_t at = 0;
    for (int i = 0; i < c->count; i++) {
        if (i && c->tensors[i].dtype != c->tensors[i - 1].dtype)
            at = (at + FLAT_ALIGNMENT - 1) / FLAT_ALIGNMENT * FLAT_ALIGNMENT;
        if (tensors) tensors[i].offset = at;
        at += c->tensors[i].count * gw_dtype_bytes(c->tensors[i].dtype);
    }
    return at;
}

size_t gw_stepper_flat_bytes(const gw_stepper_config *c) {
    bool scattered = c->sync->travels_apart;
    if (c->serves_only) return 0;
    for (int i = 1; i < c->count; i++) {
        const gw_step_tensor *t = &c->tensors[i - 1], *next = &c->tensors[i];
        bool follows = (uint8_t *)t->gradient + t->count * gw_dtype_bytes(t->dtype) == (uint8_t *)next->gradient;
        scattered |= !follows && t->dtype == next->dtype && !codes(c, t) && !c->servers;
    }
    return scattered ? lay_flat(c, NULL) : 0;
}

/* Factors travel alone, in one piece. */
static void describe(const gw_stepper_config *c, gw_schedule_tensor *described) {
    for (int i = 0; i < c->count; i++) {
        const gw_step_tensor *t = &c->tensors[i];
        bool factors = gw_factors_chosen(c, t);
        described[i] = (gw_schedule_tensor){.count = factors ? t->batch * (t->rows + t->count / t->rows) : t->count,
                                            .element = gw_dtype_bytes(t->dtype),
                                            .kind = factors ? GW_DTYPES + i : (int)t->dtype,
                                            .whole = factors || codes(c, t)};
    }
}

static uint32_t codec_teams(const gw_stepper_config *c) {
    return c->codec.codec == &gw_codec_none ? 0 : (uint32_t)c->count + 1; /* coded tensors are not cut */
}

uint32_t gw_stepper_teams(const gw_stepper_config *c) {
    return codec_teams(c) + (c->factors ? (uint32_t)c->count : 0);
}

/* Checks. */

static gw_status check_tensor(const gw_stepper_config *c, const gw_step_tensor *t, gw_error *error) {
    bool updates = c->options.update != NULL;
    if (!t->name || !*t->name) return gw_fail(error, GW_INVALID, "gw_step_commit: a tensor has no name");
    if ((unsigned)t->dtype >= GW_DTYPES)
        return gw_fail(error, GW_INVALID, "gw_step_commit: %s: %d is not a gw_dtype", t->name, (int)t->dtype);
    if (t->count && !t->gradient)
        return gw_fail(error, GW_INVALID, "gw_step_commit: %s has no memory for its gradient", t->name);
    if (t->rows && t->count % t->rows)
        return gw_fail(error, GW_INVALID, "gw_step_commit: %s: %zu elements are not %zu rows", t->name, t->count,
                       t->rows);
    if (updates && t->count && !t->weights)
        return gw_fail(error, GW_INVALID, "gw_step_commit: %s has no weights, which the update writes", t->name);
    if (updates && t->dtype != GW_F32)
        return gw_fail(error, GW_UNSUPPORTED, "gw_step_commit: %s is of type %s; a step updates only f32 weights",
                       t->name, gw_dtype_name(t->dtype));
    return GW_OK;
}

static gw_status check(const gw_stepper_config *c, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < c->count && !status; i++) {
        status = check_tensor(c, &c->tensors[i], error);
        for (int k = 0; !status && k < i; k++)
            if (strcmp(c->tensors[i].name, c->tensors[k].name) == 0)
                status = gw_fail(error, GW_INVALID, "gw_step_commit: two tensors are called %s", c->tensors[i].name);
    }
    if (!status && c->options.op != GW_SUM && c->options.op != GW_AVG)
        status = gw_fail(error, GW_INVALID, "gw_step_commit: gradients are combined by GW_AVG or GW_SUM");
    return status;
}

/* Memory. */

static void apply(void *ctx, float *weights, const float *gradient, bool passing) {
    gw_stepper_tensor *t = ctx;
    const gw_stepper *s = t->stepper;
    gw_step_update update = {.tensor = (int)(t - s->tensors), .count = t->what.count, .weights = weights,
                             .gradient = gradient, .scale = s->scale, .local = passing,
                             .step = t->applying};
    s->config.options.update(s->config.options.ctx, &update);
}

static bool keeps_momentum(const gw_stepper_config *c) {
    return c->sync->keeps_momentum && c->sync->keeps_momentum(c->sync_values);
}

static gw_status make_tensors(gw_stepper *s, gw_error *error) {
    const gw_stepper_config *c = &s->config;
    size_t total = 0, arrays = c->serves_only ? 0 : (size_t)c->sync->keeps_anchor + keeps_momentum(c);
    for (int i = 0; i < c->count; i++) total += c->tensors[i].count;
    s->tensors = calloc((size_t)c->count + 1, sizeof *s->tensors);
    s->kept = calloc(arrays * total + 1, sizeof *s->kept);
    if (!s->tensors || !s->kept) return gw_fail(error, GW_MEMORY, "out of memory for %d tensors", c->count);
    s->memory += arrays * total * sizeof *s->kept;
    s->flat_bytes = lay_flat(c, s->tensors);
    float *kept = s->kept;
    for (int i = 0; i < c->count; i++) {
        gw_stepper_tensor *t = &s->tensors[i];
        t->stepper = s;
        t->what = c->tensors[i];
        t->what.name = strdup(c->tensors[i].name);
        if (!t->what.name) return gw_fail(error, GW_MEMORY, "out of memory for a name");
        t->view = (gw_sync_tensor){.count = t->what.count, .gradient = t->what.gradient, .apply = apply, .ctx = t,
                                   .weights = c->options.update || c->serves_only ? t->what.weights : NULL};
        t->view.travels = t->view.gradient;
        atomic_store(&t->reached, c->options.first_step);
        if (c->serves_only) continue;
        if (c->sync->travels_apart) t->view.travels = (float *)((uint8_t *)c->flat + t->offset);
        if (c->sync->keeps_anchor) t->view.anchor = kept, kept += t->what.count;
        if (keeps_momentum(c)) t->view.momentum = kept, kept += t->what.count;
    }
    return GW_OK;
}

static gw_status make_factors(gw_stepper *s, gw_error *error) {
    const gw_stepper_config *c = &s->config;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < c->count; i++)
        if (gw_factors_chosen(c, &c->tensors[i]))
            status = gw_factors_open(&s->tensors[i].factors, c, i, c->first_id + codec_teams(c) + (uint32_t)i, error);
    return status;
}

static gw_status make_schedule(gw_stepper *s, gw_error *error) {
    gw_schedule_tensor *described = calloc((size_t)s->config.count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for a schedule");
    describe(&s->config, described);
    gw_status status = gw_schedule_open(&s->schedule, s->config.policy, &s->config.settings, described,
                                        s->config.count, error);
    free(described);
    return status;
}

static gw_status make_ring(gw_stepper *s, gw_error *error) {
    uint32_t size = 4;
    while (size < 2 * (uint32_t)s->config.count + 4) size *= 2;
    s->ring = calloc(size, sizeof *s->ring);
    s->ring_mask = size - 1;
    return s->ring ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a step");
}

static gw_status make_runs(gw_stepper *s, gw_error *error) {
    size_t pieces = (size_t)gw_schedule_pieces_max(s->schedule) + 1;
    s->runs = calloc(pieces, sizeof *s->runs);
    s->values = calloc(pieces, sizeof *s->values);
    s->counts = calloc((size_t)gw_team_size(s->config.team), sizeof *s->counts);
    s->awaited = calloc(pieces, sizeof *s->awaited);
    if (!s->runs || !s->values || !s->counts || !s->awaited)
        return gw_fail(error, GW_MEMORY, "out of memory for %zu pieces", pieces);
    gw_stepper_await_all(s);
    gw_status status = gw_carry_bind(s, error);
    if (!status && s->config.policy->reorders && !s->config.servers && gw_team_size(s->config.team) > 1)
        status = gw_publisher_open(&s->publisher, s->config.core, s->config.team, error);
    return status;
}

gw_status gw_stepper_build(gw_stepper *s, gw_error *error) {
    gw_status status = make_factors(s, error);
    if (!status) status = make_schedule(s, error);
    if (!status) status = make_ring(s, error);
    return status ? status : make_runs(s, error);
}

/* What a stepper of collectives builds for its team. */
void gw_stepper_raze(gw_stepper *s) {
    gw_publisher_close(s->publisher);
    gw_carry_unbind(s->runs, gw_stepper_pieces(s));
    for (int i = 0; s->tensors && i < s->config.count; i++) {
        gw_factors_close(s->tensors[i].factors);
        s->tensors[i].factors = NULL;
    }
    gw_schedule_close(s->schedule);
    free(s->awaited);
    free(s->counts);
    free(s->values);
    free(s->runs);
    free(s->ring);
    s->publisher = NULL;
    s->schedule = NULL;
    s->awaited = s->ring = NULL;
    s->counts = NULL;
    s->values = NULL;
    s->runs = NULL;
}

gw_status gw_stepper_open(gw_stepper **out, const gw_stepper_config *config, gw_error *error) {
    gw_status status = check(config, error);
    if (status) return status;
    gw_stepper *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a step");
    s->config = *config;
    s->generation = gw_control_generation(gw_core_control(config->core));
    s->scale = 1;
    status = make_tensors(s, error);
    if (!status) status = gw_stepper_build(s, error);
    s->config.attendants = NULL;
    s->config.tensors = NULL; /* the caller's */
    if (status) gw_stepper_close(s);
    else *out = s;
    return status;
}

void gw_stepper_close(gw_stepper *s) {
    if (!s) return;
    gw_ps_close(s->ps);
    gw_stepper_raze(s);
    for (int i = 0; s->tensors && i < s->config.count; i++) free((char *)(uintptr_t)s->tensors[i].what.name);
    free(s->kept_codec);
    free(s->kept);
    free(s->tensors);
    free(s);
}

/* Another cut. */

gw_status gw_stepper_recut(gw_stepper *s, const gw_schedule_settings *settings, const gw_schedule_facts *facts,
                           gw_error *error) {
    int old_count = gw_schedule_pieces(s->schedule);
    gw_run *old = s->runs;
    s->runs = calloc((size_t)gw_schedule_pieces_max(s->schedule) + 1, sizeof *s->runs);
    if (!s->runs) {
        s->runs = old;
        return gw_fail(error, GW_MEMORY, "out of memory for other pieces");
    }
    gw_stepper_take_ready(s); /* that the last step is over */
    gw_schedule_cut(s->schedule, settings, facts);
    gw_stepper_await_all(s);
    for (int p = 0; p < old_count; p++) { /* their ids are taken anew */
        gw_team_close(old[p].team);
        old[p].team = NULL;
    }
    gw_status status = gw_carry_bind(s, error);
    if (!status) gw_carry_adopt(s->runs, gw_schedule_pieces(s->schedule), old, old_count);
    gw_carry_unbind(old, old_count);
    free(old);
    return status;
}

/* What it comes to. */

const char *gw_stepper_name(const gw_stepper *s, int tensor) { return s->tensors[tensor].what.name; }
const gw_schedule *gw_stepper_schedule(const gw_stepper *s) { return s->schedule; }

gw_exchange_form gw_stepper_form(const gw_stepper *s, int piece) {
    return s->runs[piece].exchange ? gw_exchange_chosen(s->runs[piece].exchange) : GW_FORM_AUTO;
}

/* None while it is between two teams. */
int gw_stepper_pieces(const gw_stepper *s) { return s->schedule ? gw_schedule_pieces(s->schedule) : 0; }

size_t gw_stepper_codec_bytes(const gw_stepper *s) {
    size_t bytes = s->ps ? gw_ps_codec_state_bytes(s->ps) : 0;
    for (int p = 0; p < gw_stepper_pieces(s); p++)
        if (s->runs[p].exchange) bytes += gw_exchange_state_bytes(s->runs[p].exchange);
    return bytes;
}

size_t gw_stepper_memory_bytes(const gw_stepper *s) {
    size_t bytes = s->memory + gw_stepper_codec_bytes(s) + (s->config.flat ? s->flat_bytes : 0);
    if (s->ps) bytes += gw_ps_memory_bytes(s->ps);
    for (int i = 0; i < s->config.count; i++)
        if (s->tensors[i].factors) bytes += gw_factors_memory_bytes(s->tensors[i].factors);
    for (int p = 0; p < gw_stepper_pieces(s); p++)
        if (s->runs[p].exchange) bytes += gw_exchange_memory_bytes(s->runs[p].exchange);
    return bytes;
}
