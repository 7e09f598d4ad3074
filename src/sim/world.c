/* world.c - see world.h. */
#include "sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "engine/core.h"
#include "sim/scenario.h"
#include "transport/sim.h"

static const char *const fault_names[GW_SIM_FAULTS] = {"none", "kill",  "kill two", "partition", "stop",
                                                       "pause", "slow", "mismatch", "abort"};

const char *gw_sim_fault_name(gw_sim_fault fault) { return fault_names[fault]; }

/* One operation of a rank, and its buffers. */
typedef struct job {
    gw_op *op; /* NULL: not started, or released */
    void *in, *out;
} job;

typedef struct sim_world sim_world;

typedef struct sim_rank {
    sim_world *world;
    int rank;
    gw_core *core;
    gw_team *team;
    job jobs[GW_SIM_OPERATIONS_MAX];
    int started, finished; /* calls */
    gw_time start_at;      /* of the next call: the rank computes until then */
    gw_rng rng;
    bool over;             /* all calls made, or failed */
    gw_error error;        /* the first it was told */
    bool asks;             /* to go on without the lost, until then at the latest: */
    gw_time until;
    uint32_t asked_in;     /* generation */
    gw_team *survivors;    /* of the newest generation, once agreed */
    job after;             /* the survivors' call under way */
    int after_right;       /* of GW_SIM_CALLS_AFTER */
    gw_error last;         /* of the newest generation */
} sim_rank;

struct sim_world {
    gw_sim_scenario scenario;
    gw_sim_net *net;
    sim_rank *ranks;
    gw_sim_outcome *outcome;
    bool fault_done;
};

static void broken(sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A promise did not hold: the first such is the outcome. */
static void broken(sim_world *world, const char *format, ...) {
    if (!world->outcome->ok) return;
    world->outcome->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(world->outcome->text, sizeof world->outcome->text, format, args);
    va_end(args);
}

static void broken_call(sim_world *world, int rank, int c, int64_t element) {
    const gw_sim_call *call = &world->scenario.call[c];
    broken(world, "rank %d: element %" PRId64 " of call %d is wrong (%s of %zu x %s, %s, root %d, by %s%s)", rank,
           element, c, gw_collective_name(call->collective), call->count, gw_dtype_name(call->dtype),
           gw_redop_name(call->redop), call->root, call->builder->name, call->in_place ? ", in place" : "");
}

/* What the core asks for. */

static const char *host_name(void *ctx, int rank) {
    sim_rank *self = ctx;
    static const char *const names[] = {"host0", "host1", "host2", "host3", "host4", "host5", "host6", "host7"};
    return names[self->world->scenario.host_of[rank] % 8];
}

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    sim_rank *self = ctx;
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    gw_sim_message(self->world->net, self->rank, neighbour, bytes, sizeof bytes);
}

static void dial_control(void *ctx, int rank) {
    sim_rank *self = ctx;
    gw_sim_dial(self->world->net, self->rank, rank);
}

static void failed(void *ctx, const gw_error *error) {
    sim_rank *self = ctx;
    if (!self->error.status) self->error = *error;
    self->last = *error;
}

static void slow(void *ctx, const char *sentence) {
    (void)ctx;
    (void)sentence;
}

/* A rank's program. */

static void free_job(job *j) {
    if (j->out != j->in) free(j->out);
    free(j->in);
    *j = (job){0};
}

static void make_counts(const gw_sim_scenario *s, const gw_sim_call *call, size_t *counts) {
    for (int r = 0; r < s->world; r++) counts[r] = gw_sim_part(call, r);
}

static gw_op_spec spec_of(const sim_rank *self, int c, const job *j, const size_t *counts) {
    const gw_sim_scenario *s = &self->world->scenario;
    const gw_sim_call *call = &s->call[c];
    bool differs = s->fault == GW_SIM_MISMATCH && c == s->mismatch_call && self->rank == s->victim;
    gw_op_spec spec = {.collective = call->collective, .builder = call->builder, .in = j->in, .out = j->out,
                       .count = call->count + (differs ? 1 : 0), .counts = call->uneven ? counts : NULL,
                       .dtype = call->dtype, .redop = call->redop, .root = call->root, .chunk_bytes = 4096};
    if (call->collective != GW_COLL_SEND) return spec;
    bool sends = self->rank == call->root;
    spec.collective = sends ? GW_COLL_SEND : GW_COLL_RECV;
    spec.root = sends ? call->peer : call->root;
    return spec;
}

static void start_call(sim_rank *self) {
    sim_world *world = self->world;
    const gw_sim_scenario *s = &world->scenario;
    int c = self->started;
    const gw_sim_call *call = &s->call[c];
    job *j = &self->jobs[c];
    self->started++;
    if (!gw_sim_takes_part(call, self->rank)) return;
    size_t bytes = gw_dtype_bytes(call->dtype);
    j->in = malloc((gw_sim_in_count(s, call, self->rank) + 1) * bytes);
    j->out = call->in_place ? j->in : malloc((gw_sim_out_count(s, call, self->rank) + 1) * bytes);
    if (!j->in || !j->out) abort();
    gw_sim_fill(s, c, self->rank, j->in);
    size_t counts[GW_SIM_WORLD_MAX];
    make_counts(s, call, counts);
    gw_op_spec spec = spec_of(self, c, j, counts);
    gw_error error = {.rank = -1};
    gw_status status = gw_core_start(self->core, &j->op, self->team, &spec, gw_sim_now(world->net), &error);
    if (!status) return;
    if (self->error.status == GW_OK) broken(world, "rank %d could not start call %d: %s", self->rank, c, error.text);
    else if (status != self->error.status || strcmp(error.text, self->error.text) != 0)
        broken(world, "rank %d: after \"%s\" a later call says \"%s\"", self->rank, self->error.text, error.text);
    world->outcome->failed++;
    j->op = NULL;
    free_job(j);
}

static void end_call(sim_rank *self, int c) {
    sim_world *world = self->world;
    job *j = &self->jobs[c];
    gw_status status = gw_op_status(j->op);
    gw_op_release(j->op);
    if (status) {
        world->outcome->failed++;
        if (status != self->error.status) broken(world, "rank %d: call %d ended with %d, not %d", self->rank, c, status,
                                                 self->error.status);
    } else {
        int64_t wrong = gw_sim_check(&world->scenario, c, self->rank, j->out);
        if (wrong >= 0) broken_call(world, self->rank, c, wrong);
        world->outcome->right++;
    }
    free_job(j);
}

/* After the fault: the survivors agree who they are, and reduce. */

static void open_survivors(sim_rank *self, const bool *in) {
    sim_world *world = self->world;
    const gw_sim_scenario *s = &world->scenario;
    int members[GW_SIM_WORLD_MAX], hosts[GW_SIM_WORLD_MAX], count = 0, place = -1;
    gw_error error = {.rank = -1};
    for (int r = 0; r < s->world; r++) {
        if (!in[r]) continue;
        if (r == self->rank) place = count;
        hosts[count] = count; /* each on its own: numbering is not what is tried here */
        members[count++] = r;
    }
    if (place < 0) broken(world, "rank %d was told to go on, but is not one of the survivors", self->rank);
    uint32_t id = gw_control_generation(gw_core_control(self->core));
    gw_team_close(self->survivors);
    self->survivors = NULL;
    gw_topology topology = {.world = count, .host_of = hosts};
    if (place >= 0 && gw_team_open(&self->survivors, gw_core_engine(self->core), id, place, members, &topology, NULL,
                                   &error))
        broken(world, "rank %d: no team of %d survivors: %s", self->rank, count, error.text);
    self->after_right = 0;
}

static void start_after(sim_rank *self) {
    job *j = &self->after;
    gw_error error = {.rank = -1};
    size_t bytes = 3000 * sizeof(int32_t);
    int32_t *in = malloc(bytes), *out = malloc(bytes);
    if (!in || !out) abort();
    for (int i = 0; i < 3000; i++) in[i] = self->rank + i + self->after_right;
    *j = (job){.in = in, .out = out};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .in = in, .out = out, .count = 3000,
                       .dtype = GW_I32, .redop = GW_SUM, .root = -1, .chunk_bytes = 4096};
    if (gw_core_start(self->core, &j->op, self->survivors, &spec, gw_sim_now(self->world->net), &error) != GW_OK)
        free_job(j);
}

static void end_after(sim_rank *self) {
    job *j = &self->after;
    const int32_t *out = j->out;
    int size = gw_team_size(self->survivors), ranks = 0;
    for (int r = 0; r < size; r++) ranks += gw_team_member(self->survivors, r);
    if (gw_op_status(j->op) == GW_OK) {
        for (int i = 0; i < 3000; i++)
            if (out[i] != ranks + size * (i + self->after_right))
                broken(self->world, "rank %d: element %d of the survivors' call %d is wrong", self->rank, i,
                       self->after_right);
        self->after_right++;
    }
    gw_op_release(j->op);
    free_job(j);
}

static void ask(sim_rank *self) {
    self->asks = true;
    self->asked_in = gw_control_generation(gw_core_control(self->core));
    self->last = (gw_error){.rank = -1};
    gw_core_shrink(self->core, self->until, gw_sim_now(self->world->net));
}

/* As gw_shrink does: again, where another was lost meanwhile. */
static void take_answer(sim_rank *self) {
    bool in[GW_SIM_WORLD_MAX];
    gw_error error = {.rank = -1};
    gw_control *control = gw_core_control(self->core);
    if (!gw_control_shrunk(control, in, &error)) return;
    self->asks = false;
    if (!error.status) open_survivors(self, in);
    else if (self->asked_in != gw_control_generation(control)) ask(self);
    else broken(self->world, "rank %d may not go on: %s", self->rank, error.text);
}

static void leave(sim_rank *self) {
    self->over = true;
    gw_control_leave(gw_core_control(self->core));
    gw_sim_shut(self->world->net, self->rank);
}

static void go_on(sim_rank *self) {
    if (self->after.op && !gw_op_done(self->after.op)) return;
    if (self->after.op) end_after(self);
    if (!self->asks && (!self->survivors || self->last.status)) {
        self->until = gw_sim_now(self->world->net) + self->world->scenario.deadline;
        ask(self);
    }
    if (self->asks) take_answer(self);
    if (self->asks || !self->survivors) return;
    while (self->after_right < GW_SIM_CALLS_AFTER && !self->last.status && !self->after.op) {
        start_after(self);
        if (self->after.op && gw_op_done(self->after.op)) end_after(self);
    }
    if (self->after_right == GW_SIM_CALLS_AFTER) leave(self);
}

static void run_program(sim_rank *self) {
    const gw_sim_scenario *s = &self->world->scenario;
    gw_time now = gw_sim_now(self->world->net);
    for (int c = self->finished; c < self->started; c++)
        if (self->jobs[c].op && gw_op_done(self->jobs[c].op)) end_call(self, c);
    while (self->finished < self->started && !self->jobs[self->finished].op) self->finished++;
    while (self->started < s->calls && self->started - self->finished < s->ahead && now >= self->start_at) {
        start_call(self);
        self->start_at = now + gw_rng_below(&self->rng, 2 * s->latency + 1);
        gw_sim_timer(self->world->net, self->rank, self->start_at);
        if (self->jobs[self->started - 1].op && gw_op_done(self->jobs[self->started - 1].op))
            end_call(self, self->started - 1);
        while (self->finished < self->started && !self->jobs[self->finished].op) self->finished++;
    }
    if (self->finished < s->calls || self->over) return;
    if (self->error.status && gw_sim_shrinks(s)) {
        go_on(self);
        return;
    }
    if (self->error.status) self->over = true;
    else leave(self);
}

/* The network's events. */

static void on_moved(void *ctx, int rank) {
    sim_world *world = ctx;
    sim_rank *self = &world->ranks[rank];
    gw_core_poll(self->core, gw_sim_now(world->net));
    run_program(self);
}

static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    sim_world *world = ctx;
    gw_control_message message;
    gw_error error = {0};
    if (length != GW_CONTROL_BYTES || gw_control_read(&message, bytes, world->scenario.world, &error) != GW_OK) {
        broken(world, "rank %d got a bad control message: %s", to, error.text);
        return;
    }
    gw_core_receive(world->ranks[to].core, from, &message, gw_sim_now(world->net));
    on_moved(ctx, to);
}

static void on_hang_up(void *ctx, int rank, int gone) {
    sim_world *world = ctx;
    gw_core_link_lost(world->ranks[rank].core, gone, "connection closed", gw_sim_now(world->net));
}

static void on_connected(void *ctx, int rank, int peer) {
    sim_world *world = ctx;
    gw_core_link_up(world->ranks[rank].core, peer, gw_sim_now(world->net));
    on_moved(ctx, rank);
}

static void on_refused(void *ctx, int rank, int peer) {
    sim_world *world = ctx;
    gw_core_died(world->ranks[rank].core, peer, "its port is closed", gw_sim_now(world->net));
    on_moved(ctx, rank);
}

static void cause_fault(sim_world *world) {
    const gw_sim_scenario *s = &world->scenario;
    gw_time now = gw_sim_now(world->net);
    if (world->fault_done || now < s->fault_at) return;
    world->fault_done = true;
    bool side[GW_SIM_WORLD_MAX] = {false};
    gw_error reason = {.rank = -1};
    switch (s->fault) {
    case GW_SIM_KILL_TWO:
        if (!world->ranks[s->second_victim].over) gw_sim_kill(world->net, s->second_victim);
        /* fall through */
    case GW_SIM_KILL:
        if (!world->ranks[s->victim].over) gw_sim_kill(world->net, s->victim);
        break;
    case GW_SIM_PARTITION:
        for (int r = 0; r < s->world; r++) side[r] = r % 2 == s->victim % 2 || r > s->victim;
        gw_sim_partition(world->net, side);
        break;
    case GW_SIM_STOP: gw_sim_pause(world->net, s->victim, now + 3 * s->deadline); break;
    case GW_SIM_PAUSE: gw_sim_pause(world->net, s->victim, now + s->deadline / 2); break;
    case GW_SIM_SLOW: gw_sim_slow(world->net, s->victim, 10); break;
    case GW_SIM_ABORT:
        gw_fail(&reason, GW_ABORTED, "rank %d aborted: enough", s->victim);
        gw_core_abort(world->ranks[s->victim].core, &reason, now);
        break;
    default: break;
    }
}

static void on_timer(void *ctx, int rank) {
    sim_world *world = ctx;
    sim_rank *self = &world->ranks[rank];
    gw_time now = gw_sim_now(world->net);
    cause_fault(world);
    if (!gw_sim_alive(world->net, rank)) return;
    gw_core_poll_control(self->core, now);
    on_moved(ctx, rank);
}

/* Set-up, run, verdict. */

static gw_status open_rank(sim_world *world, int rank, gw_error *error) {
    sim_rank *self = &world->ranks[rank];
    const gw_sim_scenario *s = &world->scenario;
    *self = (sim_rank){.world = world, .rank = rank, .rng = gw_rng_make(s->seed, 100 + (uint64_t)rank),
                       .error = {.rank = -1}};
    gw_core_config config = {.rank = rank, .world = s->world, .deadline = s->deadline, .ctx = self,
                             .host_name = host_name, .send = send_control, .dial = dial_control, .failed = failed,
                             .slow = slow};
    gw_status status = gw_core_open(&self->core, &config, 0, error);
    if (status) return status;
    gw_engine *engine = gw_core_engine(self->core);
    gw_transport *transport = gw_sim_transport(world->net, rank, gw_engine_sink(engine));
    int *members = malloc((size_t)s->world * sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for %d simulated ranks", s->world);
    for (int r = 0; r < s->world; r++) {
        members[r] = r;
        if (r != rank) gw_engine_route(engine, r, transport);
    }
    gw_topology topology = {.world = s->world, .host_of = s->host_of};
    status = gw_team_open(&self->team, engine, 0, rank, members, &topology, NULL, error);
    free(members);
    return status;
}

static void close_rank(sim_rank *self) {
    for (int c = 0; c < GW_SIM_OPERATIONS_MAX; c++) free_job(&self->jobs[c]);
    free_job(&self->after);
    gw_team_close(self->survivors);
    gw_team_close(self->team);
    gw_core_close(self->core);
}

static bool all_over(const sim_world *world) {
    for (int r = 0; r < world->scenario.world; r++)
        if (gw_sim_alive(world->net, r) && !world->ranks[r].over) return false;
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

static void judge(sim_world *world) {
    const gw_sim_scenario *s = &world->scenario;
    for (int r = 0; r < s->world; r++) {
        sim_rank *self = &world->ranks[r];
        if (!gw_sim_alive(world->net, r)) continue;
        if (!self->over)
            broken(world, "rank %d still waits after %.1f s (call %d of %d, fault %s)", r,
                   (double)gw_sim_now(world->net) / (double)GW_SECOND, self->finished, s->calls,
                   gw_sim_fault_name(s->fault));
        if (self->error.status && !may_be_blamed(s, &self->error))
            broken(world, "rank %d was told \"%s\" (%s), but the fault was %s of rank %d", r, self->error.text,
                   gw_status_text(self->error.status), gw_sim_fault_name(s->fault), s->victim);
        if (s->fault == GW_SIM_MISMATCH && s->world > 1 && !self->error.status)
            broken(world, "rank %d was not told of the mismatch", r);
    }
}

static void drive(sim_world *world) {
    const gw_sim_scenario *s = &world->scenario;
    gw_time beat = s->deadline / 30, limit = s->fault_at + 5 * s->deadline;
    for (int r = 0; r < s->world; r++) gw_sim_timer(world->net, r, gw_rng_below(&world->ranks[r].rng, 1000));
    gw_sim_timer(world->net, 0, s->fault_at);
    gw_time next_beat = 0;
    while (gw_sim_now(world->net) < limit && !all_over(world) && world->outcome->ok) {
        if (gw_sim_now(world->net) >= next_beat) {
            next_beat = gw_sim_now(world->net) + beat;
            for (int r = 0; r < s->world; r++) gw_sim_timer(world->net, r, next_beat);
        }
        cause_fault(world);
        if (!gw_sim_step(world->net)) break;
        world->outcome->events++;
    }
    judge(world);
    world->outcome->seconds = (double)gw_sim_now(world->net) / (double)GW_SECOND;
}

gw_status gw_sim_run(uint64_t seed, int world_size, gw_sim_outcome *outcome, gw_error *error) {
    sim_world world = {.outcome = outcome};
    *outcome = (gw_sim_outcome){.ok = true};
    gw_status status = gw_sim_scenario_make(&world.scenario, seed, world_size, error);
    if (status) return status;
    const gw_sim_scenario *s = &world.scenario;
    gw_sim_config config = {.world = s->world, .latency = s->latency, .bytes_per_second = s->bytes_per_second,
                            .jitter = s->jitter, .seed = seed};
    gw_sim_events events = {.ctx = &world, .message = on_message, .hang_up = on_hang_up, .timer = on_timer,
                            .moved = on_moved, .connected = on_connected, .refused = on_refused};
    status = gw_sim_open(&world.net, &config, &events, error);
    world.ranks = calloc((size_t)s->world, sizeof *world.ranks);
    if (!status && !world.ranks) status = gw_fail(error, GW_MEMORY, "out of memory for %d simulated ranks", s->world);
    for (int r = 0; !status && r < s->world; r++) status = open_rank(&world, r, error);
    if (!status) {
        outcome->world = s->world;
        outcome->operations = s->calls;
        outcome->fault = s->fault;
        drive(&world);
    }
    for (int r = 0; world.ranks && r < s->world; r++) close_rank(&world.ranks[r]);
    free(world.ranks);
    gw_sim_close(world.net);
    gw_sim_scenario_free(&world.scenario);
    return status;
}
