/* stepper_move.c - a stepper among other ranks, after a loss. Over servers the steps under way go on
 * (stepper_ps_move.c). Over collectives the interrupted step is over: every tensor stands wholly before it or after it
 * (`reached`), members compare where, and whoever is behind is given what the others have. What codecs held back stays
 * with this rank. */
#include <stdlib.h>
#include <string.h>

#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"

struct gw_ps *gw_stepper_servers(gw_stepper *s) { return s->ps; }

/* Parting. */

static gw_status keep_codec_state(gw_stepper *s, gw_error *error) {
    if (s->kept_codec) return GW_OK; /* it has parted before, and has not gone on since */
    s->kept_codec_bytes = gw_stepper_state_bytes(s);
    s->kept_codec = malloc(s->kept_codec_bytes);
    if (!s->kept_codec) return gw_fail(error, GW_MEMORY, "out of memory for what codecs hold back");
    gw_stepper_state_save(s, s->kept_codec);
    return GW_OK;
}

/* The schedule stays until there is another, so that counters can still be asked for. */
static gw_status part(gw_stepper *s, gw_error *error) {
    gw_status status = keep_codec_state(s, error);
    if (status) return status;
    gw_publisher_close(s->publisher);
    s->publisher = NULL;
    gw_carry_unbind(s->runs, gw_stepper_pieces(s));
    for (int i = 0; i < s->config.count; i++) {
        gw_factors_close(s->tensors[i].factors);
        s->tensors[i].factors = NULL;
    }
    gw_stepper_settle(s); /* a synchrony that runs ahead stands on weights of its own */
    return GW_OK;
}

gw_status gw_stepper_part(gw_stepper *s, gw_error *error) {
    if (!atomic_load(&s->failed)) gw_fail(&s->error, GW_PEER_LOST, "the step is on its way to other ranks");
    atomic_store(&s->failed, true);
    return s->ps ? gw_ps_part(s->ps, error) : part(s, error);
}

/* Rejoining. */

static void begin_anew(gw_stepper *s) {
    gw_stepper_begin_at(s, gw_stepper_furthest(s));
    for (int i = 0; i < s->config.count; i++) {
        gw_stepper_tensor *t = &s->tensors[i];
        t->readied = 0;
        t->left = 0;
        atomic_store(&t->done, 0);
        if (s->config.sync->travels_apart) t->view.travels = (float *)((uint8_t *)s->config.flat + t->offset);
    }
    s->steps = 0;
    s->arrived = 0;
    s->scale = 1;
    atomic_store(&s->leaving, false);
    atomic_store(&s->ring_head, 0);
    atomic_store(&s->ring_tail, 0);
    atomic_store(&s->under_way, 0);
    atomic_store(&s->owed, 0);
}

static gw_status rebuild(gw_stepper *s, gw_error *error) {
    gw_step_tensor *tensors = calloc((size_t)s->config.count + 1, sizeof *tensors);
    if (!tensors) return gw_fail(error, GW_MEMORY, "out of memory for %d tensors", s->config.count);
    for (int i = 0; i < s->config.count; i++) tensors[i] = s->tensors[i].what;
    gw_stepper_raze(s);
    begin_anew(s);
    s->config.tensors = tensors;
    gw_status status = gw_stepper_build(s, error);
    s->config.tensors = NULL;
    free(tensors);
    if (!status) status = gw_stepper_state_carry_over(s, s->kept_codec, s->kept_codec_bytes, error);
    return status;
}

gw_status gw_stepper_rejoin(gw_stepper *s, const gw_stepper_config *config, gw_error *error) {
    s->generation = gw_control_generation(gw_core_control(config->core));
    s->config.core = config->core;
    s->config.team = config->team;
    s->config.first_id = config->first_id;
    s->config.flat = config->flat;
    s->config.settings = config->settings;
    if (!s->ps) return rebuild(s, error);
    s->config.attendants = config->attendants;
    gw_status status = gw_ps_rejoin(s->ps, error);
    s->config.attendants = NULL;
    return status;
}

void gw_stepper_resume(gw_stepper *s) {
    free(s->kept_codec);
    s->kept_codec = NULL;
    s->error = (gw_error){.rank = -1};
    atomic_store(&s->failed, false);
}

/* Comparing. */

void gw_stepper_begin_at(gw_stepper *s, uint64_t step) {
    s->config.options.first_step = step;
    s->joined = true;
}

uint64_t gw_stepper_furthest(const gw_stepper *s) {
    uint64_t most = 0;
    for (int i = 0; i < s->config.count; i++) {
        uint64_t made = atomic_load(&s->tensors[i].done);
        if (made > most) most = made;
    }
    return gw_stepper_step(s, most);
}

size_t gw_stepper_shared(const gw_stepper *s, int tensor, int which, bool gives, float **array) {
    const gw_sync_tensor *view = &s->tensors[tensor].view;
    const gw_step_options *o = &s->config.options;
    int first = view->momentum ? 2 : 1;
    if (!o->update || view->count == 0) return 0;
    if (which == 0) *array = gives && s->config.sync->local && view->anchored ? view->anchor : view->weights;
    else if (which < first) *array = view->momentum;
    else *array = o->state ? o->state(o->ctx, tensor, which - first) : NULL;
    return *array ? view->count : 0;
}

void gw_stepper_caught_up(gw_stepper *s, int tensor, uint64_t step) {
    gw_stepper_tensor *t = &s->tensors[tensor];
    atomic_store(&t->reached, step);
    if (s->config.sync->local) t->view.anchored = false; /* its weights are what all share: the next anchor */
}
