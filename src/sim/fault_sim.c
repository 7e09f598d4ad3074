/* fault_sim.c - see fault_sim.h. */
#include "sim/fault_sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "sim/control_sim.h"
#include "sim/fault_sim_scenario.h"

static const char *const fault_names[GW_SIM_FAULTS] = {"none",  "kill", "kill two", "partition", "stop",
                                                       "pause", "slow", "mismatch", "abort"};

const char *gw_sim_fault_name(gw_sim_fault fault) { return fault_names[fault]; }

/* An operation of a rank and its buffers. */
typedef struct sim_op {
    gw_op *op; /* NULL: not started, or released */
    void *in, *out;
    int source; /* of a tagged receive */
} sim_op;

typedef struct fault_sim fault_sim;

typedef struct sim_rank {
    gw_control_sim_rank base; /* first */
    fault_sim *sim;
    gw_team *team;
    sim_op ops[GW_SIM_OPERATIONS_MAX]; /* in the order of starting: gw_sim_order tells the call */
    int started, finished;             /* calls */
    gw_time start_at;                  /* of the next call: the rank computes until then */
    gw_rng rng;
    bool over;                  /* all calls made, or failed */
    gw_error error;             /* the first reported */
    bool shrinking;             /* gw_shrink is in progress, */
    gw_time shrink_until;       /* with this deadline, */
    uint32_t shrink_generation; /* started in this generation */
    gw_team *survivors;         /* of the newest generation; NULL: not agreed */
    sim_op survivors_op;        /* the survivors' call in progress */
    int survivors_right;        /* their calls with the right result, of GW_SIM_CALLS_AFTER */
    gw_error last;              /* of the newest generation */
} sim_rank;

struct fault_sim {
    gw_control_sim base; /* first */
    gw_sim_scenario scenario;
    sim_rank *ranks;
    gw_fault_sim_outcome *outcome;
    bool fault_done;
};

#define broken(sim, ...) gw_control_sim_broken(&(sim)->base, __VA_ARGS__)

static void broken_call(fault_sim *sim, int rank, int c, int64_t element) {
    const gw_sim_call *call = &sim->scenario.call[c];
    broken(sim, "rank %d: element %" PRId64 " of call %d is wrong (%s of %zu x %s, %s%s, root %d, by %s%s)", rank,
           element, c, gw_collective_name(call->collective), call->count, gw_dtype_name(call->dtype),
           gw_redop_name(call->redop), call->scale.set ? " scaled" : "", call->root, call->builder->technique.name,
           call->in_place ? ", in place" : "");
}

/* Callbacks of the core. */

static const char *host_name(void *ctx, int rank) {
    const sim_rank *self = ctx;
    static const char *const names[] = {"host0", "host1", "host2", "host3", "host4", "host5", "host6", "host7"};
    return names[self->sim->scenario.host_of[rank] % 8];
}

static void failed(void *ctx, const gw_error *error) {
    sim_rank *self = ctx;
    if (!self->error.status) self->error = *error;
    self->last = *error;
}

/* A rank's program. */

static void free_op(sim_op *j) {
    if (j->out != j->in) free(j->out);
    free(j->in);
    *j = (sim_op){0};
}

static gw_op_spec spec_of(const sim_rank *self, int c, sim_op *j, const size_t *counts) {
    const gw_sim_scenario *s = &self->sim->scenario;
    const gw_sim_call *call = &s->call[c];
    bool differs = s->fault == GW_SIM_MISMATCH && c == s->mismatch_call && self->base.rank == s->victim;
    bool in_scale = s->seed % 4 < 2 && !gw_scale_refuses(call->dtype, call->redop);
    gw_op_spec spec = {.collective = call->collective, .builder = call->builder, .in = j->in, .out = j->out,
                       .count = call->count + (differs && !in_scale ? 1 : 0),
                       .counts = call->uneven ? counts : NULL,
                       .dtype = call->dtype, .redop = call->redop, .scale = call->scale, .root = call->root,
                       .chunk_bytes = 4096};
    if (differs && in_scale) spec.scale = gw_scale_of(3, 1);
    if (call->collective != GW_COLL_SEND) return spec;
    bool sends = self->base.rank == call->root;
    spec.collective = sends ? GW_COLL_SEND : GW_COLL_RECV;
    spec.root = sends ? call->peer : call->any_source ? GW_ANY_SOURCE : call->root;
    spec.tagged = call->tagged;
    if (call->tagged) spec.chunk_bytes = 100000; /* some messages are too large to be eager */
    spec.tag = call->tag;
    if (!sends && call->tagged) spec.source = &j->source;
    return spec;
}

static void start_call(sim_rank *self) {
    fault_sim *sim = self->sim;
    const gw_sim_scenario *s = &sim->scenario;
    int c = gw_sim_order(s, self->base.rank, self->started);
    const gw_sim_call *call = &s->call[c];
    sim_op *j = &self->ops[self->started];
    self->started++;
    if (!gw_sim_takes_part(call, self->base.rank)) return;
    size_t bytes = gw_dtype_bytes(call->dtype);
    j->in = malloc((gw_sim_in_count(s, call, self->base.rank) + 1) * bytes);
    j->out = call->in_place ? j->in : malloc((gw_sim_out_count(s, call, self->base.rank) + 1) * bytes);
    if (!j->in || !j->out) abort();
    gw_sim_fill(s, c, self->base.rank, j->in);
    size_t counts[GW_ALLTOALLV_ARRAYS * GW_SIM_WORLD_MAX];
    if (call->uneven) gw_sim_counts(s, call, self->base.rank, counts);
    gw_op_spec spec = spec_of(self, c, j, counts);
    gw_error error = {.rank = -1};
    gw_status status = gw_core_start(self->base.core, &j->op, self->team, &spec, gw_sim_now(sim->base.net), &error);
    if (!status) return;
    if (self->error.status == GW_OK) broken(sim, "rank %d could not start call %d: %s", self->base.rank, c, error.text);
    else if (status != self->error.status || strcmp(error.text, self->error.text) != 0)
        broken(sim, "rank %d: after \"%s\" a later call says \"%s\"", self->base.rank, self->error.text, error.text);
    sim->outcome->failed++;
    j->op = NULL;
    free_op(j);
}

static void end_call(sim_rank *self, int n) {
    fault_sim *sim = self->sim;
    int c = gw_sim_order(&sim->scenario, self->base.rank, n);
    sim_op *j = &self->ops[n];
    gw_status status = gw_op_status(j->op);
    gw_op_release(j->op);
    if (status) {
        sim->outcome->failed++;
        if (status != self->error.status)
            broken(sim, "rank %d: call %d ended with %d, not %d", self->base.rank, c, status, self->error.status);
    } else {
        int64_t wrong = gw_sim_check(&sim->scenario, c, self->base.rank, j->source, j->out);
        if (wrong >= 0) broken_call(sim, self->base.rank, c, wrong);
        sim->outcome->right++;
    }
    free_op(j);
}

/* After the fault: the survivors shrink and make more calls. */

static void open_survivors(sim_rank *self, const bool *in) {
    gw_error error = {.rank = -1};
    uint32_t id = gw_control_generation(gw_core_control(self->base.core));
    gw_team_close(self->survivors);
    self->survivors = NULL;
    if (gw_control_sim_team(&self->base, &self->survivors, id, in, NULL, NULL, &error))
        broken(self->sim, "rank %d: no team of survivors: %s", self->base.rank, error.text);
    self->survivors_right = 0;
}

static void start_survivors_op(sim_rank *self) {
    sim_op *j = &self->survivors_op;
    gw_error error = {.rank = -1};
    size_t bytes = 3000 * sizeof(int32_t);
    int32_t *in = malloc(bytes), *out = malloc(bytes);
    if (!in || !out) abort();
    for (int i = 0; i < 3000; i++) in[i] = self->base.rank + i + self->survivors_right;
    *j = (sim_op){.in = in, .out = out};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .in = in, .out = out, .count = 3000,
                       .dtype = GW_I32, .redop = GW_SUM, .root = -1, .chunk_bytes = 4096};
    gw_time now = gw_sim_now(self->base.sim->net);
    if (gw_core_start(self->base.core, &j->op, self->survivors, &spec, now, &error) != GW_OK) free_op(j);
}

static void end_survivors_op(sim_rank *self) {
    sim_op *j = &self->survivors_op;
    const int32_t *out = j->out;
    int size = gw_team_size(self->survivors), ranks = 0;
    for (int r = 0; r < size; r++) ranks += gw_team_member(self->survivors, r);
    if (gw_op_status(j->op) == GW_OK) {
        for (int i = 0; i < 3000; i++)
            if (out[i] != ranks + size * (i + self->survivors_right))
                broken(self->sim, "rank %d: element %d of the survivors' call %d is wrong", self->base.rank, i,
                       self->survivors_right);
        self->survivors_right++;
    }
    gw_op_release(j->op);
    free_op(j);
}

static void start_shrink(sim_rank *self) {
    self->shrinking = true;
    self->shrink_generation = gw_control_generation(gw_core_control(self->base.core));
    self->last = (gw_error){.rank = -1};
    gw_core_shrink(self->base.core, self->shrink_until, gw_sim_now(self->base.sim->net));
}

/* Like gw_shrink: starts again if another rank was lost meanwhile. */
static void finish_shrink(sim_rank *self) {
    bool in[GW_SIM_WORLD_MAX];
    gw_error error = {.rank = -1};
    gw_control *control = gw_core_control(self->base.core);
    if (!gw_control_shrunk(control, in, &error)) return;
    self->shrinking = false;
    if (!error.status) open_survivors(self, in);
    else if (self->shrink_generation != gw_control_generation(control)) start_shrink(self);
    else broken(self->sim, "rank %d may not go on: %s", self->base.rank, error.text);
}

static void leave(sim_rank *self) {
    self->over = true;
    gw_control_leave(gw_core_control(self->base.core));
    gw_sim_shut(self->base.sim->net, self->base.rank);
}

static void run_survivors(sim_rank *self) {
    if (self->survivors_op.op && !gw_op_done(self->survivors_op.op)) return;
    if (self->survivors_op.op) end_survivors_op(self);
    if (!self->shrinking && (!self->survivors || self->last.status)) {
        self->shrink_until = gw_sim_now(self->base.sim->net) + self->sim->scenario.deadline;
        start_shrink(self);
    }
    if (self->shrinking) finish_shrink(self);
    if (self->shrinking || !self->survivors) return;
    while (self->survivors_right < GW_SIM_CALLS_AFTER && !self->last.status && !self->survivors_op.op) {
        start_survivors_op(self);
        if (self->survivors_op.op && gw_op_done(self->survivors_op.op)) end_survivors_op(self);
    }
    if (self->survivors_right == GW_SIM_CALLS_AFTER) leave(self);
}

static void run_program(sim_rank *self) {
    const gw_sim_scenario *s = &self->sim->scenario;
    gw_time now = gw_sim_now(self->base.sim->net);
    for (int n = self->finished; n < self->started; n++)
        if (self->ops[n].op && gw_op_done(self->ops[n].op)) end_call(self, n);
    while (self->finished < self->started && !self->ops[self->finished].op) self->finished++;
    while (self->started < s->calls && self->started - self->finished < s->ahead && now >= self->start_at) {
        start_call(self);
        self->start_at = now + gw_rng_below(&self->rng, 2 * s->latency + 1);
        gw_sim_timer(self->base.sim->net, self->base.rank, self->start_at);
        if (self->ops[self->started - 1].op && gw_op_done(self->ops[self->started - 1].op))
            end_call(self, self->started - 1);
        while (self->finished < self->started && !self->ops[self->finished].op) self->finished++;
    }
    if (self->finished < s->calls || self->over) return;
    if (self->error.status && gw_sim_shrinks(s)) {
        run_survivors(self);
        return;
    }
    if (self->error.status) self->over = true;
    else leave(self);
}

/* The network's events. */

static void on_moved(void *ctx, int rank) {
    fault_sim *sim = ctx;
    sim_rank *self = &sim->ranks[rank];
    gw_core_poll(self->base.core, gw_sim_now(sim->base.net));
    run_program(self);
}

static void cause_fault(fault_sim *sim) {
    const gw_sim_scenario *s = &sim->scenario;
    gw_time now = gw_sim_now(sim->base.net);
    if (sim->fault_done || now < s->fault_at) return;
    sim->fault_done = true;
    bool side[GW_SIM_WORLD_MAX] = {false};
    gw_error reason = {.rank = -1};
    switch (s->fault) {
    case GW_SIM_KILL_TWO:
        if (!sim->ranks[s->second_victim].over) gw_sim_kill(sim->base.net, s->second_victim);
        /* fall through */
    case GW_SIM_KILL:
        if (!sim->ranks[s->victim].over) gw_sim_kill(sim->base.net, s->victim);
        break;
    case GW_SIM_PARTITION:
        for (int r = 0; r < s->world; r++) side[r] = r % 2 == s->victim % 2 || r > s->victim;
        gw_sim_partition(sim->base.net, side);
        break;
    case GW_SIM_STOP: gw_sim_pause(sim->base.net, s->victim, now + 3 * s->deadline); break;
    case GW_SIM_PAUSE: gw_sim_pause(sim->base.net, s->victim, now + s->deadline / 2); break;
    case GW_SIM_SLOW: gw_sim_slow(sim->base.net, s->victim, 10); break;
    case GW_SIM_ABORT:
        gw_fail(&reason, GW_ABORTED, "rank %d aborted: enough", s->victim);
        gw_core_abort(sim->ranks[s->victim].base.core, &reason, now);
        break;
    default: break;
    }
}

static void on_timer(void *ctx, int rank) {
    fault_sim *sim = ctx;
    sim_rank *self = &sim->ranks[rank];
    gw_time now = gw_sim_now(sim->base.net);
    cause_fault(sim);
    if (!gw_sim_alive(sim->base.net, rank)) return;
    gw_core_poll_control(self->base.core, now);
    on_moved(ctx, rank);
}

/* Set-up, run, verdict. */

static gw_status open_rank(fault_sim *sim, int rank, gw_error *error) {
    sim_rank *self = &sim->ranks[rank];
    const gw_sim_scenario *s = &sim->scenario;
    bool all[GW_SIM_WORLD_MAX];
    memset(all, true, sizeof all);
    *self = (sim_rank){.sim = sim, .rng = gw_rng_make(s->seed, 100 + (uint64_t)rank), .error = {.rank = -1}};
    gw_core_config config = {.deadline = s->deadline, .host_name = host_name, .failed = failed};
    gw_status status = gw_control_sim_open_rank(&self->base, &sim->base, rank, config, error);
    return status ? status : gw_control_sim_team(&self->base, &self->team, 0, all, s->host_of, NULL, error);
}

static void close_rank(sim_rank *self) {
    for (int c = 0; c < GW_SIM_OPERATIONS_MAX; c++) free_op(&self->ops[c]);
    free_op(&self->survivors_op);
    gw_team_close(self->survivors);
    gw_team_close(self->team);
    gw_core_close(self->base.core);
}

static bool all_over(const fault_sim *sim) {
    for (int r = 0; r < sim->scenario.world; r++)
        if (gw_sim_alive(sim->base.net, r) && !sim->ranks[r].over) return false;
    return true;
}

static bool may_be_blamed(const gw_sim_scenario *s, const gw_error *error) {
    switch (s->fault) {
    case GW_SIM_KILL: return error->status == GW_PEER_LOST && error->rank == s->victim;
    case GW_SIM_KILL_TWO:
        return error->status == GW_PEER_LOST && (error->rank == s->victim || error->rank == s->second_victim);
    case GW_SIM_PARTITION: return error->rank >= 0 && (error->status == GW_PEER_LOST || error->status == GW_TIMEOUT);
    case GW_SIM_STOP: return error->rank == s->victim && (error->status == GW_PEER_LOST || error->status == GW_TIMEOUT);
    case GW_SIM_MISMATCH: return error->status == GW_MISMATCH;
    case GW_SIM_ABORT: return error->status == GW_ABORTED;
    default: return false;
    }
}

static void judge(fault_sim *sim) {
    const gw_sim_scenario *s = &sim->scenario;
    for (int r = 0; r < s->world; r++) {
        sim_rank *self = &sim->ranks[r];
        if (!gw_sim_alive(sim->base.net, r)) continue;
        if (!self->over)
            broken(sim, "rank %d still waits after %.1f s (call %d of %d, fault %s)", r,
                   (double)gw_sim_now(sim->base.net) / (double)GW_SECOND, self->finished, s->calls,
                   gw_sim_fault_name(s->fault));
        if (self->error.status && !may_be_blamed(s, &self->error))
            broken(sim, "rank %d reports \"%s\" (%s), but the fault was %s of rank %d", r, self->error.text,
                   gw_status_text(self->error.status), gw_sim_fault_name(s->fault), s->victim);
        if (s->fault == GW_SIM_MISMATCH && s->world > 1 && !self->error.status)
            broken(sim, "rank %d does not report the mismatch", r);
    }
}

static void drive(fault_sim *sim) {
    const gw_sim_scenario *s = &sim->scenario;
    gw_time beat = s->deadline / 30, limit = s->fault_at + 5 * s->deadline;
    for (int r = 0; r < s->world; r++) gw_sim_timer(sim->base.net, r, gw_rng_below(&sim->ranks[r].rng, 1000));
    gw_sim_timer(sim->base.net, 0, s->fault_at);
    gw_time next_beat = 0;
    while (gw_sim_now(sim->base.net) < limit && !all_over(sim) && sim->outcome->ok) {
        gw_control_sim_beat(&sim->base, beat, &next_beat);
        cause_fault(sim);
        if (!gw_sim_step(sim->base.net)) break;
        sim->outcome->events++;
    }
    judge(sim);
    sim->outcome->seconds = (double)gw_sim_now(sim->base.net) / (double)GW_SECOND;
}

static gw_control_sim_rank *rank_of(gw_control_sim *sim, int rank) { return &((fault_sim *)sim)->ranks[rank].base; }

gw_status gw_fault_sim_run(uint64_t seed, int world_size, gw_fault_sim_outcome *outcome, gw_error *error) {
    fault_sim sim = {.outcome = outcome};
    *outcome = (gw_fault_sim_outcome){.ok = true};
    gw_status status = gw_sim_scenario_make(&sim.scenario, seed, world_size, error);
    if (status) return status;
    const gw_sim_scenario *s = &sim.scenario;
    gw_sim_config config = {.latency = s->latency, .bytes_per_second = s->bytes_per_second, .jitter = s->jitter,
                            .seed = seed};
    sim.base = (gw_control_sim){.world = s->world, .rank_of = rank_of, .moved = on_moved, .timer = on_timer,
                                .ok = &outcome->ok, .text = outcome->text, .text_bytes = sizeof outcome->text};
    status = gw_control_sim_open(&sim.base, config, error);
    sim.ranks = calloc((size_t)s->world, sizeof *sim.ranks);
    if (!status && !sim.ranks) status = gw_fail(error, GW_MEMORY, "out of memory for %d simulated ranks", s->world);
    for (int r = 0; !status && r < s->world; r++) status = open_rank(&sim, r, error);
    if (!status) {
        outcome->world = s->world;
        outcome->operations = s->calls;
        outcome->fault = s->fault;
        drive(&sim);
    }
    for (int r = 0; sim.ranks && r < s->world; r++) close_rank(&sim.ranks[r]);
    free(sim.ranks);
    gw_sim_close(sim.base.net);
    gw_sim_scenario_free(&sim.scenario);
    return status;
}
