/* survival.c - see survival.h. */
#include "sim/survival.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "engine/core.h"
#include "transport/sim.h"

#define DEADLINE GW_SURVIVAL_DEADLINE
#define COUNT 40           /* elements of a call */
#define CALLS_AFTER 2      /* of survivors, after the last fault */
#define EVERY (DEADLINE / 20) /* a rank computes so long between calls */

typedef struct scene scene;

typedef struct survivor {
    scene *scene;
    int rank;
    gw_core *core;
    gw_team *team;
    gw_op *op;
    int32_t in[COUNT], out[COUNT];
    uint32_t members;    /* of the communicator */
    int calls;           /* that were right, in it, since the last fault */
    gw_time next_call;
    gw_error failed;     /* of the communicator */
    bool asks;           /* gw_shrink is under way, */
    gw_time until;       /* until then at the latest */
    uint32_t asked_in;   /* generation */
    gw_error refused;    /* what gw_shrink said; the rank does nothing more */
    gw_time armed;       /* of the next timer */
    int agreement_sent;  /* messages */
} survivor;

struct scene {
    gw_survival spec;
    gw_survival_outcome *outcome;
    gw_sim_net *net;
    gw_rng rng;
    gw_time dies_at[GW_SURVIVAL_WORLD_MAX], cut_at, last_fault; /* dies_at 0: never, or not by the clock */
    bool cut_done;
    survivor ranks[GW_SURVIVAL_WORLD_MAX];
};

static void broken(scene *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void broken(scene *s, const char *format, ...) {
    if (!s->outcome->ok) return;
    s->outcome->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(s->outcome->text, sizeof s->outcome->text, format, args);
    va_end(args);
}

static gw_time now_of(const survivor *self) { return gw_sim_now(self->scene->net); }
static bool has(uint32_t set, int rank) { return set >> rank & 1; }

/* What the core asks for. */

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}

static int first_dead(const gw_survival *spec) { return spec->dead ? __builtin_ctz(spec->dead) : -1; }

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    survivor *self = ctx;
    const gw_survival *spec = &self->scene->spec;
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    gw_sim_message(self->scene->net, self->rank, neighbour, bytes, sizeof bytes);
    if (message->kind < GW_CONTROL_SHRINK || self->rank != first_dead(spec)) return;
    if (++self->agreement_sent != spec->messages) return;
    gw_sim_kill(self->scene->net, self->rank);
    self->scene->last_fault = now_of(self);
}

static void dial(void *ctx, int rank) {
    survivor *self = ctx;
    gw_sim_dial(self->scene->net, self->rank, rank);
}

static void failed(void *ctx, const gw_error *error) {
    survivor *self = ctx;
    self->failed = *error;
}

static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

/* The one promise: of jobs whose members are all alive and in it there is one at most. */

static bool in_job(const scene *s, int rank, uint32_t members) {
    const survivor *self = &s->ranks[rank];
    return gw_sim_alive(s->net, rank) && self->team && !self->failed.status && self->members == members;
}

static int whole_jobs(const scene *s, uint32_t *members) {
    int jobs = 0;
    for (int r = 0; r < s->spec.world; r++) {
        uint32_t set = s->ranks[r].members;
        bool whole = set && r == __builtin_ctz(set);
        for (int m = 0; m < s->spec.world; m++) whole = whole && (!has(set, m) || in_job(s, m, set));
        if (!whole) continue;
        *members = set;
        jobs++;
    }
    return jobs;
}

static void check_one_job(scene *s) {
    uint32_t members;
    int jobs = whole_jobs(s, &members);
    if (jobs > 1 && !s->spec.any_side)
        broken(s, "%d jobs go on at once, one of them with the ranks %#x", jobs, members);
}

/* A rank's program: calls, and gw_shrink where one fails. */

static void open_team(survivor *self, uint32_t set) {
    int members[GW_SURVIVAL_WORLD_MAX], hosts[GW_SURVIVAL_WORLD_MAX], count = 0, place = -1;
    gw_error error = {.rank = -1};
    for (int r = 0; r < self->scene->spec.world; r++) {
        if (!has(set, r)) continue;
        if (r == self->rank) place = count;
        hosts[count] = count;
        members[count++] = r;
    }
    gw_team_close(self->team);
    self->team = NULL;
    self->members = set;
    self->calls = 0;
    self->next_call = now_of(self);
    self->failed = *gw_engine_error(gw_core_engine(self->core));
    gw_topology topology = {.world = count, .host_of = hosts};
    uint32_t id = gw_control_generation(gw_core_control(self->core));
    if (place < 0) broken(self->scene, "rank %d goes on in a job that it is not in", self->rank);
    else if (gw_team_open(&self->team, gw_core_engine(self->core), id, place, members, &topology, NULL, &error))
        broken(self->scene, "rank %d: %s", self->rank, error.text);
    check_one_job(self->scene);
}

static void ask(survivor *self) {
    self->asks = true;
    self->asked_in = gw_control_generation(gw_core_control(self->core));
    gw_core_shrink(self->core, self->until, now_of(self));
}

static void take_answer(survivor *self) {
    bool member[GW_SURVIVAL_WORLD_MAX];
    gw_error error = {.rank = -1};
    gw_control *control = gw_core_control(self->core);
    uint32_t set = 0;
    if (!gw_control_shrunk(control, member, &error)) return;
    self->asks = false;
    for (int r = 0; r < self->scene->spec.world; r++) set |= (uint32_t)member[r] << r;
    bool again = error.status && self->asked_in != gw_control_generation(control) && now_of(self) < self->until;
    if (now_of(self) > self->until + GW_MILLISECOND)
        broken(self->scene, "rank %d: gw_shrink took longer than the deadline", self->rank);
    if (again) ask(self);
    else if (error.status) self->refused = error;
    else open_team(self, set);
}

static void end_call(survivor *self) {
    int sum = 0, size = gw_team_size(self->team);
    for (int r = 0; r < size; r++) sum += gw_team_member(self->team, r);
    if (gw_op_status(self->op) == GW_OK) {
        for (int i = 0; i < COUNT; i++)
            if (self->out[i] != sum + size * i) broken(self->scene, "rank %d: a sum is wrong", self->rank);
        self->calls += now_of(self) > self->scene->last_fault;
    }
    gw_op_release(self->op);
    self->op = NULL;
}

static void start_call(survivor *self) {
    gw_error error = {.rank = -1};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .in = self->in, .out = self->out,
                       .count = COUNT, .dtype = GW_I32, .redop = GW_SUM, .root = -1};
    for (int i = 0; i < COUNT; i++) self->in[i] = self->rank + i;
    self->next_call = now_of(self) + EVERY;
    if (gw_core_start(self->core, &self->op, self->team, &spec, now_of(self), &error)) self->op = NULL;
}

static void run_program(survivor *self) {
    if (self->op && !gw_op_done(self->op)) return;
    if (self->op) end_call(self);
    if (self->refused.status) return;
    if (!self->asks && self->failed.status) {
        self->until = now_of(self) + DEADLINE;
        ask(self);
    }
    if (self->asks) take_answer(self);
    if (self->asks || self->refused.status || self->failed.status || now_of(self) < self->next_call) return;
    start_call(self);
}

/* The network's events. */

static void arm(survivor *self) {
    gw_time next = gw_control_next(gw_core_control(self->core)), now = now_of(self);
    if (!self->asks && !self->refused.status && !self->op && self->next_call < next) next = self->next_call;
    if (next > now + EVERY) next = now + EVERY;
    if (self->asks && self->until < next) next = self->until;
    if (next <= now) next = now + 1;
    if (self->armed > now && self->armed <= next) return;
    self->armed = next;
    gw_sim_timer(self->scene->net, self->rank, next);
}

static void on_moved(void *ctx, int rank) {
    scene *s = ctx;
    survivor *self = &s->ranks[rank];
    if (!gw_sim_alive(s->net, rank)) return;
    gw_core_poll(self->core, now_of(self));
    run_program(self);
    arm(self);
}

static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    scene *s = ctx;
    gw_control_message message;
    gw_error error = {.rank = -1};
    if (length != GW_CONTROL_BYTES || gw_control_read(&message, bytes, s->spec.world, &error))
        broken(s, "rank %d got a bad control message: %s", to, error.text);
    else gw_core_receive(s->ranks[to].core, from, &message, gw_sim_now(s->net));
    on_moved(ctx, to);
}

static void on_hang_up(void *ctx, int rank, int gone) {
    scene *s = ctx;
    gw_core_link_lost(s->ranks[rank].core, gone, "connection closed", gw_sim_now(s->net));
}

static void on_connected(void *ctx, int rank, int peer) {
    scene *s = ctx;
    gw_core_link_up(s->ranks[rank].core, peer, gw_sim_now(s->net));
    on_moved(ctx, rank);
}

static void on_refused(void *ctx, int rank, int peer) {
    scene *s = ctx;
    gw_core_died(s->ranks[rank].core, peer, "its port is closed", gw_sim_now(s->net));
    on_moved(ctx, rank);
}

static void on_timer(void *ctx, int rank) {
    scene *s = ctx;
    gw_core_poll_control(s->ranks[rank].core, gw_sim_now(s->net));
    on_moved(ctx, rank);
}

/* Faults. */

static void cut(scene *s) {
    bool side[GW_SURVIVAL_WORLD_MAX] = {false};
    int world = s->spec.world;
    s->cut_done = true;
    for (int r = 0; r < world; r++) side[r] = has(s->spec.side, r);
    gw_sim_partition(s->net, side);
    for (int i = 0; i < s->spec.pairs; i++) {
        int a = (int)gw_rng_below(&s->rng, (uint64_t)world), b = (int)gw_rng_below(&s->rng, (uint64_t)world);
        if (a != b) gw_sim_cut(s->net, a, b);
    }
}

static void cause_faults(scene *s) {
    gw_time now = gw_sim_now(s->net);
    if (!s->cut_done && now >= s->cut_at) cut(s);
    for (int r = 0; r < s->spec.world; r++)
        if (s->dies_at[r] && now >= s->dies_at[r]) gw_sim_kill(s->net, r);
}

static gw_time fault_time(scene *s) {
    gw_time at = DEADLINE / 8 + (s->spec.spread ? gw_rng_below(&s->rng, s->spec.spread) : 0);
    if (at > s->last_fault) s->last_fault = at;
    return at;
}

static void plan_faults(scene *s) {
    s->cut_at = s->spec.side || s->spec.pairs ? fault_time(s) : 0;
    s->cut_done = !s->cut_at;
    for (int r = 0; r < s->spec.world; r++) {
        if (!has(s->spec.dead, r) || (s->spec.messages && r == first_dead(&s->spec))) continue;
        s->dies_at[r] = fault_time(s);
        gw_sim_timer(s->net, r, s->dies_at[r]);
    }
    for (int r = 0; r < s->spec.world && s->cut_at; r++) gw_sim_timer(s->net, r, s->cut_at);
}

/* An agreement is needed for somebody to die in it: rank 0 calls gw_abort. */
static void begin_agreement(scene *s) {
    gw_error enough = {.status = GW_ABORTED, .rank = 0, .text = "enough"};
    gw_core_abort(s->ranks[0].core, &enough, gw_sim_now(s->net));
    on_moved(s, 0);
}

/* Set-up, run, verdict. */

static gw_status open_rank(scene *s, int rank, gw_error *error) {
    survivor *self = &s->ranks[rank];
    *self = (survivor){.scene = s, .rank = rank, .failed = {.rank = -1}, .refused = {.rank = -1}};
    gw_core_config config = {.rank = rank, .world = s->spec.world, .deadline = DEADLINE, .any_side = s->spec.any_side,
                             .ctx = self, .host_name = host_name, .send = send_control, .dial = dial, .failed = failed,
                             .slow = slow};
    gw_status status = gw_core_open(&self->core, &config, 0, error);
    if (status) return status;
    gw_transport *transport = gw_sim_transport(s->net, rank, gw_engine_sink(gw_core_engine(self->core)));
    for (int r = 0; r < s->spec.world; r++)
        if (r != rank) gw_engine_route(gw_core_engine(self->core), r, transport);
    open_team(self, (uint32_t)((UINT64_C(1) << s->spec.world) - 1));
    gw_sim_timer(s->net, rank, gw_rng_below(&s->rng, GW_MILLISECOND));
    return GW_OK;
}

static bool settled(const scene *s) {
    if (gw_sim_now(s->net) <= s->last_fault) return false;
    for (int r = 0; r < s->spec.world; r++)
        if (gw_sim_alive(s->net, r) && !s->ranks[r].refused.status && s->ranks[r].calls < CALLS_AFTER) return false;
    return true;
}

static void judge(scene *s) {
    gw_survival_outcome *o = s->outcome;
    o->jobs = whole_jobs(s, &o->members);
    for (int r = s->spec.world - 1; r >= 0; r--) {
        const survivor *self = &s->ranks[r];
        if (!gw_sim_alive(s->net, r)) continue;
        if (self->refused.status) {
            o->told |= UINT32_C(1) << r;
            snprintf(o->why, sizeof o->why, "%s", self->refused.text);
        } else if (self->calls < CALLS_AFTER) {
            broken(s, "rank %d neither goes on nor is told why, after %.1f s: %s", r,
                   (double)gw_sim_now(s->net) / (double)GW_SECOND, self->failed.text);
        }
    }
}

static void drive(scene *s) {
    plan_faults(s);
    if (s->spec.messages) begin_agreement(s);
    gw_time limit = DEADLINE + s->spec.spread + 12 * DEADLINE;
    while (gw_sim_now(s->net) < limit && !settled(s) && s->outcome->ok) {
        cause_faults(s);
        if (!gw_sim_step(s->net)) break;
        s->outcome->events++;
    }
    judge(s);
}

static void close_rank(survivor *self) {
    if (self->op && gw_op_done(self->op)) gw_op_release(self->op);
    gw_team_close(self->team);
    gw_core_close(self->core);
}

gw_status gw_sim_survive(const gw_survival *spec, gw_survival_outcome *outcome, gw_error *error) {
    scene *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a simulated job");
    *outcome = (gw_survival_outcome){.ok = true};
    s->spec = *spec;
    s->outcome = outcome;
    s->rng = gw_rng_make(spec->seed, 7);
    gw_sim_config config = {.world = spec->world, .latency = 100000 + gw_rng_below(&s->rng, GW_MILLISECOND),
                            .bytes_per_second = 1e9, .jitter = gw_rng_below(&s->rng, 3 * GW_MILLISECOND) + 1,
                            .seed = spec->seed};
    gw_sim_events events = {.ctx = s, .message = on_message, .hang_up = on_hang_up, .timer = on_timer,
                            .moved = on_moved, .connected = on_connected, .refused = on_refused};
    gw_status status = gw_sim_open(&s->net, &config, &events, error);
    for (int r = 0; !status && r < spec->world; r++) status = open_rank(s, r, error);
    if (!status) drive(s);
    for (int r = 0; r < spec->world; r++) close_rank(&s->ranks[r]);
    gw_sim_close(s->net);
    free(s);
    return status;
}
