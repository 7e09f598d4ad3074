/* run_lanes.c - the steps of plans, as soon as their waits hold. What the engine's executor does, with sizes only. */
#include <stddef.h>
#include <stdlib.h>

#include "sim/run_internal.h"

enum { BEFORE_POST, BEFORE_ACT };

void gw_run_queue(gw_run *run, lane *l) {
    if (l->queued) return;
    l->queued = true;
    l->queued_next = NULL;
    if (run->queue_last) run->queue_last->queued_next = l;
    else run->queue_first = l;
    run->queue_last = l;
}

/* Waits. */

static void wait_for(lane *l, int which, lane *on, uint64_t steps) {
    waiter *w = &l->wait[which];
    if (w->waits) return;
    *w = (waiter){.next = on->waiters, .who = l, .steps = steps, .waits = true};
    on->waiters = w;
}

static bool holds(lane *l, int which, const gw_waits waits[GW_STEP_WAITS]) {
    lane *lanes = l->of->lanes;
    for (int w = 0; w < GW_STEP_WAITS; w++) {
        for (uint32_t s = 0; s < waits[w].streams; s++) {
            lane *on = &lanes[waits[w].first + s];
            if (on->done >= waits[w].steps) continue;
            wait_for(l, which, on, waits[w].steps);
            return false;
        }
    }
    return true;
}

static void wake_waiters(gw_run *run, lane *l) {
    waiter *w = l->waiters;
    l->waiters = NULL;
    while (w) {
        waiter *next = w->next;
        if (l->done >= w->steps) {
            w->waits = false;
            gw_run_queue(run, w->who);
        } else {
            w->next = l->waiters;
            l->waiters = w;
        }
        w = next;
    }
}

void gw_run_complete(gw_run *run, lane *l) {
    part *p = l->of;
    l->done++;
    if (l->waiters) wake_waiters(run, l);
    gw_run_queue(run, l);
    if (--p->left > 0) return;
    p->next = run->finished;
    run->finished = p;
}

/* Work that takes a rank's time. */

static void work_over(gw_event *event, void *ctx) {
    gw_run *run = ctx;
    work *w = (work *)event;
    run->path = w->path;
    lane *l = w->of;
    w->next = run->spare_works;
    run->spare_works = w;
    gw_run_complete(run, l);
    gw_run_drain(run);
}

static void do_work(gw_run *run, lane *l, double bytes) {
    double seconds = run->config.reduce_rate > 0 ? bytes / run->config.reduce_rate : 0;
    rank_state *rank = &run->rank[l->of->rank];
    double now = run->events.now, begin = rank->busy_until > now ? rank->busy_until : now;
    if (begin + seconds <= now) {
        gw_run_complete(run, l);
        return;
    }
    work *w = run->spare_works;
    if (w) run->spare_works = w->next;
    else w = gw_run_memory(run, sizeof *w);
    if (!w) return;
    rank->busy_until = begin + seconds;
    *w = (work){.over = {.act = work_over}, .of = l};
    w->path = gw_path_plus(run->path, GW_PATH_REDUCE, rank->busy_until - now);
    gw_event_set(&run->events, &w->over, rank->busy_until);
}

/* Receives. */

/* When the sender is about to starve, and for half a pipeline at a time (engine/flow.c). */
static void grant(gw_run *run, lane *l) {
    uint64_t upto = l->posted < l->large_to ? l->posted : l->large_to;
    if (l->granting || l->granted >= upto) return;
    if (l->granted > l->done && l->posted < l->steps && l->posted - l->granted < GW_PIPELINE / 2) return;
    l->granted = upto;
    l->granting = true;
    gw_run_grant(run, l);
}

static void post(gw_run *run, lane *l) {
    if (l->of->op->spec.announced && !l->told) return;
    while (l->posted < l->steps && l->posted - l->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_step(&l->of->plan, l->index, l->posted, &step);
        if (!holds(l, BEFORE_POST, step.free)) break;
        l->posted++;
        if (l->other->posted == l->posted - 1) gw_run_queue(run, l->other);
    }
    if (l->large_to) grant(run, l);
}

static void act(gw_run *run, lane *l) {
    while (l->acted < l->arrived && l->acted < l->posted) {
        gw_action step;
        gw_plan_step(&l->of->plan, l->index, l->acted, &step);
        if (!holds(l, BEFORE_ACT, step.ready)) return;
        l->acted++;
        if (step.kind == GW_STEP_RECV_REDUCE) do_work(run, l, (double)(step.dst.count * l->of->op->spec.unit_bytes));
        else gw_run_complete(run, l);
    }
}

void gw_run_arrived(gw_run *run, lane *l) {
    l->arrived++;
    if (l->of->started) gw_run_queue(run, l);
}

/* Sends. */

/* A small message needs no grant, up to a few that have not been taken; a large one needs one that has arrived. */
static bool may_go(const lane *l, double bytes) {
    if (bytes > GW_EAGER_BYTES && l->posted < l->other->large_to) return l->posted < l->granted;
    return l->posted < l->other->done + GW_EAGER_SLOTS || l->posted < l->other->posted;
}

static void send(gw_run *run, lane *l) {
    while (l->posted < l->steps && l->posted - l->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_step(&l->of->plan, l->index, l->posted, &step);
        if (!holds(l, BEFORE_POST, step.ready)) return;
        double bytes = (double)(step.src.count * l->of->op->spec.unit_bytes);
        if (!may_go(l, bytes)) return;
        l->posted++;
        gw_run_send(run, l, bytes);
    }
}

/* Local work. */

static void local(gw_run *run, lane *l) {
    size_t unit = l->of->op->spec.unit_bytes;
    while (l->acted < l->steps && l->acted == l->done && !l->on_board) {
        gw_action step;
        gw_plan_step(&l->of->plan, l->index, l->acted, &step);
        if (!holds(l, BEFORE_ACT, step.ready)) return;
        if (step.kind == GW_STEP_BOARD) {
            gw_run_board(run, l, &step);
            return;
        }
        l->acted++;
        /* Steps work in place: what is to be copied lies where it belongs. */
        size_t operands = step.kind == GW_STEP_FOLD ? (size_t)run->config.topology.world - 1 : 0;
        do_work(run, l, (double)(step.dst.count * unit * operands));
    }
}

static void advance(gw_run *run, lane *l) {
    switch ((gw_flow)l->flow) {
    case GW_FLOW_RECV:
        post(run, l);
        act(run, l);
        return;
    case GW_FLOW_SEND: send(run, l); return;
    case GW_FLOW_LOCAL: local(run, l); return;
    }
}

void gw_run_release(gw_run *run, gw_run_op *op) {
    if (--op->unfinished > 0) return;
    if (op->previous) op->previous->next = op->next;
    else run->ops = op->next;
    if (op->next) op->next->previous = op->previous;
    free(op->lanes);
    free(op->parts);
    free(op);
}

static void report_finished(gw_run *run) {
    while (run->finished) {
        part *p = run->finished;
        run->finished = p->next;
        gw_run_op *op = p->op;
        int rank = p->rank, tag = op->spec.tag;
        gw_run_release(run, op);
        run->config.done(run->config.ctx, rank, tag);
    }
}

void gw_run_drain(gw_run *run) {
    while (run->queue_first || run->finished) {
        lane *l = run->queue_first;
        if (!l) {
            report_finished(run);
            continue;
        }
        run->queue_first = l->queued_next;
        if (!run->queue_first) run->queue_last = NULL;
        l->queued = false;
        if (l->of->started && l->done < l->steps) advance(run, l);
    }
}
