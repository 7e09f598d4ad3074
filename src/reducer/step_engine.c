/* step_engine.c - the caller's side of a step, and the driver's loop. See step_engine.h. */
#include <string.h>

#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

/* The caller's side. */

static bool exchanges(const gw_step_engine *s, uint64_t step) {
    return !s->config.sync->exchanges || s->config.sync->exchanges(s->config.sync_values, step);
}

static bool runs_ahead(const gw_step_engine *s, uint64_t step) {
    return s->config.sync->runs_ahead && s->config.sync->runs_ahead(s->config.sync_values, step);
}

static uint64_t outstanding(const gw_step_engine_tensor *t) {
    return t->readied - atomic_load_explicit(&t->done, memory_order_acquire);
}

bool gw_step_engine_begun(const gw_step_engine *s, int tensor) { return s->tensors[tensor].readied > s->steps; }

bool gw_step_engine_settled(const gw_step_engine *s, int tensor) { return outstanding(&s->tensors[tensor]) == 0; }

uint64_t gw_step_engine_reached(const gw_step_engine *s, int tensor) {
    return atomic_load(&s->tensors[tensor].reached);
}

bool gw_step_engine_usable(const gw_step_engine *s, int tensor) {
    const gw_step_engine_tensor *t = &s->tensors[tensor];
    if (outstanding(t) == 0) return true;
    return runs_ahead(s, gw_step_engine_step(s, t->readied - 1));
}

static void hand_over(gw_step_engine *s, int entry) {
    uint32_t head = atomic_load_explicit(&s->ring_head, memory_order_relaxed);
    s->ring[head & s->ring_mask] = entry;
    atomic_store(&s->ring_head, head + 1);
}

void gw_step_engine_await_all(gw_step_engine *s) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++)
        s->awaited[p] = gw_schedule_bucket(s->schedule, p)->ranges;
}

/* How many buckets this tensor completes; a tensor without elements is in none, and counts as one. */
static int completes(gw_step_engine *s, int tensor) {
    int first, count = gw_schedule_buckets_of(s->schedule, tensor, &first), complete = count == 0;
    for (int p = first; p < first + count; p++) {
        if (--s->awaited[p] > 0) continue;
        s->awaited[p] = gw_schedule_bucket(s->schedule, p)->ranges;
        complete++;
    }
    return complete;
}

static gw_status check_ready(const gw_step_engine *s, int tensor, gw_error *error) {
    const gw_step_engine_tensor *t = &s->tensors[tensor];
    bool under_way = s->accumulates ? !gw_step_engine_usable(s, tensor) : outstanding(t) > 0;
    if (t->readied != s->steps)
        return gw_fail(error, GW_INVALID, "%s has been ready or absent in this step already", t->what.name);
    if (under_way)
        return gw_fail(error, GW_INVALID,
                       "%s is still under way from the step before: call gw_reducer_wait before its gradient is "
                       "computed again",
                       t->what.name);
    return GW_OK;
}

/* Takes mark_ready back. */
static gw_status unmark(gw_step_engine *s, const int *tensors, int count, gw_status why) {
    for (int i = 0; i < count; i++) s->tensors[tensors[i]].readied--;
    return why;
}

/* Counts tensors as ready; none of them if one cannot be. In a micro-step it only checks. */
static gw_status mark_ready(gw_step_engine *s, const int *tensors, int count, gw_error *error) {
    gw_status status = GW_OK;
    int marked = 0;
    for (; marked < count && !(status = check_ready(s, tensors[marked], error)); marked++)
        s->tensors[tensors[marked]].readied++;
    return status || s->accumulates ? unmark(s, tensors, marked, status) : GW_OK;
}

static gw_status check_finite(gw_step_engine *s, const int *tensors, int count, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < count && !status; i++) {
        const gw_reducer_tensor *what = &s->tensors[tensors[i]].what;
        status = gw_step_engine_check_finite(s, tensors[i], what->gradient, what->count, error);
    }
    return status ? unmark(s, tensors, count, status) : GW_OK;
}

/* True if a bucket now has all of its gradients. */
static bool leave(gw_step_engine *s, int tensor, double scale) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    uint64_t step = gw_step_engine_step(s, t->readied - 1);
    t->applying = step;
    t->view.scale = scale;
    if (s->config.sync->leave) s->config.sync->leave(s->config.sync_values, step, &t->view);
    if (!exchanges(s, step)) {
        atomic_fetch_add_explicit(&t->done, 1, memory_order_release);
        return false;
    }
    int owed = completes(s, tensor);
    atomic_fetch_add_explicit(&s->under_way, 1, memory_order_relaxed);
    if (owed) atomic_fetch_add(&s->owed, owed); /* before hand_over: the driver must not count down first */
    hand_over(s, tensor);
    return owed > 0;
}

/* The norm is over all tensors, so none of them leaves before the last is ready: then all do, in the order of the
 * calls. True as above. */
static bool leave_clipped(gw_step_engine *s, int tensor) {
    bool complete = false;
    s->held[s->held_count++] = tensor;
    if (s->held_count < s->config.count) return false;
    double scale = gw_step_engine_clip_scale(s, GW_NORM_OWN);
    for (int i = 0; i < s->held_count; i++) complete |= leave(s, s->held[i], scale);
    s->held_count = 0;
    return complete;
}

static bool begin(gw_step_engine *s, int tensor) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    uint64_t step = gw_step_engine_step(s, t->readied - 1);
    gw_step_engine_trace_ready(s, t, step);
    return gw_step_engine_clips(s, step, GW_NORM_OWN) ? leave_clipped(s, tensor) : leave(s, tensor, 1);
}

gw_status gw_step_engine_ready(gw_step_engine *s, const int *tensors, int count, bool *complete, gw_error *error) {
    *complete = false;
    gw_status status = mark_ready(s, tensors, count, error);
    if (!status && !s->accumulates) status = check_finite(s, tensors, count, error);
    for (int i = 0; i < count && !status && !s->accumulates; i++) {
        gw_factors *factors = s->tensors[tensors[i]].factors;
        if (factors) gw_factors_take_whole(factors);
        gw_step_engine_add_carried(s, tensors[i]);
        *complete |= begin(s, tensors[i]);
    }
    return status;
}

bool gw_step_engine_wants_factors(const gw_step_engine *s, int tensor) { return s->tensors[tensor].factors != NULL; }

gw_status gw_step_engine_ready_factors(gw_step_engine *s, int tensor, const float *left, const float *right,
                                       size_t batch, bool *complete, gw_error *error) {
    const gw_step_engine_tensor *t = &s->tensors[tensor];
    *complete = false;
    if (!t->factors)
        return gw_fail(error, GW_INVALID, "%s is not sent as factors: call gw_reducer_ready", t->what.name);
    if (batch > t->what.batch || (batch && (!left || !right)))
        return gw_fail(error, GW_INVALID, "%s has factors of %zu examples, and at most %zu may come, none of them NULL",
                       t->what.name, batch, t->what.batch);
    gw_status status = mark_ready(s, &tensor, 1, error);
    if (status || s->accumulates) return status;
    status = gw_step_engine_check_finite(s, tensor, left, batch * t->what.rows, error);
    if (!status) status = gw_step_engine_check_finite(s, tensor, right, batch * (t->what.count / t->what.rows), error);
    if (status) return unmark(s, &tensor, 1, status);
    gw_factors_take(t->factors, left, right, batch);
    *complete = begin(s, tensor);
    return GW_OK;
}

gw_status gw_step_engine_absent(gw_step_engine *s, int tensor, bool *complete, gw_error *error) {
    const gw_step_engine_tensor *t = &s->tensors[tensor];
    *complete = false;
    gw_status status = mark_ready(s, &tensor, 1, error);
    if (status || s->accumulates) return status;
    if (t->factors) gw_factors_take(t->factors, NULL, NULL, 0);
    else if (t->what.count) memset(t->what.gradient, 0, t->what.count * gw_dtype_bytes(t->what.dtype));
    gw_step_engine_add_carried(s, tensor);
    *complete = begin(s, tensor);
    return GW_OK;
}

void gw_step_engine_accumulate(gw_step_engine *s, bool on) { s->accumulates = on; }
bool gw_step_engine_accumulates(const gw_step_engine *s) { return s->accumulates; }

void gw_step_engine_move_tensor(gw_step_engine *s, int tensor, void *gradient) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    t->what.gradient = t->view.gradient = t->view.travels = gradient;
    gw_transfers_move(s);
}

gw_status gw_step_engine_end(gw_step_engine *s, gw_error *error) {
    for (int i = 0; i < s->config.count; i++)
        if (s->tensors[i].readied == s->steps)
            return gw_fail(error, GW_INVALID,
                           "tensor %d, %s, was neither ready nor absent in this step: call gw_reducer_ready, or "
                           "gw_reducer_absent where this rank has no gradient for it",
                           i, s->tensors[i].what.name);
    if (exchanges(s, gw_step_engine_step(s, s->steps))) hand_over(s, GW_STEP_OVER);
    s->steps++;
    return GW_OK;
}

void gw_step_engine_settle(gw_step_engine *s) {
    for (int i = 0; s->config.sync->settle && i < s->config.count; i++) s->config.sync->settle(&s->tensors[i].view);
}

bool gw_step_engine_busy(const gw_step_engine *s) {
    if (s->ps && !gw_ps_quiet(s->ps)) return !atomic_load(&s->failed); /* other ranks may push at any time */
    return !atomic_load(&s->failed) && atomic_load(&s->owed) > 0;
}

bool gw_step_engine_in_flight(const gw_step_engine *s) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++)
        if (s->transfers[p].active) return true;
    return false;
}

bool gw_step_engine_agrees(const gw_step_engine *s) {
    if (s->steps == 0 && !s->joined) return true;
    if (s->config.sync->rule) return false; /* each worker got its weights at a different time */
    if (!s->config.sync->local) return true;
    return s->steps > 0 && exchanges(s, gw_step_engine_step(s, s->steps - 1));
}

bool gw_step_engine_quiet(const gw_step_engine *s) {
    if (gw_step_engine_busy(s) || (s->start_order && !gw_start_order_quiet(s->start_order))) return false;
    return atomic_load(&s->failed) || atomic_load(&s->under_way) == 0;
}

void gw_step_engine_leave(gw_step_engine *s) { atomic_store(&s->leaving, true); }

gw_clock_table_times gw_step_engine_times(const gw_step_engine *s, int worker, gw_time now) {
    return s->ps ? gw_ps_times(s->ps, worker, now) : (gw_clock_table_times){0};
}

const gw_error *gw_step_engine_error(const gw_step_engine *s) {
    static const gw_error none = {.rank = -1};
    return atomic_load(&s->failed) ? &s->error : &none;
}

/* The driver's side. */

static void fail(gw_step_engine *s, const gw_error *error) {
    if (atomic_load(&s->failed)) return;
    s->error = *error;
    atomic_store(&s->failed, true);
}

static void tensor_over(gw_step_engine *s, gw_step_engine_tensor *t) {
    atomic_store_explicit(&t->reached, t->applying + 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->done, 1, memory_order_release);
    atomic_fetch_sub(&s->under_way, 1);
}

static uint64_t arriving(const gw_step_engine *s, const gw_step_engine_tensor *t) {
    return gw_step_engine_step(s, atomic_load_explicit(&t->done, memory_order_relaxed));
}

static void arrive(gw_step_engine *s, gw_step_engine_tensor *t, double scale) {
    t->applying = arriving(s, t);
    t->view.scale = scale;
    gw_time begun = gw_step_engine_trace_arrived(s, t);
    s->config.sync->arrive(s->config.sync_values, t->applying, &t->view);
    gw_step_engine_trace_applied(s, t, begun);
    tensor_over(s, t);
}

/* The norm is over all tensors, so nothing is applied before the last has arrived. */
static void arrive_clipped(gw_step_engine *s) {
    if (++s->arrived < s->config.count) return;
    double scale = gw_step_engine_clip_scale(s, GW_NORM_MEAN);
    s->arrived = 0;
    for (int i = 0; i < s->config.count; i++) arrive(s, &s->tensors[i], scale);
}

static void tensor_arrived(gw_step_engine *s, gw_step_engine_tensor *t) {
    if (gw_step_engine_clips(s, arriving(s, t), GW_NORM_MEAN)) arrive_clipped(s);
    else arrive(s, t, 1);
}

bool gw_step_engine_take_ready(gw_step_engine *s) {
    uint32_t tail = atomic_load_explicit(&s->ring_tail, memory_order_relaxed), head = atomic_load(&s->ring_head);
    for (uint32_t i = tail; i != head; i++) {
        int tensor = s->ring[i & s->ring_mask], first;
        if (tensor == GW_STEP_OVER) {
            gw_schedule_backward_done(s->schedule);
            continue;
        }
        s->tensors[tensor].left = gw_schedule_buckets_of(s->schedule, tensor, &first);
        if (s->tensors[tensor].left) {
            gw_schedule_ready(s->schedule, tensor);
            continue;
        }
        tensor_arrived(s, &s->tensors[tensor]);
        atomic_fetch_sub(&s->owed, 1);
    }
    atomic_store(&s->ring_tail, head);
    return tail != head;
}

static void bucket_over(gw_step_engine *s, int bucket) {
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_dispatch_finish(s, bucket);
    for (int i = 0; i < p->ranges; i++) {
        gw_step_engine_tensor *t = &s->tensors[ranges[i].tensor];
        if (--t->left == 0) tensor_arrived(s, t);
    }
}

/* Turns and payload memory that buckets have got: one that was asked before may go on now. */
static uint64_t turns(const gw_step_engine *s) {
    return s->turn + (s->payloads ? gw_payload_pool_given(s->payloads) : 0);
}

static bool end_transfers(gw_step_engine *s, gw_time now, gw_error *error) {
    bool moved = false;
    uint64_t before = turns(s);
    for (int p = 0; p < gw_schedule_buckets(s->schedule) && !error->status; p++) {
        if (!s->transfers[p].active || !gw_dispatch_over(s, p, now, error)) continue;
        s->transfers[p].active = false;
        moved = true;
        if (error->status) break; /* it failed: nothing of it is applied */
        if (!gw_schedule_done(s->schedule, p)) continue;
        bucket_over(s, p);
        atomic_fetch_sub(&s->owed, 1);
    }
    return moved || turns(s) != before;
}

static void start(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    bool second = gw_schedule_bucket(s->schedule, bucket)->state == GW_BUCKET_HALFWAY;
    s->transfers[bucket].active = true;
    gw_schedule_start(s->schedule, bucket);
    gw_dispatch_start(s, bucket, second, now, error);
}

/* This rank decides, for itself or for all. */
static bool start_chosen(gw_step_engine *s, gw_time now, gw_error *error) {
    bool moved = false;
    while (!error->status && (!s->start_order || gw_start_order_has_space(s->start_order))) {
        int bucket = gw_schedule_next(s->schedule);
        if (bucket < 0) break;
        if (s->start_order) gw_start_order_decide(s->start_order, bucket);
        start(s, bucket, now, error);
        moved = true;
    }
    if (s->start_order && !error->status) gw_start_order_poll(s->start_order, false, now, &moved, error);
    return moved;
}

static bool any_ready(const gw_step_engine *s) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++)
        if (gw_schedule_startable(s->schedule, p)) return true;
    return false;
}

static bool start_ordered(gw_step_engine *s, gw_time now, gw_error *error) {
    bool moved = false, wanted = gw_start_order_next(s->start_order) < 0 && any_ready(s);
    gw_start_order_poll(s->start_order, wanted, now, &moved, error);
    while (!error->status) {
        int bucket = gw_start_order_next(s->start_order);
        if (bucket < 0) break;
        if (bucket >= gw_schedule_buckets(s->schedule)) {
            gw_fail_rank(error, GW_PROTOCOL, gw_team_member(s->config.team, 0),
                         "rank %d sent the order to start bucket %d of %d", gw_team_member(s->config.team, 0), bucket,
                         gw_schedule_buckets(s->schedule));
            break;
        }
        if (!gw_schedule_startable(s->schedule, bucket)) break;
        gw_start_order_take(s->start_order);
        start(s, bucket, now, error);
        moved = true;
    }
    return moved;
}

/* True if the generation of this step engine has failed; the next one may have begun. The caller may know of the
 * failure, so nothing is applied any more, not even a complete bucket. */
static bool is_over(const gw_step_engine *s, gw_error *error) {
    const gw_error *failure = gw_engine_error(gw_core_engine(s->config.core));
    bool past = s->generation != gw_control_generation(gw_core_control(s->config.core));
    if (past) gw_fail(error, GW_PEER_LOST, "the reducer belongs to a generation of the job that has failed");
    else if (failure->status) *error = *failure;
    return error->status != GW_OK;
}

bool gw_step_engine_poll(gw_step_engine *s, gw_time now) {
    gw_error error = {.rank = -1};
    if (!gw_step_engine_busy(s)) return false; /* the core polls all callbacks, busy or not */
    const gw_error *over = gw_engine_error(gw_core_engine(s->config.core));
    if (is_over(s, &error)) {
        fail(s, &error);
        return true;
    }
    bool moved = gw_step_engine_take_ready(s);
    if (s->ps) {
        if (atomic_load(&s->leaving)) gw_ps_leave(s->ps);
        moved |= gw_ps_poll(s->ps, now, &error);
    }
    moved |= end_transfers(s, now, &error);
    if (!error.status) {
        bool leads = !s->start_order || gw_start_order_leads(s->start_order);
        moved |= leads ? start_chosen(s, now, &error) : start_ordered(s, now, &error);
    }
    if (error.status) {
        fail(s, &error);
        if (!over->status) gw_core_abort(s->config.core, &error, now); /* the others wait for data that will not come */
    }
    return moved || error.status;
}
