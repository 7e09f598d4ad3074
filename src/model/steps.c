/* steps.c - see steps.h. */
#include "model/steps.h"

#include <stdlib.h>
#include <string.h>

typedef enum phase { FORWARD_WAITS, FORWARD, BACKWARD, BACKWARD_WAITS, OVER } phase;

/* What computes on a rank. */
typedef struct worker {
    gw_run_timer timer; /* first, so that the timer is the worker */
    int rank;
    phase phase;
    int layer;
    int step;
    int exchanged; /* steps of these whose gradients have all been handed over */
    int produced;  /* the lowest tensor that has been handed over in this step */
    int cursor;    /* of the order: what it has started */
    int known;     /* of the order */
} worker;

/* A piece on its way, on one rank. */
typedef struct flight {
    gw_run_timer timer; /* first */
    int rank, piece, entry;
    int stage, stage_end;
    int pending; /* collectives of the stage, or parcels */
    int here;    /* parcels that have not left */
    int uses;    /* exchanges that are over */
    bool half;   /* the first half of the next one is */
} flight;

/* One start, of all ranks. */
typedef struct entry {
    int piece;
    bool second;
    int use; /* of the piece, from 0 */
    gw_run_op **ops; /* tags of them, NULL until the first rank starts one; owned */
} entry;

typedef struct steps {
    const gw_steps_config *config;
    gw_run *run;
    worker *workers;
    flight *flights; /* [rank * pieces + piece] */
    int ranks, pieces;
    int tags; /* operations of an entry at most: 2 of a stage, or a push and an answer of each parcel */
    int *first_tensor; /* of each layer, and the end */
    entry *order;
    int entries, entry_room;
    int *started; /* of each piece: exchanges begun */
    int under_way; /* starts of rank 0 that are not over */
    double began;
    gw_path began_path;
    double ended;
    gw_path ended_path;
    gw_status status;
    gw_error *error;
} steps;

static flight *flight_of(steps *s, int rank, int piece) {
    return &s->flights[(size_t)rank * (size_t)s->pieces + (size_t)piece];
}

static void fail(steps *s, gw_status status) {
    if (!s->status) s->status = status;
}

/* What a rank has. */

static int uses_of(steps *s, int rank, int tensor) {
    int first, count = gw_schedule_pieces_of(s->config->schedule, tensor, &first), least = INT32_MAX;
    for (int p = first; p < first + count; p++) {
        int uses = flight_of(s, rank, p)->uses;
        if (uses < least) least = uses;
    }
    return least;
}

static bool settled(steps *s, const worker *w, int tensor) { return uses_of(s, w->rank, tensor) >= w->exchanged; }

static bool exchanges(const steps *s, int step) {
    const gw_sync *sync = s->config->sync;
    return !sync->exchanges || sync->exchanges(s->config->sync_values, GW_STEPS_FIRST + (uint64_t)step);
}

static bool runs_ahead(const steps *s, int step) {
    const gw_sync *sync = s->config->sync;
    return sync->runs_ahead && sync->runs_ahead(s->config->sync_values, GW_STEPS_FIRST + (uint64_t)step);
}

static bool layer_settled(steps *s, const worker *w) {
    for (int t = s->first_tensor[w->layer]; t < s->first_tensor[w->layer + 1]; t++)
        if (!settled(s, w, t)) return false;
    return true;
}

/* Pieces on their way. */

static void follow(steps *s, int rank);
static void pump(steps *s);
static void go_on(steps *s, worker *w);
static void begin_stage(steps *s, flight *f);

static void flight_over(steps *s, flight *f) {
    const entry *e = &s->order[f->entry];
    bool splits = gw_schedule_policy(s->config->schedule)->splits;
    if (splits && !e->second) {
        f->half = true;
    } else {
        f->half = false;
        f->uses++;
    }
    if (f->rank == 0) {
        s->under_way--;
        gw_schedule_done(s->config->schedule, f->piece);
        pump(s);
    }
    follow(s, f->rank);
    worker *w = &s->workers[f->rank];
    if (w->phase == FORWARD_WAITS || w->phase == BACKWARD_WAITS) go_on(s, w);
}

static void next_stage(steps *s, flight *f) {
    f->stage++;
    begin_stage(s, f);
}

static void start_one(steps *s, const flight *f, gw_run_spec spec, int number) {
    gw_run_op **op = &s->order[f->entry].ops[number];
    spec.tag = f->entry * s->tags + number;
    spec.urgency = gw_schedule_urgency(s->config->schedule, f->piece, s->order[f->entry].second);
    if (!*op) fail(s, gw_run_prepare(s->run, &spec, op, s->error));
    if (!s->status) gw_run_start(s->run, *op, f->rank);
}

static void start_collectives(steps *s, flight *f) {
    const gw_carry_stage *stage = &s->config->carries[f->piece].stages[f->stage];
    f->pending = stage->count;
    for (int k = 0; k < stage->count && !s->status; k++) start_one(s, f, stage->specs[k], 2 * f->stage + k);
    if (stage->count == 0) next_stage(s, f);
}

static void computed(gw_run_timer *timer, void *ctx) { start_collectives(ctx, (flight *)timer); }

static void begin_stage(steps *s, flight *f) {
    if (f->stage == f->stage_end) {
        flight_over(s, f);
        return;
    }
    double seconds = s->config->carries[f->piece].stages[f->stage].seconds;
    f->timer.act = computed;
    if (seconds > 0) gw_run_busy(s->run, f->rank, &f->timer, seconds, GW_PATH_CODEC);
    else start_collectives(s, f);
}

/* Parcels. */

static void parcel_step(steps *s, const flight *f, int parcel, bool answer) {
    const gw_carry_parcel *p = &s->config->carries[f->piece].parcels[parcel];
    gw_run_spec spec = {.collective = answer ? GW_COLL_BROADCAST : GW_COLL_REDUCE, .builder = &gw_plan_exchange,
                        .count = p->bytes / sizeof(float), .unit_bytes = sizeof(float), .root = p->server,
                        .announced = true};
    start_one(s, f, spec, 2 * parcel + answer);
}

/* Credit is for what waits to leave, and a server's own parcels do not. */
static void all_left(steps *s, const flight *f) {
    if (f->here > 0 || f->rank != 0) return;
    gw_schedule_left(s->config->schedule, f->piece);
    pump(s);
}

static void start_parcels(steps *s, flight *f) {
    const gw_carry *carry = &s->config->carries[f->piece];
    f->pending = carry->parcel_count;
    f->here = 0;
    for (int i = 0; i < carry->parcel_count; i++) f->here += carry->parcels[i].server != f->rank;
    for (int i = 0; i < carry->parcel_count && !s->status; i++) parcel_step(s, f, i, false);
    all_left(s, f);
}

static void parcel_moved(steps *s, flight *f, int number) {
    int parcel = number / 2;
    if (number % 2) {
        if (--f->pending == 0) flight_over(s, f);
        return;
    }
    parcel_step(s, f, parcel, true);
    if (s->config->carries[f->piece].parcels[parcel].server == f->rank) return;
    f->here--;
    all_left(s, f);
}

static void collective_over(void *ctx, int rank, int tag) {
    steps *s = ctx;
    flight *f = flight_of(s, rank, s->order[tag / s->tags].piece);
    if (s->config->carries[f->piece].parcels) parcel_moved(s, f, tag % s->tags);
    else if (--f->pending == 0) next_stage(s, f);
}

/* The order. */

static bool startable(steps *s, const worker *w, const entry *e) {
    const flight *f = flight_of(s, w->rank, e->piece);
    if (f->uses != e->use) return false;
    if (e->second) return f->half;
    int lowest = gw_schedule_spans(s->config->schedule, e->piece)[0].tensor;
    return w->exchanged > e->use || w->produced <= lowest;
}

static void follow(steps *s, int rank) {
    worker *w = &s->workers[rank];
    while (w->cursor < w->known && !s->status && startable(s, w, &s->order[w->cursor])) {
        int at = w->cursor++;
        const entry *e = &s->order[at];
        const gw_carry *carry = &s->config->carries[e->piece];
        flight *f = flight_of(s, rank, e->piece);
        f->entry = at;
        f->stage = e->second ? carry->halfway : 0;
        f->stage_end = e->second || !gw_schedule_policy(s->config->schedule)->splits ? carry->count : carry->halfway;
        if (carry->parcels) start_parcels(s, f);
        else begin_stage(s, f);
    }
}

static bool append(steps *s, int piece, bool second) {
    if (s->entries == s->entry_room) {
        int room = s->entry_room ? 2 * s->entry_room : 256;
        entry *grown = realloc(s->order, (size_t)room * sizeof *grown);
        if (!grown) {
            fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the order of %d pieces", room));
            return false;
        }
        s->order = grown;
        s->entry_room = room;
    }
    gw_run_op **ops = calloc((size_t)s->tags, sizeof(gw_run_op *));
    if (!ops) {
        fail(s, gw_fail(s->error, GW_MEMORY, "out of memory for the operations of a piece"));
        return false;
    }
    s->order[s->entries++] = (entry){.piece = piece, .second = second, .use = s->started[piece] - second, .ops = ops};
    s->started[piece] += !second;
    return true;
}

/* The order reaches rank 0 at once, and the others by a message; folded, all of them stand for others too. */
static void publish(steps *s) {
    enum { DECISION_BYTES = 64 };
    const gw_run_config *run = &s->config->run;
    int world = run->topology.world;
    bool told = gw_schedule_policy(s->config->schedule)->reorders && world > 1 && !s->config->carries[0].parcels;
    if (told && run->fabric->folded) {
        fail(s, gw_run_tell(s->run, 0, s->ranks, DECISION_BYTES, s->entries, s->error));
        return;
    }
    for (int rank = 0; rank < s->ranks && !s->status; rank++) {
        if (told && rank) {
            fail(s, gw_run_tell(s->run, 0, rank, DECISION_BYTES, s->entries, s->error));
        } else {
            s->workers[rank].known = s->entries;
            follow(s, rank);
        }
    }
}

static void order_arrived(void *ctx, int to, int entries) {
    steps *s = ctx;
    bool folded = s->config->run.fabric->folded;
    for (int rank = folded ? 0 : to; rank < (folded ? s->ranks : to + 1); rank++) {
        s->workers[rank].known = entries;
        follow(s, rank);
    }
}

/* Rank 0 decides. */
static void pump(steps *s) {
    gw_schedule *schedule = s->config->schedule;
    int before = s->entries, limit = s->config->at_once, piece;
    while (!s->status && (!limit || s->under_way < limit) && (piece = gw_schedule_next(schedule)) >= 0) {
        if (!append(s, piece, gw_schedule_piece(schedule, piece)->state == GW_PIECE_HALFWAY)) return;
        gw_schedule_start(schedule, piece);
        s->under_way++;
    }
    if (before < s->entries) publish(s);
}

/* Computing. */

static void mark_step(steps *s, const worker *w) {
    const gw_steps_config *c = s->config;
    if (w->step == c->warm) {
        s->began = gw_run_now(s->run);
        s->began_path = *gw_run_path(s->run);
    }
    s->ended = gw_run_now(s->run);
    s->ended_path = *gw_run_path(s->run);
    if (c->progress) c->progress(c->ctx, w->step, c->steps);
}

static void end_step(steps *s, worker *w) {
    if (exchanges(s, w->step)) {
        w->exchanged++;
        if (w->rank == 0) {
            gw_schedule_end(s->config->schedule);
            pump(s);
        }
        follow(s, w->rank);
    }
    w->step++;
    w->produced = s->config->tensors->count;
    w->layer = 0;
    w->phase = w->step == s->config->steps ? OVER : FORWARD_WAITS;
    if (w->rank == 0) mark_step(s, w);
}

static void hand_over(steps *s, worker *w) {
    for (int t = s->first_tensor[w->layer + 1] - 1; t >= s->first_tensor[w->layer]; t--) {
        w->produced = t;
        if (w->rank != 0) continue;
        gw_schedule_ready(s->config->schedule, t);
        pump(s);
    }
    if (w->rank != 0) follow(s, w->rank);
}

static void compute(steps *s, worker *w, double us, gw_path_part kind) {
    gw_run_after(s->run, &w->timer, us * 1e-6 * s->config->compute, kind);
}

/* Goes on until it computes or waits. */
static void go_on(steps *s, worker *w) {
    const gw_profile *profile = s->config->profile;
    for (;;) {
        if (w->phase == FORWARD_WAITS) {
            if (w->step > 0 && !layer_settled(s, w) && !runs_ahead(s, w->step - 1)) return;
            w->phase = FORWARD;
            compute(s, w, profile->layers[w->layer].forward_us, GW_PATH_FORWARD);
            return;
        }
        if (w->phase != BACKWARD_WAITS) return;
        bool travels = exchanges(s, w->step);
        if (travels && !layer_settled(s, w)) return;
        w->phase = BACKWARD; /* before anything that may come back here */
        if (travels) hand_over(s, w);
        if (w->layer-- > 0) {
            compute(s, w, profile->layers[w->layer].backward_us, GW_PATH_BACKWARD);
            return;
        }
        end_step(s, w);
    }
}

static void layer_over(gw_run_timer *timer, void *ctx) {
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
        compute(s, w, profile->layers[w->layer].backward_us, GW_PATH_BACKWARD);
        return;
    }
    go_on(s, w);
}

/* Setting up. */

static gw_status take_memory(steps *s) {
    const gw_steps_config *c = s->config;
    size_t ranks = (size_t)s->ranks, pieces = (size_t)s->pieces;
    s->workers = calloc(ranks, sizeof *s->workers);
    s->flights = calloc(ranks * pieces + 1, sizeof *s->flights);
    s->started = calloc(pieces + 1, sizeof *s->started);
    s->first_tensor = calloc((size_t)c->profile->count + 2, sizeof *s->first_tensor);
    if (!s->workers || !s->flights || !s->started || !s->first_tensor)
        return gw_fail(s->error, GW_MEMORY, "out of memory for %d ranks with %d pieces", s->ranks, s->pieces);
    s->tags = 2 * GW_CARRY_STAGES;
    for (int p = 0; p < s->pieces; p++)
        if (2 * c->carries[p].parcel_count > s->tags) s->tags = 2 * c->carries[p].parcel_count;
    for (int t = 0; t < c->tensors->count; t++) s->first_tensor[c->tensors->layer[t] + 1]++;
    for (int l = 0; l < c->profile->count; l++) s->first_tensor[l + 1] += s->first_tensor[l];
    for (int rank = 0; rank < s->ranks; rank++) {
        s->workers[rank] = (worker){.timer = {.act = layer_over}, .rank = rank, .produced = c->tensors->count};
        for (int p = 0; p < s->pieces; p++) *flight_of(s, rank, p) = (flight){.rank = rank, .piece = p};
    }
    return GW_OK;
}

static gw_status check_all_over(steps *s) {
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->workers[rank].phase != OVER || s->workers[rank].cursor != s->entries)
            return gw_fail(s->error, GW_INVALID, "the step of rank %d never ends under this strategy", rank);
    return GW_OK;
}

static void sum_up(const steps *s, gw_steps_result *result) {
    const gw_steps_config *c = s->config;
    int measured = c->steps - c->warm;
    *result = (gw_steps_result){.step_seconds = (s->ended - s->began) / measured,
                                .bytes = gw_run_bytes(s->run) / s->ranks / c->steps,
                                .messages = (double)gw_run_messages(s->run) / s->ranks / c->steps,
                                .simulated = gw_run_messages(s->run)};
    for (int i = 0; i < GW_PATH_PARTS; i++)
        result->path.seconds[i] = (s->ended_path.seconds[i] - s->began_path.seconds[i]) / measured;
}

gw_status gw_steps_run(const gw_steps_config *config, gw_steps_result *result, gw_error *error) {
    steps s = {.config = config, .pieces = gw_schedule_pieces(config->schedule), .error = error};
    gw_run_config run = config->run;
    run.done = collective_over;
    run.told = order_arrived;
    run.ctx = &s;
    gw_status status = gw_run_open(&s.run, &run, error);
    if (status) return status;
    s.ranks = gw_run_ranks(s.run);
    fail(&s, take_memory(&s));
    for (int rank = 0; rank < s.ranks && !s.status; rank++) go_on(&s, &s.workers[rank]);
    while (!s.status && gw_run_moment(s.run, error)) continue;
    if (!s.status && error->status) fail(&s, error->status);
    if (!s.status) fail(&s, check_all_over(&s));
    if (!s.status) sum_up(&s, result);
    for (int i = 0; i < s.entries; i++) free(s.order[i].ops);
    free(s.order);
    free(s.first_tensor);
    free(s.started);
    free(s.flights);
    free(s.workers);
    gw_run_close(s.run);
    return s.status;
}
