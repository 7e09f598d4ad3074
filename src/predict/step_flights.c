/* step_flights.c - see step_model.h: buckets in flight, stage by stage, and the order in which ranks start them. */
#include <stdlib.h>

#include "arch/announcement_tree.h"
#include "predict/step_model_internal.h"

step_flight *gw_step_flight_of(step_run *s, int rank, int bucket) {
    return &s->flights[(size_t)rank * (size_t)s->buckets + (size_t)bucket];
}

gw_schedule *gw_step_schedule_of(const step_run *s, int rank) { return s->config->schedules[s->servers ? rank : 0]; }

/* Whether a rank's own schedule decides what it starts. */
bool gw_step_decides(const step_run *s, int rank) { return s->servers || rank == 0; }

/* Results that a rank has. */

static int uses_of(step_run *s, int rank, int tensor) {
    int first, count = gw_schedule_buckets_of(gw_step_schedule_of(s, rank), tensor, &first), least = INT32_MAX;
    for (int p = first; p < first + count; p++) {
        int uses = gw_step_flight_of(s, rank, p)->uses;
        if (uses < least) least = uses;
    }
    return least;
}

static bool settled(step_run *s, const step_worker *w, int tensor) {
    return uses_of(s, w->rank, tensor) >= w->exchanged;
}

bool gw_step_layer_settled(step_run *s, const step_worker *w) {
    for (int t = s->first_tensor[w->layer]; t < s->first_tensor[w->layer + 1]; t++)
        if (!settled(s, w, t)) return false;
    return true;
}

/* Buckets in flight. */

static double bytes_of(const step_run *s, const step_flight *f) {
    return (double)gw_schedule_bucket(gw_step_schedule_of(s, f->rank), f->bucket)->bytes;
}

static void begin_stage(step_run *s, step_flight *f);

static void flight_over(step_run *s, step_flight *f) {
    step_worker *w = &s->workers[f->rank];
    bool served = s->config->dispatches[f->bucket].partitions != NULL;
    f->half = !served && s->splits && !s->order[f->entry].second;
    f->uses += !f->half;
    if (gw_step_decides(s, f->rank)) {
        w->in_flight--;
        gw_schedule_done(gw_step_schedule_of(s, f->rank), f->bucket);
        gw_step_pump(s, w);
    }
    gw_step_follow(s, f->rank);
    if (w->phase == FORWARD_WAITS || w->phase == BACKWARD_WAITS) gw_step_go_on(s, w);
}

static void next_stage(step_run *s, step_flight *f) {
    f->stage++;
    begin_stage(s, f);
}

static void start_one(step_run *s, const step_flight *f, gw_team_kind kind, gw_plan_sim_spec spec, int number) {
    int index, member;
    spec.team = gw_team_model_of(s->config->teams, kind, f->rank, &index, &member);
    gw_plan_sim_op **op = &s->order[f->entry].ops[number * s->teams + index];
    spec.tag = f->entry * TAGS + number;
    spec.urgency = gw_schedule_urgency(gw_step_schedule_of(s, f->rank), f->bucket, s->order[f->entry].second);
    if (!*op) gw_step_run_fail(s, gw_plan_sim_prepare(s->sim, &spec, op, s->error));
    if (!s->status) gw_plan_sim_start(s->sim, *op, member);
}

static void start_collectives(step_run *s, step_flight *f) {
    const gw_dispatch_stage *stage = &s->config->dispatches[f->bucket].stages[f->stage];
    f->pending = stage->count;
    for (int k = 0; k < stage->count && !s->status; k++)
        start_one(s, f, stage->team, stage->specs[k], 2 * f->stage + k);
    if (stage->count == 0) next_stage(s, f);
}

static void computed(gw_plan_sim_timer *timer, void *ctx) { start_collectives(ctx, (step_flight *)timer); }

/* Stages that the ranks of a host start in one order. */

static void take_turn(step_run *s, step_flight *f) {
    step_worker *w = &s->workers[f->rank];
    for (int i = f->stage; i < f->stage_end; i++)
        if (s->config->dispatches[f->bucket].stages[i].in_turn) f->turn = w->next_turn++;
}

static void start_in_turn(step_run *s, step_flight *f) {
    step_worker *w = &s->workers[f->rank];
    f->waits = f->turn != w->turn;
    if (f->waits) return;
    w->turn++;
    start_collectives(s, f);
    for (int b = 0; b < s->buckets && !s->status; b++) {
        step_flight *next = gw_step_flight_of(s, f->rank, b);
        if (!next->waits || next->turn != w->turn) continue;
        start_in_turn(s, next);
        return;
    }
}

static void begin_stage(step_run *s, step_flight *f) {
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

void gw_step_collective_over(void *ctx, int rank, int tag) {
    step_run *s = ctx;
    if (tag < 0) {
        gw_step_run_fail(s, gw_server_model_done(s->servers, rank, tag, s->error));
        return;
    }
    step_flight *f = gw_step_flight_of(s, rank, s->order[tag / TAGS].bucket);
    if (--f->pending == 0) next_stage(s, f);
}

static void begin_half(step_run *s, step_flight *f, int at) {
    const step_entry *e = &s->order[at];
    const gw_dispatch *dispatch = &s->config->dispatches[e->bucket];
    f->entry = at;
    f->stage = e->second ? dispatch->halfway : 0;
    f->stage_end = e->second || !s->splits ? dispatch->count : dispatch->halfway;
    gw_step_interfere(s, &s->workers[f->rank], bytes_of(s, f) / (s->splits ? 2 : 1));
    take_turn(s, f);
    begin_stage(s, f);
}

/* The start order. */

static bool startable(step_run *s, const step_worker *w, const step_entry *e) {
    const step_flight *f = gw_step_flight_of(s, w->rank, e->bucket);
    if (f->uses != e->use) return false;
    if (e->second) return f->half;
    int lowest = gw_schedule_ranges(gw_step_schedule_of(s, w->rank), e->bucket)[0].tensor;
    return w->exchanged > e->use || w->produced <= lowest;
}

void gw_step_follow(step_run *s, int rank) {
    step_worker *w = &s->workers[rank];
    while (w->cursor < w->known && !s->status && startable(s, w, &s->order[w->cursor])) {
        int at = w->cursor++;
        begin_half(s, gw_step_flight_of(s, rank, s->order[at].bucket), at);
    }
}

static bool append(step_run *s, int bucket, bool second) {
    if (s->entries == s->entry_room) {
        int room = s->entry_room ? 2 * s->entry_room : 256;
        step_entry *grown = realloc(s->order, (size_t)room * sizeof *grown);
        if (!grown) {
            gw_step_run_fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the order of %d buckets", room));
            return false;
        }
        s->order = grown;
        s->entry_room = room;
    }
    gw_plan_sim_op **ops = calloc((size_t)s->teams * TAGS, sizeof(gw_plan_sim_op *));
    if (!ops) {
        gw_step_run_fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the operations of a bucket"));
        return false;
    }
    s->order[s->entries++] =
        (step_entry){.bucket = bucket, .second = second, .use = s->started[bucket] - second, .ops = ops};
    s->started[bucket] += !second;
    return true;
}

enum { DECISION_BYTES = 64 };

static void pass_order_on(step_run *s, int rank, int entries) {
    gw_announcement_tree tree = gw_announcement_tree_of(&s->config->run.topology, rank);
    for (int i = 0; i < tree.count && !s->status; i++)
        gw_step_run_fail(s,
                         gw_plan_sim_send_message(s->sim, rank, tree.children[i], DECISION_BYTES, entries, s->error));
}

static void follow_all(step_run *s, int ranks, int entries) {
    for (int rank = 0; rank < ranks && !s->status; rank++) {
        s->workers[rank].known = entries;
        gw_step_follow(s, rank);
    }
}

/* Rank 0 knows the order once it is decided, the others by a message. In a folded run, rank 0 represents other ranks
 * too, so all wait for the message. */
static void announce(step_run *s, int entries) {
    if (s->config->run.fabric->folded) {
        gw_step_run_fail(s, gw_plan_sim_send_message(s->sim, 0, s->ranks, DECISION_BYTES, entries, s->error));
        return;
    }
    follow_all(s, 1, entries);
    pass_order_on(s, 0, entries);
}

static void decided(gw_plan_sim_timer *timer, void *ctx) { announce(ctx, ((step_decision *)timer)->entries); }

static void decide(step_run *s) {
    step_entry *last = &s->order[s->entries - 1];
    last->decision = calloc(1, sizeof *last->decision);
    if (!last->decision) {
        gw_step_run_fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the order of buckets"));
        return;
    }
    *last->decision = (step_decision){.timer = {.act = decided}, .entries = s->entries};
    gw_plan_sim_after(s->sim, &last->decision->timer, s->config->decide, GW_TIME_QUEUE);
}

static void send_order(step_run *s) {
    bool by_message = gw_schedule_policy(gw_step_schedule_of(s, 0))->reorders && s->config->run.topology.world > 1;
    if (!by_message) follow_all(s, s->ranks, s->entries);
    else if (s->config->decide > 0) decide(s);
    else announce(s, s->entries);
}

void gw_step_order_arrived(void *ctx, int to, int entries) {
    step_run *s = ctx;
    bool folded = s->config->run.fabric->folded;
    if (!folded) pass_order_on(s, to, entries);
    for (int rank = folded ? 0 : to; rank < (folded ? s->ranks : to + 1); rank++) {
        s->workers[rank].known = entries;
        gw_step_follow(s, rank);
    }
}

/* With servers: ranks have no common order. Those that exchange factors meet in an entry. */
static void start_alone(step_run *s, step_worker *w, int bucket) {
    step_flight *f = gw_step_flight_of(s, w->rank, bucket);
    if (s->config->dispatches[bucket].partitions) {
        gw_step_interfere(s, w, bytes_of(s, f));
        gw_step_run_fail(s, gw_server_model_push(s->servers, w->rank, bucket, (uint64_t)f->uses, s->error));
        return;
    }
    int at = 0;
    while (at < s->entries && (s->order[at].bucket != bucket || s->order[at].use != f->uses)) at++;
    if (at == s->entries && !append(s, bucket, false)) return;
    gw_schedule_sent(gw_step_schedule_of(s, w->rank), bucket);
    begin_half(s, f, at);
}

/* Starts all buckets that the rank's schedule lets start. */
void gw_step_pump(step_run *s, step_worker *w) {
    gw_schedule *schedule = gw_step_schedule_of(s, w->rank);
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

void gw_step_bucket_sent(void *ctx, int rank, int bucket) {
    step_run *s = ctx;
    gw_schedule_sent(gw_step_schedule_of(s, rank), bucket);
    gw_step_pump(s, &s->workers[rank]);
}

void gw_step_bucket_answered(void *ctx, int rank, int bucket) {
    flight_over(ctx, gw_step_flight_of(ctx, rank, bucket));
}
