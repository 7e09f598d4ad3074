/* factors.c - see factors.h. */
#include "reducer/factors.h"

#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "arch/sfb.h"
#include "reducer/step_engine_internal.h"

#define WHOLE_BYTES 1 /* from a rank that has a matrix in this step, and no factors, which are longer */

struct gw_factors {
    gw_core *core;
    gw_team *team;
    gw_sfb_layer layer; /* its batch: the most that comes */
    gw_redop redop;
    float scale;
    size_t room;            /* bytes of one rank's factors */
    uint8_t *own, *all;     /* left factors of a rank, then the right ones */
    uint64_t *lengths;      /* of each rank's */
    gw_sfb_worker *workers; /* they, in `all` */
    size_t own_bytes;       /* (C) */
    uint32_t label;         /* of this step */
    bool reduces;           /* op is an all-reduce of matrices, no all-gather */
    gw_op *op;
};

static gw_sfb_layer layer_of(const gw_reducer_tensor *t) {
    return (gw_sfb_layer){.rows = t->rows, .cols = t->count / t->rows, .batch = t->batch};
}

bool gw_factors_chosen(const gw_step_engine_config *c, const gw_reducer_tensor *t) {
    bool gradients_travel = c->sync->synchronous;
    int workers = gw_team_size(c->team);
    if (!c->factors || !t->batch || !t->rows || !t->count || t->dtype != GW_F32 || !gradients_travel) return false;
    gw_sfb_layer layer = layer_of(t);
    return gw_sfb_chosen(&layer, workers, c->servers ? c->servers : workers);
}

gw_status gw_factors_open(gw_factors **out, const gw_step_engine_config *c, int tensor, uint32_t team,
                          gw_error *error) {
    size_t world = (size_t)gw_team_size(c->team);
    gw_factors *f = calloc(1, sizeof *f);
    if (!f) return gw_fail(error, GW_MEMORY, "out of memory for factors");
    f->core = c->core;
    f->layer = layer_of(&c->tensors[tensor]);
    f->redop = c->options.op;
    f->scale = f->redop == GW_AVG ? 1.0f / (float)world : 1.0f;
    f->room = f->layer.batch * (f->layer.rows + f->layer.cols) * sizeof(float);
    f->own = malloc(f->room);
    f->all = malloc(f->room * world);
    f->lengths = calloc(world, sizeof *f->lengths);
    f->workers = calloc(world, sizeof *f->workers);
    gw_status status = f->own && f->all && f->lengths && f->workers
                           ? gw_team_open_same(&f->team, c->team, team, error)
                           : gw_fail(error, GW_MEMORY, "out of memory for the factors of %s", c->tensors[tensor].name);
    if (status) gw_factors_close(f);
    else *out = f;
    return status;
}

void gw_factors_close(gw_factors *f) {
    if (!f) return;
    if (f->op) gw_op_release(f->op); /* the engine has failed */
    gw_team_close(f->team);
    free(f->own);
    free(f->all);
    free(f->lengths);
    free(f->workers);
    free(f);
}

void gw_factors_take(gw_factors *f, const float *left, const float *right, size_t batch) {
    size_t bytes = batch * f->layer.rows * sizeof *left;
    f->own_bytes = batch * (f->layer.rows + f->layer.cols) * sizeof *left;
    if (!batch) return;
    memcpy(f->own, left, bytes);
    memcpy(f->own + bytes, right, f->own_bytes - bytes);
}

void gw_factors_take_whole(gw_factors *f) { f->own_bytes = WHOLE_BYTES; }

gw_status gw_factors_start(gw_factors *f, uint32_t label, gw_time now, gw_error *error) {
    for (int r = 0; r < gw_team_size(f->team); r++) f->lengths[r] = 0;
    f->lengths[gw_team_rank(f->team)] = f->own_bytes;
    f->label = label;
    f->reduces = false;
    gw_op_spec spec = {.collective = GW_COLL_ALLGATHER, .in = f->own, .out = f->all, .count = f->room, .dtype = GW_U8,
                       .builder = gw_arch_choose_varying("sfb", f->room), .root = -1,
                       .unit_bytes = 1, .out_lengths = f->lengths, .label = label};
    return gw_core_start(f->core, &f->op, f->team, &spec, now, error);
}

static size_t example_bytes(const gw_factors *f) { return (f->layer.rows + f->layer.cols) * sizeof(float); }

static gw_sfb_worker factors_at(const gw_factors *f, const uint8_t *at, size_t bytes) {
    size_t batch = bytes / example_bytes(f);
    const float *left = (const float *)(const void *)at;
    return (gw_sfb_worker){.left = left, .right = left + batch * f->layer.rows, .batch = batch};
}

static gw_status rebuild(gw_factors *f, float *gradient, gw_error *error) {
    int world = gw_team_size(f->team);
    for (int r = 0; r < world; r++) {
        int rank = gw_team_member(f->team, r);
        if (f->lengths[r] % example_bytes(f) || f->lengths[r] > f->room)
            return gw_fail_rank(error, GW_PROTOCOL, rank,
                                "rank %d sent %llu bytes of factors, which are not whole ones", rank,
                                (unsigned long long)f->lengths[r]);
        f->workers[r] = factors_at(f, f->all + (size_t)r * f->room, f->lengths[r]);
    }
    gw_sfb_sum(gradient, f->layer.rows, f->layer.cols, f->workers, world, f->scale);
    return GW_OK;
}

static bool some_are_whole(const gw_factors *f) {
    for (int r = 0; r < gw_team_size(f->team); r++)
        if (f->lengths[r] == WHOLE_BYTES) return true;
    return false;
}

/* All ranks have seen that some are whole, and make theirs whole too. */
static gw_status reduce(gw_factors *f, float *gradient, gw_time now, gw_error *error) {
    size_t count = f->layer.rows * f->layer.cols;
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = *gw_team_topology(f->team),
                               .rank = gw_team_rank(f->team), .count = count, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .in = gradient, .out = gradient, .count = count,
                       .dtype = GW_F32, .redop = f->redop, .root = -1, .label = f->label,
                       .builder = gw_arch_choose("auto", &request, sizeof *gradient)};
    if (f->own_bytes != WHOLE_BYTES) {
        gw_sfb_worker own = factors_at(f, f->own, f->own_bytes);
        gw_sfb_sum(gradient, f->layer.rows, f->layer.cols, &own, 1, 1);
    }
    f->reduces = true;
    return gw_core_start(f->core, &f->op, f->team, &spec, now, error);
}

bool gw_factors_over(gw_factors *f, float *gradient, gw_time now, gw_error *error) {
    if (!f->op) return true; /* the second half of one that needs none */
    if (!gw_op_done(f->op)) return false;
    gw_status status = gw_op_status(f->op);
    gw_op_release(f->op);
    f->op = NULL;
    gw_engine_explain(gw_core_engine(f->core), status, error);
    if (status || f->reduces) return true;
    if (some_are_whole(f)) return reduce(f, gradient, now, error) != GW_OK;
    rebuild(f, gradient, error);
    return true;
}

size_t gw_factors_sent_bytes(const gw_factors *f) { return f->room * ((size_t)gw_team_size(f->team) - 1); }
size_t gw_factors_memory_bytes(const gw_factors *f) { return f->room * ((size_t)gw_team_size(f->team) + 1); }
