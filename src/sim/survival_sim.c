/* survival_sim.c - see survival_sim.h. */
#include "sim/survival_sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "sim/control_sim.h"

#define DEADLINE GW_SURVIVAL_DEADLINE
#define COUNT 40              /* elements of a call */
#define CALLS_AFTER 2         /* calls of survivors after the last fault */
#define EVERY (DEADLINE / 20) /* compute time between calls */

typedef struct survival_sim survival_sim;

typedef struct survivor {
    gw_control_sim_rank base; /* first */
    survival_sim *sim;
    gw_team *team;
    gw_op *op;
    int32_t in[COUNT], out[COUNT];
    uint32_t members; /* of the communicator */
    int calls;        /* with the right result, since the last fault */
    gw_time next_call;
    gw_error failed;            /* of the communicator */
    bool shrinking;             /* gw_shrink is in progress, */
    gw_time shrink_until;       /* with this deadline, */
    uint32_t shrink_generation; /* started in this generation */
    gw_error refused;           /* error of gw_shrink; the rank does nothing more */
    gw_time armed;              /* time of the next timer */
    int agreement_sent;         /* messages of an agreement sent */
} survivor;

struct survival_sim {
    gw_control_sim base; /* first */
    gw_survival_sim spec;
    gw_survival_sim_outcome *outcome;
    gw_rng rng;
    gw_time dies_at[GW_SURVIVAL_WORLD_MAX], cut_at, last_fault; /* dies_at 0: not at a set time */
    bool cut_done;
    survivor ranks[GW_SURVIVAL_WORLD_MAX];
};

#define broken(s, ...) gw_control_sim_broken(&(s)->base, __VA_ARGS__)

static gw_time now_of(const survivor *self) { return gw_sim_now(self->base.sim->net); }
static bool has(uint32_t set, int rank) { return set >> rank & 1; }

/* Callbacks of the core. */

static int first_dead(const gw_survival_sim *spec) { return spec->dead ? __builtin_ctz(spec->dead) : -1; }

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    survivor *self = ctx;
    const gw_survival_sim *spec = &self->sim->spec;
    gw_control_sim_send(ctx, neighbour, message);
    if (message->kind < GW_CONTROL_SHRINK || self->base.rank != first_dead(spec)) return;
    if (++self->agreement_sent != spec->messages) return;
    gw_sim_kill(self->base.sim->net, self->base.rank);
    self->sim->last_fault = now_of(self);
}

static void failed(void *ctx, const gw_error *error) {
    survivor *self = ctx;
    self->failed = *error;
}

/* The main check: there is at most one job whose members are all alive and all agree that they are its members. */

static bool in_job(const survival_sim *s, int rank, uint32_t members) {
    const survivor *self = &s->ranks[rank];
    return gw_sim_alive(s->base.net, rank) && self->team && !self->failed.status && self->members == members;
}

static int whole_jobs(const survival_sim *s, uint32_t *members) {
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

static void check_one_job(survival_sim *s) {
    uint32_t members;
    int jobs = whole_jobs(s, &members);
    if (jobs > 1 && !s->spec.any_side)
        broken(s, "%d jobs go on at once, one of them with the ranks %#x", jobs, members);
}

/* A rank's program: calls, and gw_shrink after a failed one. */

static void open_team(survivor *self, uint32_t set) {
    bool in[GW_SURVIVAL_WORLD_MAX];
    gw_error error = {.rank = -1};
    for (int r = 0; r < self->sim->spec.world; r++) in[r] = has(set, r);
    gw_team_close(self->team);
    self->team = NULL;
    self->members = set;
    self->calls = 0;
    self->next_call = now_of(self);
    self->failed = *gw_engine_error(gw_core_engine(self->base.core));
    uint32_t id = gw_control_generation(gw_core_control(self->base.core));
    if (gw_control_sim_team(&self->base, &self->team, id, in, NULL, NULL, &error))
        broken(self->sim, "rank %d: %s", self->base.rank, error.text);
    check_one_job(self->sim);
}

static void start_shrink(survivor *self) {
    self->shrinking = true;
    self->shrink_generation = gw_control_generation(gw_core_control(self->base.core));
    gw_core_shrink(self->base.core, self->shrink_until, now_of(self));
}

static void finish_shrink(survivor *self) {
    bool member[GW_SURVIVAL_WORLD_MAX];
    gw_error error = {.rank = -1};
    gw_control *control = gw_core_control(self->base.core);
    uint32_t set = 0;
    if (!gw_control_shrunk(control, member, &error)) return;
    self->shrinking = false;
    for (int r = 0; r < self->sim->spec.world; r++) set |= (uint32_t)member[r] << r;
    bool raised = self->shrink_generation != gw_control_generation(control);
    bool again = error.status && raised && now_of(self) < self->shrink_until;
    if (now_of(self) > self->shrink_until + GW_MILLISECOND)
        broken(self->sim, "rank %d: gw_shrink took longer than the deadline", self->base.rank);
    if (again) start_shrink(self);
    else if (error.status) self->refused = error;
    else open_team(self, set);
}

static void end_call(survivor *self) {
    int sum = 0, size = gw_team_size(self->team);
    for (int r = 0; r < size; r++) sum += gw_team_member(self->team, r);
    if (gw_op_status(self->op) == GW_OK) {
        for (int i = 0; i < COUNT; i++)
            if (self->out[i] != sum + size * i) broken(self->sim, "rank %d: a sum is wrong", self->base.rank);
        self->calls += now_of(self) > self->sim->last_fault;
    }
    gw_op_release(self->op);
    self->op = NULL;
}

static void start_call(survivor *self) {
    gw_error error = {.rank = -1};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .in = self->in, .out = self->out,
                       .count = COUNT, .dtype = GW_I32, .redop = GW_SUM, .root = -1};
    for (int i = 0; i < COUNT; i++) self->in[i] = self->base.rank + i;
    self->next_call = now_of(self) + EVERY;
    if (gw_core_start(self->base.core, &self->op, self->team, &spec, now_of(self), &error)) self->op = NULL;
}

static void run_program(survivor *self) {
    if (self->op && !gw_op_done(self->op)) return;
    if (self->op) end_call(self);
    if (self->refused.status) return;
    if (!self->shrinking && self->failed.status) {
        self->shrink_until = now_of(self) + DEADLINE;
        start_shrink(self);
    }
    if (self->shrinking) finish_shrink(self);
    if (self->shrinking || self->refused.status || self->failed.status || now_of(self) < self->next_call) return;
    start_call(self);
}

/* The network's events. */

static void arm(survivor *self) {
    gw_time next = gw_control_next(gw_core_control(self->base.core)), now = now_of(self);
    if (!self->shrinking && !self->refused.status && !self->op && self->next_call < next) next = self->next_call;
    if (next > now + EVERY) next = now + EVERY;
    if (self->shrinking && self->shrink_until < next) next = self->shrink_until;
    if (next <= now) next = now + 1;
    if (self->armed > now && self->armed <= next) return;
    self->armed = next;
    gw_sim_timer(self->base.sim->net, self->base.rank, next);
}

static void on_moved(void *ctx, int rank) {
    survival_sim *s = ctx;
    survivor *self = &s->ranks[rank];
    if (!gw_sim_alive(s->base.net, rank)) return;
    gw_core_poll(self->base.core, now_of(self));
    run_program(self);
    arm(self);
}

static void on_timer(void *ctx, int rank) {
    survival_sim *s = ctx;
    gw_core_poll_control(s->ranks[rank].base.core, gw_sim_now(s->base.net));
    on_moved(ctx, rank);
}

/* Faults. */

static void cut(survival_sim *s) {
    bool side[GW_SURVIVAL_WORLD_MAX] = {false};
    int world = s->spec.world;
    s->cut_done = true;
    for (int r = 0; r < world; r++) side[r] = has(s->spec.side, r);
    gw_sim_partition(s->base.net, side);
    for (int i = 0; i < s->spec.pairs; i++) {
        int a = (int)gw_rng_below(&s->rng, (uint64_t)world), b = (int)gw_rng_below(&s->rng, (uint64_t)world);
        if (a != b) gw_sim_cut(s->base.net, a, b);
    }
}

static void cause_faults(survival_sim *s) {
    gw_time now = gw_sim_now(s->base.net);
    if (!s->cut_done && now >= s->cut_at) cut(s);
    for (int r = 0; r < s->spec.world; r++)
        if (s->dies_at[r] && now >= s->dies_at[r]) gw_sim_kill(s->base.net, r);
}

static gw_time fault_time(survival_sim *s) {
    gw_time at = DEADLINE / 8 + (s->spec.spread ? gw_rng_below(&s->rng, s->spec.spread) : 0);
    if (at > s->last_fault) s->last_fault = at;
    return at;
}

static void plan_faults(survival_sim *s) {
    s->cut_at = s->spec.side || s->spec.pairs ? fault_time(s) : 0;
    s->cut_done = !s->cut_at;
    for (int r = 0; r < s->spec.world; r++) {
        if (!has(s->spec.dead, r) || (s->spec.messages && r == first_dead(&s->spec))) continue;
        s->dies_at[r] = fault_time(s);
        gw_sim_timer(s->base.net, r, s->dies_at[r]);
    }
    for (int r = 0; r < s->spec.world && s->cut_at; r++) gw_sim_timer(s->base.net, r, s->cut_at);
}

/* Rank 0 aborts, to start the agreement during which a rank dies. */
static void begin_agreement(survival_sim *s) {
    gw_error enough = {.status = GW_ABORTED, .rank = 0, .text = "enough"};
    gw_core_abort(s->ranks[0].base.core, &enough, gw_sim_now(s->base.net));
    on_moved(s, 0);
}

/* Set-up, run, verdict. */

static gw_status open_rank(survival_sim *s, int rank, gw_error *error) {
    survivor *self = &s->ranks[rank];
    *self = (survivor){.sim = s, .failed = {.rank = -1}, .refused = {.rank = -1}};
    gw_core_config config = {.deadline = DEADLINE, .any_side = s->spec.any_side, .send = send_control,
                             .failed = failed};
    gw_status status = gw_control_sim_open_rank(&self->base, &s->base, rank, config, error);
    if (status) return status;
    open_team(self, (uint32_t)((UINT64_C(1) << s->spec.world) - 1));
    gw_sim_timer(s->base.net, rank, gw_rng_below(&s->rng, GW_MILLISECOND));
    return GW_OK;
}

static bool settled(const survival_sim *s) {
    if (gw_sim_now(s->base.net) <= s->last_fault) return false;
    for (int r = 0; r < s->spec.world; r++) {
        const survivor *self = &s->ranks[r];
        if (gw_sim_alive(s->base.net, r) && !self->refused.status && self->calls < CALLS_AFTER) return false;
    }
    return true;
}

static void judge(survival_sim *s) {
    gw_survival_sim_outcome *o = s->outcome;
    o->jobs = whole_jobs(s, &o->members);
    for (int r = s->spec.world - 1; r >= 0; r--) {
        const survivor *self = &s->ranks[r];
        if (!gw_sim_alive(s->base.net, r)) continue;
        if (self->refused.status) {
            o->refused |= UINT32_C(1) << r;
            snprintf(o->why, sizeof o->why, "%s", self->refused.text);
        } else if (self->calls < CALLS_AFTER) {
            broken(s, "rank %d neither goes on nor has an error, after %.1f s: %s", r,
                   (double)gw_sim_now(s->base.net) / (double)GW_SECOND, self->failed.text);
        }
    }
}

static void drive(survival_sim *s) {
    plan_faults(s);
    if (s->spec.messages) begin_agreement(s);
    gw_time limit = DEADLINE + s->spec.spread + 12 * DEADLINE;
    while (gw_sim_now(s->base.net) < limit && !settled(s) && s->outcome->ok) {
        cause_faults(s);
        if (!gw_sim_step(s->base.net)) break;
        s->outcome->events++;
    }
    judge(s);
}

static void close_rank(survivor *self) {
    if (self->op && gw_op_done(self->op)) gw_op_release(self->op);
    gw_team_close(self->team);
    gw_core_close(self->base.core);
}

static gw_control_sim_rank *rank_of(gw_control_sim *sim, int rank) { return &((survival_sim *)sim)->ranks[rank].base; }

gw_status gw_survival_sim_run(const gw_survival_sim *spec, gw_survival_sim_outcome *outcome, gw_error *error) {
    survival_sim *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a simulated job");
    *outcome = (gw_survival_sim_outcome){.ok = true};
    s->spec = *spec;
    s->outcome = outcome;
    s->rng = gw_rng_make(spec->seed, 7);
    gw_sim_config config = {.latency = 100000 + gw_rng_below(&s->rng, GW_MILLISECOND), .bytes_per_second = 1e9,
                            .jitter = gw_rng_below(&s->rng, 3 * GW_MILLISECOND) + 1, .seed = spec->seed};
    s->base = (gw_control_sim){.world = spec->world, .rank_of = rank_of, .moved = on_moved, .timer = on_timer,
                               .ok = &outcome->ok, .text = outcome->text, .text_bytes = sizeof outcome->text};
    gw_status status = gw_control_sim_open(&s->base, config, error);
    for (int r = 0; !status && r < spec->world; r++) status = open_rank(s, r, error);
    if (!status) drive(s);
    for (int r = 0; r < spec->world; r++) close_rank(&s->ranks[r]);
    gw_sim_close(s->base.net);
    free(s);
    return status;
}
