/* step_engine_resume.c - moves a step engine to another team, after a loss. Over servers the interrupted step continues
 * (ps_resume.c). Over collectives the interrupted step ends: each tensor has its whole update or none (`reached`). The
 * ranks compare, and a rank that is behind gets the arrays of one that is ahead. Codec residuals stay with this
 * rank. */
#include <stdlib.h>
#include <string.h>

#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

struct gw_ps *gw_step_engine_servers(gw_step_engine *s) {
    return s->ps;
}

/* Leaving a team. */

gw_status gw_step_engine_keep_codec_state(gw_step_engine *s, gw_error *error) {
    if (s->kept_codec) return GW_OK; /* kept before, and not resumed since */
    s->kept_codec_bytes = gw_step_engine_state_bytes(s);
    s->kept_codec = malloc(s->kept_codec_bytes);
    if (!s->kept_codec) return gw_fail(error, GW_MEMORY, "out of memory for the residuals of codecs");
    gw_step_engine_state_save(s, s->kept_codec);
    return GW_OK;
}

/* The schedule stays until there is another, so that counters can still be read. */
static gw_status part(gw_step_engine *s, gw_error *error) {
    gw_status status = gw_step_engine_keep_codec_state(s, error);
    if (status) return status;
    gw_start_order_close(s->start_order);
    s->start_order = NULL;
    gw_transfers_unbind(s, s->transfers, gw_step_engine_buckets(s));
    gw_transfers_release(s);
    for (int i = 0; i < s->config.count; i++) {
        gw_factors_close(s->tensors[i].factors);
        s->tensors[i].factors = NULL;
    }
    gw_step_engine_settle(s); /* a synchronization that runs ahead has local weights */
    return GW_OK;
}

gw_status gw_step_engine_suspend(gw_step_engine *s, gw_error *error) {
    if (!atomic_load(&s->failed)) gw_fail(&s->error, GW_PEER_LOST, "the reducer is being resumed on other ranks");
    atomic_store(&s->failed, true);
    return s->ps ? gw_ps_suspend(s->ps, error) : part(s, error);
}

/* Joining another. */

static void reset(gw_step_engine *s) {
    gw_step_engine_begin_at(s, gw_step_engine_furthest(s));
    for (int i = 0; i < s->config.count; i++) {
        gw_step_engine_tensor *t = &s->tensors[i];
        t->readied = 0;
        t->left = 0;
        atomic_store(&t->done, 0);
        if (s->config.sync->travels_apart && s->config.flat)
            t->view.travels = (float *)((uint8_t *)s->config.flat + t->offset);
    }
    s->steps = 0;
    s->held_count = 0;
    s->arrived = 0;
    atomic_store(&s->leaving, false);
    atomic_store(&s->ring_head, 0);
    atomic_store(&s->ring_tail, 0);
    atomic_store(&s->under_way, 0);
    atomic_store(&s->owed, 0);
}

gw_status gw_step_engine_rebuild(gw_step_engine *s, gw_error *error) {
    gw_reducer_tensor *tensors = calloc((size_t)s->config.count + 1, sizeof *tensors);
    if (!tensors) return gw_fail(error, GW_MEMORY, "out of memory for %d tensors", s->config.count);
    for (int i = 0; i < s->config.count; i++) tensors[i] = s->tensors[i].what;
    gw_step_engine_teardown(s);
    reset(s);
    s->config.tensors = tensors;
    gw_status status = gw_step_engine_build(s, error);
    s->config.tensors = NULL;
    free(tensors);
    return status;
}

/* The strategy may be another one than before: that of restarted ranks, which choose anew. */
static gw_status rejoin_collectives(gw_step_engine *s, const gw_step_engine_config *config, gw_error *error) {
    bool stays = gw_step_engine_take_config(s, config);
    gw_status status = gw_step_engine_rebuild(s, error);
    return status ? status : gw_step_engine_move_kept(s, stays, error);
}

gw_status gw_step_engine_rejoin(gw_step_engine *s, const gw_step_engine_config *config, gw_error *error) {
    s->generation = gw_control_generation(gw_core_control(config->core));
    s->config.core = config->core;
    s->config.team = config->team;
    if (!s->ps) return rejoin_collectives(s, config, error);
    s->config.first_id = config->first_id;
    s->config.flat = config->flat;
    s->config.settings = config->settings;
    s->config.members = config->members;
    gw_status status = gw_ps_rejoin(s->ps, error);
    s->config.members = NULL;
    return status;
}

void gw_step_engine_resume(gw_step_engine *s) {
    free(s->kept_codec);
    s->kept_codec = NULL;
    s->error = (gw_error){.rank = -1};
    atomic_store(&s->failed, false);
}

/* Making tensors equal. */

void gw_step_engine_begin_at(gw_step_engine *s, uint64_t step) {
    s->config.options.first_step = step;
    s->joined = true;
}

uint64_t gw_step_engine_furthest(const gw_step_engine *s) {
    uint64_t most = 0;
    for (int i = 0; i < s->config.count; i++) {
        uint64_t made = atomic_load(&s->tensors[i].done);
        if (made > most) most = made;
    }
    return gw_step_engine_step(s, most);
}

size_t gw_step_engine_shared(const gw_step_engine *s, int tensor, int which, bool gives, float **array) {
    const gw_sync_tensor *view = &s->tensors[tensor].view;
    const gw_reducer_options *o = &s->config.options;
    int first = view->momentum ? 2 : 1;
    if (!o->update || view->count == 0) return 0;
    if (which == 0) *array = gives && s->config.sync->local && view->anchored ? view->anchor : view->weights;
    else if (which < first) *array = view->momentum;
    else *array = o->state ? o->state(o->ctx, tensor, which - first) : NULL;
    return *array ? view->count : 0;
}

void gw_step_engine_caught_up(gw_step_engine *s, int tensor, uint64_t step) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    atomic_store(&t->reached, step);
    if (s->config.sync->local) t->view.anchored = false; /* its weights are now the shared ones: the next anchor */
}
