/* stepper_carry.c - a piece on its way: as it is through an all-reduce (or its two halves), through a codec, or through
 * servers (stepper_ps.c). */
#include <stdlib.h>
#include <string.h>

#include "arch/choose.h"
#include "base/dtype.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"

static uint8_t *span_data(const gw_stepper *s, const gw_span *span) {
    const gw_stepper_tensor *t = &s->tensors[span->tensor];
    return (uint8_t *)t->view.travels + span->first * gw_dtype_bytes(t->what.dtype);
}

static uint8_t *flat_data(const gw_stepper *s, const gw_span *span) {
    const gw_stepper_tensor *t = &s->tensors[span->tensor];
    return (uint8_t *)s->config.flat + t->offset + span->first * gw_dtype_bytes(t->what.dtype);
}

/* Binding. */

static bool lies_together(const gw_stepper *s, int piece) {
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    for (int i = 1; i < gw_schedule_piece(s->schedule, piece)->spans; i++) {
        size_t element = gw_dtype_bytes(s->tensors[spans[i - 1].tensor].what.dtype);
        if (span_data(s, &spans[i - 1]) + spans[i - 1].count * element != span_data(s, &spans[i])) return false;
    }
    return true;
}

static void bind_dense(gw_stepper *s, int piece) {
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    gw_run *run = &s->runs[piece];
    run->dtype = s->tensors[spans[0].tensor].what.dtype;
    run->count = gw_schedule_piece(s->schedule, piece)->bytes / gw_dtype_bytes(run->dtype);
    run->copies = !lies_together(s, piece);
    run->data = run->copies ? flat_data(s, &spans[0]) : span_data(s, &spans[0]);
}

gw_status gw_carry_team(const gw_stepper_config *c, uint32_t id, gw_team **team, gw_error *error) {
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

static gw_status bind_coded(gw_stepper *s, int piece, const coded_names *names, gw_error *error) {
    const gw_piece *p = gw_schedule_piece(s->schedule, piece);
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    gw_run *run = &s->runs[piece];
    run->values = s->values + p->first_span;
    for (int i = 0; i < p->spans; i++) {
        const gw_stepper_tensor *t = &s->tensors[spans[i].tensor];
        size_t rows = t->what.rows ? t->what.rows : 1;
        names->tensors[i] = gw_codec_tensor_make(t->what.name, rows, t->what.count / rows);
        names->exact[i] = t->what.exact;
        run->values[i] = t->view.travels;
    }
    gw_exchange_config config = {.setup = s->config.codec, .tensors = names->tensors, .exact = names->exact,
                                 .count = p->spans, .seed = s->config.options.seed,
                                 .halves = gw_schedule_policy(s->schedule)->splits};
    gw_status status = gw_carry_team(&s->config, s->config.first_id + (uint32_t)piece, &run->team, error);
    return status ? status : gw_exchange_open(&run->exchange, s->config.core, run->team, &config, error);
}

/* Those that travel as factors; every kind of carrier leaves them out. */
static void bind_factored(gw_stepper *s) {
    for (int p = 0; p < gw_schedule_pieces(s->schedule); p++) {
        gw_stepper_tensor *t = &s->tensors[gw_schedule_spans(s->schedule, p)[0].tensor];
        s->runs[p].factored = t->factors ? t : NULL;
    }
}

static bool coded(const gw_stepper *s, int piece) {
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    return s->config.codec.codec != &gw_codec_none && s->tensors[spans[0].tensor].what.dtype == GW_F32;
}

gw_status gw_carry_bind(gw_stepper *s, gw_error *error) {
    bind_factored(s);
    if (s->config.servers) return s->ps ? gw_ps_bind(s->ps, error) : gw_ps_open(&s->ps, s, error);
    coded_names names = {calloc((size_t)s->config.count + 1, sizeof *names.tensors),
                         calloc((size_t)s->config.count + 1, sizeof *names.exact)};
    gw_status status = names.tensors && names.exact ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for pieces");
    for (int p = 0; !status && p < gw_schedule_pieces(s->schedule); p++) {
        if (s->runs[p].factored) continue;
        if (coded(s, p)) status = bind_coded(s, p, &names, error);
        else bind_dense(s, p);
    }
    free(names.tensors);
    free(names.exact);
    return status;
}

void gw_carry_unbind(gw_run *runs, int count) {
    for (int p = 0; runs && p < count; p++) {
        if (runs[p].op) gw_op_release(runs[p].op); /* the engine has failed */
        gw_exchange_close(runs[p].exchange);
        gw_team_close(runs[p].team);
        runs[p] = (gw_run){0};
    }
}

void gw_carry_adopt(gw_run *runs, int count, const gw_run *old, int old_count) {
    for (int p = 0; p < count; p++)
        for (int o = 0; runs[p].exchange && o < old_count; o++)
            if (old[o].exchange) gw_exchange_adopt(runs[p].exchange, old[o].exchange);
}

/* On its way. */

static gw_status start_dense(gw_stepper *s, int piece, gw_collective what, gw_time now, gw_error *error) {
    gw_run *run = &s->runs[piece];
    int size = gw_team_size(s->config.team), rank = gw_team_rank(s->config.team);
    gw_op_spec spec = {.collective = what, .in = run->data, .out = run->data, .count = run->count, .dtype = run->dtype,
                       .redop = s->config.options.op, .root = -1, .chunk_bytes = s->config.chunk_bytes,
                       .label = run->label,
                       .urgency = gw_schedule_urgency(s->schedule, piece, what == GW_COLL_ALLGATHER)};
    if (what != GW_COLL_ALLREDUCE) {
        size_t offset = 0, own;
        for (int r = 0; r < size; r++) gw_part(run->count, size, r, &offset, &s->counts[r]);
        gw_part(run->count, size, rank, &offset, &own);
        uint8_t *part = run->data + offset * gw_dtype_bytes(run->dtype);
        spec.counts = s->counts;
        spec.count = 0;
        if (what == GW_COLL_REDUCE_SCATTER) spec.out = part;
        else spec.in = part;
    }
    gw_plan_request request = {.collective = what, .topology = *gw_team_topology(s->config.team), .rank = rank,
                               .count = spec.count, .counts = spec.counts, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    spec.builder = gw_arch_choose(s->config.arch, &request, gw_dtype_bytes(run->dtype));
    return gw_core_start(s->config.core, &run->op, s->config.team, &spec, now, error);
}

static void pack(gw_stepper *s, int piece, bool back) {
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    for (int i = 0; i < gw_schedule_piece(s->schedule, piece)->spans; i++) {
        size_t bytes = spans[i].count * gw_dtype_bytes(s->runs[piece].dtype);
        if (back) memcpy(span_data(s, &spans[i]), flat_data(s, &spans[i]), bytes);
        else memcpy(flat_data(s, &spans[i]), span_data(s, &spans[i]), bytes);
    }
}

/* Differences of weights (sync=periodic, and what goes to servers that cannot run an update) have had their rate. */
float gw_carry_rate_growth(const gw_stepper *s, uint64_t step) {
    const gw_step_options *o = &s->config.options;
    if (!o->rate || step == 0 || s->config.sync->local || (s->ps && gw_ps_moves_weights(s->ps))) return 0;
    double before = o->rate(o->ctx, step - 1), now = o->rate(o->ctx, step);
    return before > 0 && now > 0 ? (float)(now / before - 1) : 0;
}

void gw_carry_start(gw_stepper *s, int piece, bool second, gw_time now, gw_error *error) {
    gw_run *run = &s->runs[piece];
    const gw_piece *p = gw_schedule_piece(s->schedule, piece);
    bool splits = gw_schedule_policy(s->schedule)->splits;
    if (!second) run->label = gw_stepper_trace_start(s, piece);
    if (run->factored) {
        if (!second) gw_factors_start(run->factored->factors, run->label, now, error);
        if (s->ps) gw_schedule_left(s->schedule, piece); /* the others may start in another order */
        return;
    }
    if (s->ps) {
        gw_ps_start(s->ps, piece, gw_stepper_step(s, p->readied - 1), now, error);
        return;
    }
    if (run->exchange) {
        uint64_t step = gw_stepper_step(s, p->readied - 1);
        gw_exchange_urgency(run->exchange, gw_schedule_urgency(s->schedule, piece, second));
        if (second) {
            gw_exchange_go_on(run->exchange);
            return;
        }
        gw_exchange_rate_growth(run->exchange, gw_carry_rate_growth(s, step));
        gw_exchange_begin(run->exchange, step, (const float *const *)run->values, run->values,
                          s->config.options.op == GW_AVG);
        return;
    }
    if (run->copies && !second) pack(s, piece, false);
    start_dense(s, piece, second ? GW_COLL_ALLGATHER : splits ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALLREDUCE, now, error);
}

bool gw_carry_over(gw_stepper *s, int piece, gw_time now, gw_error *error) {
    gw_run *run = &s->runs[piece];
    gw_status status = GW_OK;
    if (run->factored) return gw_factors_over(run->factored->factors, run->factored->view.travels, error);
    if (s->ps) return gw_ps_over(s->ps, piece);
    if (run->exchange) {
        gw_op *awaited = NULL;
        return gw_exchange_next(run->exchange, now, &awaited, &status, error);
    }
    if (!gw_op_done(run->op)) return false;
    status = gw_op_status(run->op);
    gw_op_release(run->op);
    run->op = NULL;
    gw_engine_explain(gw_core_engine(s->config.core), status, error);
    return true;
}

void gw_carry_finish(gw_stepper *s, int piece) {
    if (s->runs[piece].copies) pack(s, piece, true);
}
