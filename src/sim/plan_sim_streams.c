/* plan_sim_streams.c - runs the steps of plans as soon as their waits hold, like engine/executor.c, but with sizes
 * only. */
#include <stddef.h>
#include <stdlib.h>

#include "sim/plan_sim_internal.h"

enum { BEFORE_POST, BEFORE_ACT };

void gw_plan_sim_queue(gw_plan_sim *sim, sim_stream *l) {
    if (l->queued) return;
    l->queued = true;
    l->queued_next = NULL;
    if (sim->queue_last) sim->queue_last->queued_next = l;
    else sim->queue_first = l;
    sim->queue_last = l;
}

/* Waits. */

static void wait_for(sim_stream *l, int which, sim_stream *on, uint64_t steps) {
    waiter *w = &l->wait[which];
    if (w->waits) return;
    *w = (waiter){.next = on->waiters, .who = l, .steps = steps, .waits = true};
    on->waiters = w;
}

static bool holds(sim_stream *l, int which, const gw_waits waits[GW_ACTION_WAITS]) {
    sim_stream *streams = l->of->streams;
    for (int w = 0; w < GW_ACTION_WAITS; w++) {
        for (uint32_t s = 0; s < waits[w].streams; s++) {
            sim_stream *on = &streams[waits[w].first + s];
            if (on->done >= waits[w].actions) continue;
            wait_for(l, which, on, waits[w].actions);
            return false;
        }
    }
    return true;
}

static void wake_waiters(gw_plan_sim *sim, sim_stream *l) {
    waiter *w = l->waiters;
    l->waiters = NULL;
    while (w) {
        waiter *next = w->next;
        if (l->done >= w->steps) {
            w->waits = false;
            gw_plan_sim_queue(sim, w->who);
        } else {
            w->next = l->waiters;
            l->waiters = w;
        }
        w = next;
    }
}

void gw_plan_sim_complete(gw_plan_sim *sim, sim_stream *l) {
    part *p = l->of;
    l->done++;
    if (l->waiters) wake_waiters(sim, l);
    gw_plan_sim_queue(sim, l);
    if (--p->left > 0) return;
    p->next = sim->finished;
    sim->finished = p;
}

/* Work that takes a rank's time. */

static void work_over(gw_event *event, void *ctx) {
    gw_plan_sim *sim = ctx;
    work *w = (work *)event;
    sim->path = w->path;
    sim_stream *l = w->of;
    w->next = sim->spare_works;
    sim->spare_works = w;
    gw_plan_sim_complete(sim, l);
    gw_plan_sim_drain(sim);
}

static void do_work(gw_plan_sim *sim, sim_stream *l, double bytes) {
    double seconds = sim->config.reduce_rate > 0 ? bytes / sim->config.reduce_rate : 0;
    rank_state *rank = &sim->rank[l->of->rank];
    double now = sim->events.now, begin = rank->busy_until > now ? rank->busy_until : now;
    if (begin + seconds <= now) {
        gw_plan_sim_complete(sim, l);
        return;
    }
    work *w = sim->spare_works;
    if (w) sim->spare_works = w->next;
    else w = gw_plan_sim_memory(sim, sizeof *w);
    if (!w) return;
    rank->busy_until = begin + seconds;
    *w = (work){.over = {.act = work_over}, .of = l};
    w->path = gw_time_breakdown_plus(sim->path, GW_TIME_REDUCE, rank->busy_until - now);
    gw_event_set(&sim->events, &w->over, rank->busy_until);
}

/* Receives. */

/* Grants when the sender is about to starve, or half a pipeline at a time (engine/flow_control.c). */
static void grant(gw_plan_sim *sim, sim_stream *l) {
    uint64_t upto = l->posted < l->large_to ? l->posted : l->large_to;
    if (l->granting || l->granted >= upto) return;
    if (l->granted > l->done && l->posted < l->steps && l->posted - l->granted < GW_PIPELINE / 2) return;
    l->granted = upto;
    l->granting = true;
    gw_plan_sim_grant(sim, l);
}

static void post(gw_plan_sim *sim, sim_stream *l) {
    if (l->of->op->spec.announced && !l->announced) return;
    while (l->posted < l->steps && l->posted - l->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_action(&l->of->plan, l->index, l->posted, &step);
        if (!holds(l, BEFORE_POST, step.free)) break;
        l->posted++;
        if (l->other->posted == l->posted - 1) gw_plan_sim_queue(sim, l->other);
    }
    if (l->large_to) grant(sim, l);
}

static void act(gw_plan_sim *sim, sim_stream *l) {
    while (l->acted < l->arrived && l->acted < l->posted) {
        gw_action step;
        gw_plan_action(&l->of->plan, l->index, l->acted, &step);
        if (!holds(l, BEFORE_ACT, step.ready)) return;
        l->acted++;
        if (step.kind == GW_ACTION_RECV_REDUCE) do_work(sim, l, (double)(step.dst.count * l->of->op->spec.unit_bytes));
        else gw_plan_sim_complete(sim, l);
    }
}

void gw_plan_sim_arrived(gw_plan_sim *sim, sim_stream *l) {
    l->arrived++;
    if (l->of->started) gw_plan_sim_queue(sim, l);
}

/* Sends. */

/* A small message needs no grant while less than GW_EAGER_SLOTS are unconsumed; a large one needs an arrived grant. */
static bool may_go(const sim_stream *l, double bytes) {
    if (bytes > GW_EAGER_BYTES && l->posted < l->other->large_to) return l->posted < l->granted;
    return l->posted < l->other->done + GW_EAGER_SLOTS || l->posted < l->other->posted;
}

static void send(gw_plan_sim *sim, sim_stream *l) {
    while (l->posted < l->steps && l->posted - l->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_action(&l->of->plan, l->index, l->posted, &step);
        if (!holds(l, BEFORE_POST, step.ready)) return;
        double bytes = (double)(step.src.count * l->of->op->spec.unit_bytes);
        if (!may_go(l, bytes)) return;
        l->posted++;
        gw_plan_sim_send(sim, l, bytes);
    }
}

/* Local work. */

static void local(gw_plan_sim *sim, sim_stream *l) {
    size_t unit = l->of->op->spec.unit_bytes;
    while (l->acted < l->steps && l->acted == l->done && !l->on_coll) {
        gw_action step;
        gw_plan_action(&l->of->plan, l->index, l->acted, &step);
        if (!holds(l, BEFORE_ACT, step.ready)) return;
        if (step.kind == GW_ACTION_SHM) {
            gw_plan_sim_coll(sim, l, &step);
            return;
        }
        l->acted++;
        /* Plans run in place here, so copies cost nothing. */
        size_t operands = step.kind == GW_ACTION_FOLD ? (size_t)l->of->plan.request.topology.world - 1 : 0;
        do_work(sim, l, (double)(step.dst.count * unit * operands));
    }
}

static void advance(gw_plan_sim *sim, sim_stream *l) {
    switch ((gw_stream_kind)l->flow) {
    case GW_STREAM_RECV:
        post(sim, l);
        act(sim, l);
        return;
    case GW_STREAM_SEND: send(sim, l); return;
    case GW_STREAM_LOCAL: local(sim, l); return;
    }
}

void gw_plan_sim_release(gw_plan_sim *sim, gw_plan_sim_op *op) {
    if (--op->unfinished > 0) return;
    if (op->previous) op->previous->next = op->next;
    else sim->ops = op->next;
    if (op->next) op->next->previous = op->previous;
    free(op->streams);
    free(op->parts);
    free(op);
}

static void report_finished(gw_plan_sim *sim) {
    while (sim->finished) {
        part *p = sim->finished;
        sim->finished = p->next;
        gw_plan_sim_op *op = p->op;
        int rank = p->rank, tag = op->spec.tag;
        gw_plan_sim_release(sim, op);
        sim->config.done(sim->config.ctx, rank, tag);
    }
}

void gw_plan_sim_drain(gw_plan_sim *sim) {
    while (sim->queue_first || sim->finished) {
        sim_stream *l = sim->queue_first;
        if (!l) {
            report_finished(sim);
            continue;
        }
        sim->queue_first = l->queued_next;
        if (!sim->queue_first) sim->queue_last = NULL;
        l->queued = false;
        if (l->of->started && l->done < l->steps) advance(sim, l);
    }
}
