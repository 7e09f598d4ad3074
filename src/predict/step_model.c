/* step_model.c - see step_model.h: ranks compute layer by layer, and hand gradients over. */
#include <stdlib.h>

#include "predict/step_model_internal.h"

void gw_step_run_fail(step_run *s, gw_status status) {
    if (!s->status) s->status = status;
}

static bool exchanges(const step_run *s, int step) {
    const gw_sync *sync = s->config->sync;
    return !sync->exchanges || sync->exchanges(s->config->sync_values, GW_STEP_MODEL_FIRST + (uint64_t)step);
}

static bool runs_ahead(const step_run *s, int step) {
    const gw_sync *sync = s->config->sync;
    return sync->runs_ahead && sync->runs_ahead(s->config->sync_values, GW_STEP_MODEL_FIRST + (uint64_t)step);
}

/* Computing. */

static void mark_step(step_run *s, step_worker *w) {
    const gw_step_model_config *c = s->config;
    if (w->step == c->warm) {
        w->began = gw_plan_sim_now(s->sim);
        w->began_path = *gw_plan_sim_path(s->sim);
    }
    if (w->step == c->steps) {
        w->ended = gw_plan_sim_now(s->sim);
        w->ended_path = *gw_plan_sim_path(s->sim);
        s->reached++;
    }
    if (c->progress && w->rank == 0 && w->step <= c->steps) c->progress(c->ctx, w->step, c->steps);
}

static void end_step(step_run *s, step_worker *w) {
    if (exchanges(s, w->step)) {
        w->exchanged++;
        if (gw_step_decides(s, w->rank)) {
            gw_schedule_backward_done(gw_step_schedule_of(s, w->rank));
            gw_step_pump(s, w);
        }
        gw_step_follow(s, w->rank);
    }
    w->owed = 0;
    w->step++;
    w->produced = s->config->tensors->count;
    w->layer = 0;
    w->phase = w->step == s->config->steps && !s->open_ended ? OVER : FORWARD_WAITS;
    mark_step(s, w);
}

static void hand_over(step_run *s, step_worker *w) {
    for (int t = s->first_tensor[w->layer + 1] - 1; t >= s->first_tensor[w->layer]; t--) {
        w->produced = t;
        if (!gw_step_decides(s, w->rank)) continue;
        gw_schedule_ready(gw_step_schedule_of(s, w->rank), t);
        gw_step_pump(s, w);
    }
    if (!gw_step_decides(s, w->rank)) gw_step_follow(s, w->rank);
}

/* `more`: seconds besides those of the profile. */
static void compute(step_run *s, step_worker *w, double us, double more, gw_time_part kind) {
    gw_plan_sim_after(s->sim, &w->timer, us * 1e-6 * s->config->compute + more + w->owed, kind);
    w->owed = 0;
}

/* Between two layers, the next one pays. */
void gw_step_interfere(step_run *s, step_worker *w, double bytes) {
    double seconds = bytes * s->config->interference;
    if (w->timer.event.place)
        gw_plan_sim_delay(s->sim, &w->timer, seconds, w->phase == FORWARD ? GW_TIME_FORWARD : GW_TIME_BACKWARD);
    else if (w->phase == FORWARD || w->phase == BACKWARD) w->owed += seconds;
}

/* The layer's parameters are updated, and then used. */
static void compute_forward(step_run *s, step_worker *w) {
    const gw_profile_layer *layer = &s->config->profile->layers[w->layer];
    compute(s, w, layer->forward_us, (double)layer->parameter_bytes * s->config->update, GW_TIME_FORWARD);
}

/* Advances a worker until it computes or waits. */
void gw_step_go_on(step_run *s, step_worker *w) {
    const gw_profile *profile = s->config->profile;
    for (;;) {
        if (w->phase == FORWARD_WAITS) {
            if (w->step > 0 && !gw_step_layer_settled(s, w) && !runs_ahead(s, w->step - 1)) return;
            w->phase = FORWARD;
            compute_forward(s, w);
            return;
        }
        if (w->phase != BACKWARD_WAITS) return;
        bool travels = exchanges(s, w->step);
        if (travels && !gw_step_layer_settled(s, w)) return;
        w->phase = BACKWARD; /* first, because hand_over may call go_on */
        if (travels) hand_over(s, w);
        if (w->layer-- > 0) {
            compute(s, w, profile->layers[w->layer].backward_us, 0, GW_TIME_BACKWARD);
            return;
        }
        end_step(s, w);
    }
}

static void layer_over(gw_plan_sim_timer *timer, void *ctx) {
    step_run *s = ctx;
    step_worker *w = (step_worker *)timer;
    const gw_profile *profile = s->config->profile;
    if (w->phase == BACKWARD) {
        w->phase = BACKWARD_WAITS;
    } else if (w->layer + 1 < profile->count) {
        w->layer++;
        w->phase = FORWARD_WAITS;
    } else {
        w->phase = BACKWARD;
        compute(s, w, profile->layers[w->layer].backward_us, 0, GW_TIME_BACKWARD);
        return;
    }
    gw_step_go_on(s, w);
}

/* Setting up. */

static gw_status take_memory(step_run *s) {
    const gw_step_model_config *c = s->config;
    size_t ranks = (size_t)s->ranks, buckets = (size_t)s->buckets;
    s->workers = calloc(ranks, sizeof *s->workers);
    s->flights = calloc(ranks * buckets + 1, sizeof *s->flights);
    s->started = calloc(buckets + 1, sizeof *s->started);
    s->first_tensor = calloc((size_t)c->profile->count + 2, sizeof *s->first_tensor);
    if (!s->workers || !s->flights || !s->started || !s->first_tensor)
        return gw_fail(s->error, GW_MEMORY, "out of memory for %d ranks with %d buckets", s->ranks, s->buckets);
    for (int t = 0; t < c->tensors->count; t++) s->first_tensor[c->tensors->layer[t] + 1]++;
    for (int l = 0; l < c->profile->count; l++) s->first_tensor[l + 1] += s->first_tensor[l];
    for (int rank = 0; rank < s->ranks; rank++) {
        s->workers[rank] = (step_worker){.timer = {.act = layer_over}, .rank = rank, .produced = c->tensors->count};
        for (int p = 0; p < s->buckets; p++) *gw_step_flight_of(s, rank, p) = (step_flight){.rank = rank, .bucket = p};
    }
    return GW_OK;
}

static gw_status check_all_over(step_run *s) {
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->workers[rank].step < s->config->steps || (!s->servers && s->workers[rank].cursor != s->entries))
            return gw_fail(s->error, GW_INVALID, "the step of rank %d never ends under this strategy", rank);
    return GW_OK;
}

static void sum_up(const step_run *s, gw_step_model_result *result) {
    const gw_step_model_config *c = s->config;
    int counted = s->servers ? s->ranks : 1;
    double share = 1.0 / counted / (c->steps - c->warm), made = 0;
    for (int rank = 0; rank < s->ranks; rank++) made += s->workers[rank].step;
    *result = (gw_step_model_result){.bytes = gw_plan_sim_bytes(s->sim) / made,
                                     .messages = (double)gw_plan_sim_messages(s->sim) / made,
                                     .simulated = gw_plan_sim_messages(s->sim)};
    for (const step_worker *w = s->workers; w < s->workers + counted; w++) {
        result->step_seconds += (w->ended - w->began) * share;
        for (int i = 0; i < GW_TIME_PARTS; i++)
            result->path.seconds[i] += (w->ended_path.seconds[i] - w->began_path.seconds[i]) * share;
    }
}

/* Teams of hosts and lanes, if a stage has them. */
static int count_teams(const gw_step_model_config *c, int buckets) {
    int most = 1;
    for (int b = 0; b < buckets; b++)
        for (int i = 0; i < c->dispatches[b].count; i++) {
            int teams = gw_team_model_count(c->teams, c->dispatches[b].stages[i].team);
            if (teams > most) most = teams;
        }
    return most;
}

static gw_status open_servers(step_run *s) {
    const gw_step_model_config *c = s->config;
    gw_server_model_config config = {.sim = s->sim, .dispatches = c->dispatches, .buckets = s->buckets,
                                     .ranks = s->ranks, .per_host = c->teams->locals, .ctx = s,
                                     .sent = gw_step_bucket_sent, .answered = gw_step_bucket_answered};
    if (c->sync->rule) config.rule = c->sync->rule(c->sync_values);
    s->open_ended = c->sync->rule != NULL;
    return gw_server_model_open(&s->servers, &config, s->error);
}

/* Advances by one event. False: there is none, or the time is over. */
static bool run_next(step_run *s, uint64_t *events) {
    enum { LOOK_AT_CLOCK = 1024 };
    const gw_time until = s->config->until;
    if (until && ++*events % LOOK_AT_CLOCK == 0 && gw_clock_now() >= until) {
        gw_step_run_fail(s, gw_fail(s->error, GW_TIMEOUT, "the prediction takes longer than it may"));
        return false;
    }
    return gw_plan_sim_run_next(s->sim, s->error);
}

gw_status gw_step_model_run(const gw_step_model_config *config, gw_step_model_result *result, gw_error *error) {
    step_run s = {.config = config, .buckets = gw_schedule_buckets(config->schedules[0]), .error = error,
               .splits = gw_schedule_policy(config->schedules[0])->splits};
    gw_plan_sim_config run = config->run;
    run.done = gw_step_collective_over;
    run.delivered = gw_step_order_arrived;
    run.ctx = &s;
    gw_status status = gw_plan_sim_open(&s.sim, &run, error);
    if (status) return status;
    s.ranks = gw_plan_sim_ranks(s.sim);
    s.teams = count_teams(config, s.buckets);
    gw_step_run_fail(&s, take_memory(&s));
    if (!s.status && config->servers) gw_step_run_fail(&s, open_servers(&s));
    for (int rank = 0; rank < s.ranks && !s.status; rank++) gw_step_go_on(&s, &s.workers[rank]);
    uint64_t events = 0;
    while (!s.status && !(s.open_ended && s.reached == s.ranks) && run_next(&s, &events)) continue;
    if (!s.status && error->status) gw_step_run_fail(&s, error->status);
    if (!s.status) gw_step_run_fail(&s, check_all_over(&s));
    if (!s.status) sum_up(&s, result);
    for (int i = 0; i < s.entries; i++) {
        free(s.order[i].ops);
        free(s.order[i].decision);
    }
    free(s.order);
    free(s.first_tensor);
    free(s.started);
    free(s.flights);
    free(s.workers);
    gw_server_model_close(s.servers);
    gw_plan_sim_close(s.sim);
    return s.status;
}
