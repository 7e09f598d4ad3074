/* step_model.c - see step_model.h. */
#include "predict/step_model.h"

#include <stdlib.h>
#include <string.h>

#include "arch/announcement_tree.h"
#include "predict/server_model.h"

enum { TAGS = 2 * GW_DISPATCH_STAGES }; /* most operations of an entry */

typedef enum phase { FORWARD_WAITS, FORWARD, BACKWARD, BACKWARD_WAITS, OVER } phase;

/* The computing part of a rank. */
typedef struct worker {
    gw_plan_sim_timer timer; /* first member: a pointer to it is one to the worker */
    int rank;
    phase phase;
    int layer;
    int step;
    int exchanged;       /* steps whose gradients were all handed to the schedule */
    int produced;        /* the lowest tensor handed over in this step */
    int cursor;          /* entries of the order that it has started */
    int known;           /* entries of the order that have reached it */
    int in_flight;       /* entries that its own schedule has started and not finished */
    int turn, next_turn; /* of stages that the ranks of a host start in turn: the next to start, the next to give out */
    double began, ended; /* of the measured steps */
    gw_time_breakdown began_path, ended_path;
} worker;

/* A bucket in flight, on one rank. */
typedef struct flight {
    gw_plan_sim_timer timer; /* first */
    int rank, bucket, entry;
    int stage, stage_end;
    int pending; /* unfinished collectives of the stage */
    int uses;    /* finished exchanges */
    bool half;   /* the first half of the next exchange is finished */
    int turn;    /* of its stage that has to wait for its turn */
    bool waits;  /* for that */
} flight;

/* One entry of the start order, for all ranks. */
typedef struct entry {
    int bucket;
    bool second;
    int use;              /* number of this exchange of the bucket, from 0 */
    gw_plan_sim_op **ops; /* [tag * teams + team], each NULL until the first member starts it; owned */
} entry;

typedef struct steps {
    const gw_step_model_config *config;
    gw_plan_sim *sim;
    worker *workers;
    flight *flights; /* [rank * buckets + bucket] */
    int ranks, buckets;
    bool splits;
    gw_server_model *servers; /* NULL: none. With servers every rank has a schedule of its own. */
    bool open_ended;          /* workers are in different steps: all go on until the slowest has made its steps */
    int reached;              /* workers that have made theirs */
    int teams;                /* most teams of a stage */
    int *first_tensor;        /* of each layer, and the end */
    entry *order;
    int entries, entry_room;
    int *started; /* of each bucket: exchanges started */
    gw_status status;
    gw_error *error;
} steps;

static flight *flight_of(steps *s, int rank, int bucket) {
    return &s->flights[(size_t)rank * (size_t)s->buckets + (size_t)bucket];
}

static void fail(steps *s, gw_status status) {
    if (!s->status) s->status = status;
}

static gw_schedule *schedule_of(const steps *s, int rank) { return s->config->schedules[s->servers ? rank : 0]; }

/* Whether a rank's own schedule decides what it starts. */
static bool decides(const steps *s, int rank) { return s->servers || rank == 0; }

/* Results that a rank has. */

static int uses_of(steps *s, int rank, int tensor) {
    int first, count = gw_schedule_buckets_of(schedule_of(s, rank), tensor, &first), least = INT32_MAX;
    for (int p = first; p < first + count; p++) {
        int uses = flight_of(s, rank, p)->uses;
        if (uses < least) least = uses;
    }
    return least;
}

static bool settled(steps *s, const worker *w, int tensor) { return uses_of(s, w->rank, tensor) >= w->exchanged; }

static bool exchanges(const steps *s, int step) {
    const gw_sync *sync = s->config->sync;
    return !sync->exchanges || sync->exchanges(s->config->sync_values, GW_STEP_MODEL_FIRST + (uint64_t)step);
}

static bool runs_ahead(const steps *s, int step) {
    const gw_sync *sync = s->config->sync;
    return sync->runs_ahead && sync->runs_ahead(s->config->sync_values, GW_STEP_MODEL_FIRST + (uint64_t)step);
}

static bool layer_settled(steps *s, const worker *w) {
    for (int t = s->first_tensor[w->layer]; t < s->first_tensor[w->layer + 1]; t++)
        if (!settled(s, w, t)) return false;
    return true;
}

/* Buckets in flight. */

static void follow(steps *s, int rank);
static void pump(steps *s, worker *w);
static void go_on(steps *s, worker *w);
static void begin_stage(steps *s, flight *f);

static void flight_over(steps *s, flight *f) {
    worker *w = &s->workers[f->rank];
    bool served = s->config->dispatches[f->bucket].partitions != NULL;
    f->half = !served && s->splits && !s->order[f->entry].second;
    f->uses += !f->half;
    if (decides(s, f->rank)) {
        w->in_flight--;
        gw_schedule_done(schedule_of(s, f->rank), f->bucket);
        pump(s, w);
    }
    follow(s, f->rank);
    if (w->phase == FORWARD_WAITS || w->phase == BACKWARD_WAITS) go_on(s, w);
}

static void next_stage(steps *s, flight *f) {
    f->stage++;
    begin_stage(s, f);
}

static void start_one(steps *s, const flight *f, gw_team_kind kind, gw_plan_sim_spec spec, int number) {
    int index, member;
    spec.team = gw_team_model_of(s->config->teams, kind, f->rank, &index, &member);
    gw_plan_sim_op **op = &s->order[f->entry].ops[number * s->teams + index];
    spec.tag = f->entry * TAGS + number;
    spec.urgency = gw_schedule_urgency(schedule_of(s, f->rank), f->bucket, s->order[f->entry].second);
    if (!*op) fail(s, gw_plan_sim_prepare(s->sim, &spec, op, s->error));
    if (!s->status) gw_plan_sim_start(s->sim, *op, member);
}

static void start_collectives(steps *s, flight *f) {
    const gw_dispatch_stage *stage = &s->config->dispatches[f->bucket].stages[f->stage];
    f->pending = stage->count;
    for (int k = 0; k < stage->count && !s->status; k++)
        start_one(s, f, stage->team, stage->specs[k], 2 * f->stage + k);
    if (stage->count == 0) next_stage(s, f);
}

static void computed(gw_plan_sim_timer *timer, void *ctx) { start_collectives(ctx, (flight *)timer); }

/* Stages that the ranks of a host start in one order. */

static void take_turn(steps *s, flight *f) {
    worker *w = &s->workers[f->rank];
    for (int i = f->stage; i < f->stage_end; i++)
        if (s->config->dispatches[f->bucket].stages[i].in_turn) f->turn = w->next_turn++;
}

static void start_in_turn(steps *s, flight *f) {
    worker *w = &s->workers[f->rank];
    f->waits = f->turn != w->turn;
    if (f->waits) return;
    w->turn++;
    start_collectives(s, f);
    for (int b = 0; b < s->buckets && !s->status; b++) {
        flight *next = flight_of(s, f->rank, b);
        if (!next->waits || next->turn != w->turn) continue;
        start_in_turn(s, next);
        return;
    }
}

static void begin_stage(steps *s, flight *f) {
    if (f->stage == f->stage_end) {
        flight_over(s, f);
        return;
    }
    const gw_dispatch_stage *stage = &s->config->dispatches[f->bucket].stages[f->stage];
    double seconds = stage->seconds;
    if (stage->in_turn) {
        start_in_turn(s, f);
        return;
    }
    f->timer.act = computed;
    if (seconds > 0) gw_plan_sim_busy(s->sim, f->rank, &f->timer, seconds, GW_TIME_CODEC);
    else start_collectives(s, f);
}

static void collective_over(void *ctx, int rank, int tag) {
    steps *s = ctx;
    if (tag < 0) {
        fail(s, gw_server_model_done(s->servers, rank, tag, s->error));
        return;
    }
    flight *f = flight_of(s, rank, s->order[tag / TAGS].bucket);
    if (--f->pending == 0) next_stage(s, f);
}

static void begin_half(steps *s, flight *f, int at) {
    const entry *e = &s->order[at];
    const gw_dispatch *dispatch = &s->config->dispatches[e->bucket];
    f->entry = at;
    f->stage = e->second ? dispatch->halfway : 0;
    f->stage_end = e->second || !s->splits ? dispatch->count : dispatch->halfway;
    take_turn(s, f);
    begin_stage(s, f);
}

/* The start order. */

static bool startable(steps *s, const worker *w, const entry *e) {
    const flight *f = flight_of(s, w->rank, e->bucket);
    if (f->uses != e->use) return false;
    if (e->second) return f->half;
    int lowest = gw_schedule_ranges(schedule_of(s, w->rank), e->bucket)[0].tensor;
    return w->exchanged > e->use || w->produced <= lowest;
}

static void follow(steps *s, int rank) {
    worker *w = &s->workers[rank];
    while (w->cursor < w->known && !s->status && startable(s, w, &s->order[w->cursor])) {
        int at = w->cursor++;
        begin_half(s, flight_of(s, rank, s->order[at].bucket), at);
    }
}

static bool append(steps *s, int bucket, bool second) {
    if (s->entries == s->entry_room) {
        int room = s->entry_room ? 2 * s->entry_room : 256;
        entry *grown = realloc(s->order, (size_t)room * sizeof *grown);
        if (!grown) {
            fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the order of %d buckets", room));
            return false;
        }
        s->order = grown;
        s->entry_room = room;
    }
    gw_plan_sim_op **ops = calloc((size_t)s->teams * TAGS, sizeof(gw_plan_sim_op *));
    if (!ops) {
        fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the operations of a bucket"));
        return false;
    }
    s->order[s->entries++] =
        (entry){.bucket = bucket, .second = second, .use = s->started[bucket] - second, .ops = ops};
    s->started[bucket] += !second;
    return true;
}

enum { DECISION_BYTES = 64 };

static void pass_order_on(steps *s, int rank, int entries) {
    gw_announcement_tree tree = gw_announcement_tree_of(&s->config->run.topology, rank);
    for (int i = 0; i < tree.count && !s->status; i++)
        fail(s, gw_plan_sim_send_message(s->sim, rank, tree.children[i], DECISION_BYTES, entries, s->error));
}

/* Rank 0 knows the order at once, the others by a message. In a folded run, rank 0 represents other ranks too, so all
 * wait for the message. */
static void send_order(steps *s) {
    const gw_plan_sim_config *run = &s->config->run;
    int world = run->topology.world;
    bool by_message = gw_schedule_policy(schedule_of(s, 0))->reorders && world > 1;
    if (by_message && run->fabric->folded) {
        fail(s, gw_plan_sim_send_message(s->sim, 0, s->ranks, DECISION_BYTES, s->entries, s->error));
        return;
    }
    for (int rank = 0; rank < (by_message ? 1 : s->ranks) && !s->status; rank++) {
        s->workers[rank].known = s->entries;
        follow(s, rank);
    }
    if (by_message) pass_order_on(s, 0, s->entries);
}

static void order_arrived(void *ctx, int to, int entries) {
    steps *s = ctx;
    bool folded = s->config->run.fabric->folded;
    if (!folded) pass_order_on(s, to, entries);
    for (int rank = folded ? 0 : to; rank < (folded ? s->ranks : to + 1); rank++) {
        s->workers[rank].known = entries;
        follow(s, rank);
    }
}

/* With servers: ranks have no common order. Those that exchange factors meet in an entry. */
static void start_alone(steps *s, worker *w, int bucket) {
    flight *f = flight_of(s, w->rank, bucket);
    if (s->config->dispatches[bucket].partitions) {
        fail(s, gw_server_model_push(s->servers, w->rank, bucket, (uint64_t)f->uses, s->error));
        return;
    }
    int at = 0;
    while (at < s->entries && (s->order[at].bucket != bucket || s->order[at].use != f->uses)) at++;
    if (at == s->entries && !append(s, bucket, false)) return;
    gw_schedule_sent(schedule_of(s, w->rank), bucket);
    begin_half(s, f, at);
}

/* Starts all buckets that the rank's schedule lets start. */
static void pump(steps *s, worker *w) {
    gw_schedule *schedule = schedule_of(s, w->rank);
    int before = s->entries, limit = s->config->at_once, bucket;
    while (!s->status && (!limit || w->in_flight < limit) && (bucket = gw_schedule_next(schedule)) >= 0) {
        bool second = gw_schedule_bucket(schedule, bucket)->state == GW_BUCKET_HALFWAY;
        gw_schedule_start(schedule, bucket);
        w->in_flight++;
        if (s->servers) start_alone(s, w, bucket);
        else if (!append(s, bucket, second)) return;
    }
    if (!s->servers && before < s->entries) send_order(s);
}

static void bucket_sent(void *ctx, int rank, int bucket) {
    steps *s = ctx;
    gw_schedule_sent(schedule_of(s, rank), bucket);
    pump(s, &s->workers[rank]);
}

static void bucket_answered(void *ctx, int rank, int bucket) { flight_over(ctx, flight_of(ctx, rank, bucket)); }

/* Computing. */

static void mark_step(steps *s, worker *w) {
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

static void end_step(steps *s, worker *w) {
    if (exchanges(s, w->step)) {
        w->exchanged++;
        if (decides(s, w->rank)) {
            gw_schedule_backward_done(schedule_of(s, w->rank));
            pump(s, w);
        }
        follow(s, w->rank);
    }
    w->step++;
    w->produced = s->config->tensors->count;
    w->layer = 0;
    w->phase = w->step == s->config->steps && !s->open_ended ? OVER : FORWARD_WAITS;
    mark_step(s, w);
}

static void hand_over(steps *s, worker *w) {
    for (int t = s->first_tensor[w->layer + 1] - 1; t >= s->first_tensor[w->layer]; t--) {
        w->produced = t;
        if (!decides(s, w->rank)) continue;
        gw_schedule_ready(schedule_of(s, w->rank), t);
        pump(s, w);
    }
    if (!decides(s, w->rank)) follow(s, w->rank);
}

static void compute(steps *s, worker *w, double us, gw_time_part kind) {
    gw_plan_sim_after(s->sim, &w->timer, us * 1e-6 * s->config->compute, kind);
}

/* Advances a worker until it computes or waits. */
static void go_on(steps *s, worker *w) {
    const gw_profile *profile = s->config->profile;
    for (;;) {
        if (w->phase == FORWARD_WAITS) {
            if (w->step > 0 && !layer_settled(s, w) && !runs_ahead(s, w->step - 1)) return;
            w->phase = FORWARD;
            compute(s, w, profile->layers[w->layer].forward_us, GW_TIME_FORWARD);
            return;
        }
        if (w->phase != BACKWARD_WAITS) return;
        bool travels = exchanges(s, w->step);
        if (travels && !layer_settled(s, w)) return;
        w->phase = BACKWARD; /* first, because hand_over may call go_on */
        if (travels) hand_over(s, w);
        if (w->layer-- > 0) {
            compute(s, w, profile->layers[w->layer].backward_us, GW_TIME_BACKWARD);
            return;
        }
        end_step(s, w);
    }
}

static void layer_over(gw_plan_sim_timer *timer, void *ctx) {
    steps *s = ctx;
    worker *w = (worker *)timer;
    const gw_profile *profile = s->config->profile;
    if (w->phase == BACKWARD) {
        w->phase = BACKWARD_WAITS;
    } else if (w->layer + 1 < profile->count) {
        w->layer++;
        w->phase = FORWARD_WAITS;
    } else {
        w->phase = BACKWARD;
        compute(s, w, profile->layers[w->layer].backward_us, GW_TIME_BACKWARD);
        return;
    }
    go_on(s, w);
}

/* Setting up. */

static gw_status take_memory(steps *s) {
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
        s->workers[rank] = (worker){.timer = {.act = layer_over}, .rank = rank, .produced = c->tensors->count};
        for (int p = 0; p < s->buckets; p++) *flight_of(s, rank, p) = (flight){.rank = rank, .bucket = p};
    }
    return GW_OK;
}

static gw_status check_all_over(steps *s) {
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->workers[rank].step < s->config->steps || (!s->servers && s->workers[rank].cursor != s->entries))
            return gw_fail(s->error, GW_INVALID, "the step of rank %d never ends under this strategy", rank);
    return GW_OK;
}

static void sum_up(const steps *s, gw_step_model_result *result) {
    const gw_step_model_config *c = s->config;
    int counted = s->servers ? s->ranks : 1;
    double share = 1.0 / counted / (c->steps - c->warm), made = 0;
    for (int rank = 0; rank < s->ranks; rank++) made += s->workers[rank].step;
    *result = (gw_step_model_result){.bytes = gw_plan_sim_bytes(s->sim) / made,
                                     .messages = (double)gw_plan_sim_messages(s->sim) / made,
                                     .simulated = gw_plan_sim_messages(s->sim)};
    for (const worker *w = s->workers; w < s->workers + counted; w++) {
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

static gw_status open_servers(steps *s) {
    const gw_step_model_config *c = s->config;
    gw_server_model_config config = {.sim = s->sim, .dispatches = c->dispatches, .buckets = s->buckets,
                                     .ranks = s->ranks, .per_host = c->teams->locals, .ctx = s, .sent = bucket_sent,
                                     .answered = bucket_answered};
    if (c->sync->rule) config.rule = c->sync->rule(c->sync_values);
    s->open_ended = c->sync->rule != NULL;
    return gw_server_model_open(&s->servers, &config, s->error);
}

gw_status gw_step_model_run(const gw_step_model_config *config, gw_step_model_result *result, gw_error *error) {
    steps s = {.config = config, .buckets = gw_schedule_buckets(config->schedules[0]), .error = error,
               .splits = gw_schedule_policy(config->schedules[0])->splits};
    gw_plan_sim_config run = config->run;
    run.done = collective_over;
    run.delivered = order_arrived;
    run.ctx = &s;
    gw_status status = gw_plan_sim_open(&s.sim, &run, error);
    if (status) return status;
    s.ranks = gw_plan_sim_ranks(s.sim);
    s.teams = count_teams(config, s.buckets);
    fail(&s, take_memory(&s));
    if (!s.status && config->servers) fail(&s, open_servers(&s));
    for (int rank = 0; rank < s.ranks && !s.status; rank++) go_on(&s, &s.workers[rank]);
    while (!s.status && !(s.open_ended && s.reached == s.ranks) && gw_plan_sim_run_next(s.sim, error)) continue;
    if (!s.status && error->status) fail(&s, error->status);
    if (!s.status) fail(&s, check_all_over(&s));
    if (!s.status) sum_up(&s, result);
    for (int i = 0; i < s.entries; i++) free(s.order[i].ops);
    free(s.order);
    free(s.first_tensor);
    free(s.started);
    free(s.flights);
    free(s.workers);
    gw_server_model_close(s.servers);
    gw_plan_sim_close(s.sim);
    return s.status;
}
