/* dispatch.c - sends a bucket: as it is by an all-reduce (or its two halves), through a codec, or through servers
 * (ps_client.c). */
#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

static uint8_t *range_data(const gw_step_engine *s, const gw_tensor_range *range) {
    const gw_step_engine_tensor *t = &s->tensors[range->tensor];
    return (uint8_t *)t->view.travels + range->first * gw_dtype_bytes(t->what.dtype);
}

static uint8_t *flat_data(const gw_step_engine *s, const gw_tensor_range *range) {
    const gw_step_engine_tensor *t = &s->tensors[range->tensor];
    return (uint8_t *)s->config.flat + t->offset + range->first * gw_dtype_bytes(t->what.dtype);
}

/* Binding. */

static bool lies_together(const gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    for (int i = 1; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        size_t element = gw_dtype_bytes(s->tensors[ranges[i - 1].tensor].what.dtype);
        if (range_data(s, &ranges[i - 1]) + ranges[i - 1].count * element != range_data(s, &ranges[i])) return false;
    }
    return true;
}

static void bind_dense(gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_transfer *transfer = &s->transfers[bucket];
    transfer->dtype = s->tensors[ranges[0].tensor].what.dtype;
    transfer->count = gw_schedule_bucket(s->schedule, bucket)->bytes / gw_dtype_bytes(transfer->dtype);
    transfer->copies = !lies_together(s, bucket);
    transfer->data = transfer->copies ? flat_data(s, &ranges[0]) : range_data(s, &ranges[0]);
}

gw_status gw_dispatch_team(const gw_step_engine_config *c, uint32_t id, gw_team **team, gw_error *error) {
    gw_team *like = c->team;
    int size = gw_team_size(like), *members = malloc((size_t)size * sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for a team of %d ranks", size);
    for (int r = 0; r < size; r++) members[r] = gw_team_member(like, r);
    gw_status status = gw_team_open(team, gw_core_engine(c->core), id, gw_team_rank(like), members,
                                    gw_team_topology(like), NULL, error);
    free(members);
    return status;
}

/* What an exchange is opened with; one entry for each span of the largest piece. */
typedef struct coded_names {
    gw_codec_tensor *tensors;
    bool *exact;
} coded_names;

static gw_status bind_coded(gw_step_engine *s, int bucket, const coded_names *names, gw_error *error) {
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_transfer *transfer = &s->transfers[bucket];
    transfer->values = s->values + p->first_range;
    for (int i = 0; i < p->ranges; i++) {
        const gw_step_engine_tensor *t = &s->tensors[ranges[i].tensor];
        size_t rows = t->what.rows ? t->what.rows : 1;
        names->tensors[i] = gw_codec_tensor_make(t->what.name, rows, t->what.count / rows);
        names->exact[i] = t->what.exact;
        transfer->values[i] = t->view.travels;
    }
    gw_coded_exchange_config config = {.setup = s->config.codec, .tensors = names->tensors, .exact = names->exact,
                                 .count = p->ranges, .seed = s->config.options.seed,
                                 .halves = gw_schedule_policy(s->schedule)->splits};
    gw_status status = gw_dispatch_team(&s->config, s->config.first_id + (uint32_t)bucket, &transfer->team, error);
    return status ? status
                  : gw_coded_exchange_open(&transfer->exchange, s->config.core, transfer->team, &config, error);
}

/* Those that travel as factors; every kind of carrier leaves them out. */
static void bind_factored(gw_step_engine *s) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        gw_step_engine_tensor *t = &s->tensors[gw_schedule_ranges(s->schedule, p)[0].tensor];
        s->transfers[p].factored = t->factors ? t : NULL;
    }
}

static bool coded(const gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    return !s->config.codec.codec->identity && s->tensors[ranges[0].tensor].what.dtype == GW_F32;
}

gw_status gw_dispatch_bind(gw_step_engine *s, gw_error *error) {
    bind_factored(s);
    if (s->config.servers) return s->ps ? gw_ps_bind(s->ps, error) : gw_ps_open(&s->ps, s, error);
    coded_names names = {calloc((size_t)s->config.count + 1, sizeof *names.tensors),
                         calloc((size_t)s->config.count + 1, sizeof *names.exact)};
    gw_status status = names.tensors && names.exact ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for pieces");
    for (int p = 0; !status && p < gw_schedule_buckets(s->schedule); p++) {
        if (s->transfers[p].factored) continue;
        if (coded(s, p)) status = bind_coded(s, p, &names, error);
        else bind_dense(s, p);
    }
    free(names.tensors);
    free(names.exact);
    return status;
}

void gw_dispatch_unbind(gw_transfer *transfers, int count) {
    for (int p = 0; transfers && p < count; p++) {
        if (transfers[p].op) gw_op_release(transfers[p].op); /* the engine has failed */
        gw_coded_exchange_close(transfers[p].exchange);
        gw_team_close(transfers[p].team);
        transfers[p] = (gw_transfer){0};
    }
}

void gw_dispatch_adopt(gw_transfer *transfers, int count, const gw_transfer *old, int old_count) {
    for (int p = 0; p < count; p++)
        for (int o = 0; transfers[p].exchange && o < old_count; o++)
            if (old[o].exchange) gw_coded_exchange_adopt(transfers[p].exchange, old[o].exchange);
}

/* On its way. */

static gw_status start_dense(gw_step_engine *s, int bucket, gw_collective what, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    int size = gw_team_size(s->config.team), rank = gw_team_rank(s->config.team);
    gw_op_spec spec = {.collective = what,
                       .in = transfer->data,
                       .out = transfer->data,
                       .count = transfer->count,
                       .dtype = transfer->dtype,
                       .redop = s->config.options.op,
                       .root = -1,
                       .chunk_bytes = s->config.chunk_bytes,
                       .label = transfer->label,
                       .urgency = gw_schedule_urgency(s->schedule, bucket, what == GW_COLL_ALLGATHER)};
    if (what != GW_COLL_ALLREDUCE) {
        size_t offset = 0, own;
        for (int r = 0; r < size; r++) gw_part(transfer->count, size, r, &offset, &s->counts[r]);
        gw_part(transfer->count, size, rank, &offset, &own);
        uint8_t *part = transfer->data + offset * gw_dtype_bytes(transfer->dtype);
        spec.counts = s->counts;
        spec.count = 0;
        if (what == GW_COLL_REDUCE_SCATTER) spec.out = part;
        else spec.in = part;
    }
    gw_plan_request request = {.collective = what, .topology = *gw_team_topology(s->config.team), .rank = rank,
                               .count = spec.count, .counts = spec.counts, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    spec.builder = gw_arch_choose(s->config.arch, &request, gw_dtype_bytes(transfer->dtype));
    return gw_core_start(s->config.core, &transfer->op, s->config.team, &spec, now, error);
}

static void pack(gw_step_engine *s, int bucket, bool back) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        size_t bytes = ranges[i].count * gw_dtype_bytes(s->transfers[bucket].dtype);
        if (back) memcpy(range_data(s, &ranges[i]), flat_data(s, &ranges[i]), bytes);
        else memcpy(flat_data(s, &ranges[i]), range_data(s, &ranges[i]), bytes);
    }
}

/* Differences of weights (sync=periodic, and what goes to servers that cannot run an update) have had their rate. */
float gw_dispatch_rate_growth(const gw_step_engine *s, uint64_t step) {
    const gw_reducer_options *o = &s->config.options;
    if (!o->rate || step == 0 || s->config.sync->local || (s->ps && gw_ps_moves_weights(s->ps))) return 0;
    double before = o->rate(o->ctx, step - 1), now = o->rate(o->ctx, step);
    return before > 0 && now > 0 ? (float)(now / before - 1) : 0;
}

void gw_dispatch_start(gw_step_engine *s, int bucket, bool second, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    bool splits = gw_schedule_policy(s->schedule)->splits;
    if (!second) transfer->label = gw_step_engine_trace_start(s, bucket);
    if (transfer->factored) {
        if (!second) gw_factors_start(transfer->factored->factors, transfer->label, now, error);
        if (s->ps) gw_schedule_sent(s->schedule, bucket); /* the others may start in another order */
        return;
    }
    if (s->ps) {
        gw_ps_start(s->ps, bucket, gw_step_engine_step(s, p->readied - 1), now, error);
        return;
    }
    if (transfer->exchange) {
        uint64_t step = gw_step_engine_step(s, p->readied - 1);
        gw_coded_exchange_urgency(transfer->exchange, gw_schedule_urgency(s->schedule, bucket, second));
        if (second) {
            gw_coded_exchange_go_on(transfer->exchange);
            return;
        }
        gw_coded_exchange_rate_growth(transfer->exchange, gw_dispatch_rate_growth(s, step));
        gw_coded_exchange_begin(transfer->exchange, step, (const float *const *)transfer->values, transfer->values,
                                s->config.options.op == GW_AVG);
        return;
    }
    if (transfer->copies && !second) pack(s, bucket, false);
    start_dense(s, bucket,
                second   ? GW_COLL_ALLGATHER
                : splits ? GW_COLL_REDUCE_SCATTER
                         : GW_COLL_ALLREDUCE,
                now, error);
}

bool gw_dispatch_over(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    gw_status status = GW_OK;
    if (transfer->factored)
        return gw_factors_over(transfer->factored->factors, transfer->factored->view.travels, error);
    if (s->ps) return gw_ps_over(s->ps, bucket);
    if (transfer->exchange) {
        gw_op *awaited = NULL;
        return gw_coded_exchange_next(transfer->exchange, now, &awaited, &status, error);
    }
    if (!gw_op_done(transfer->op)) return false;
    status = gw_op_status(transfer->op);
    gw_op_release(transfer->op);
    transfer->op = NULL;
    gw_engine_explain(gw_core_engine(s->config.core), status, error);
    return true;
}

void gw_dispatch_finish(gw_step_engine *s, int bucket) {
    if (s->transfers[bucket].copies) pack(s, bucket, true);
}
