/* ps_sim_regroup.c - connects the processes at the start and after each loss, and chooses which process to kill. See
 * ps_sim.h. The order is that of reducer_open.c and server_setup.c; state is copied instead of sent. */
#include <stdlib.h>
#include <string.h>

#include "sim/ps_sim_internal.h"

typedef gw_ps_sim_job job;
typedef gw_ps_sim_process process;

static process *at_rank(job *j, int rank) { return &j->members[j->member_of[rank]]; }
static gw_ps *ps_of(job *j, int rank) { return gw_step_engine_servers(at_rank(j, rank)->step_engine); }

static gw_ps_member describe(const process *p) {
    gw_ps_member mine = {.member = p->member,
                         .generation = p->born,
                         .serves = -1,
                         .copies = -1,
                         .fresh = p->step_engine == NULL,
                         .serves_only = !gw_ps_sim_works(p)};
    if (p->step_engine) gw_ps_describe_member(gw_step_engine_servers(p->step_engine), &mine);
    return mine;
}

/* Another process may be lost in the middle of regrouping. */
static bool interrupted(job *j) {
    if (j->interrupt_after < 0 || j->interrupt_after-- > 0) return false;
    gw_ps_sim_kill_one(j);
    return j->loss;
}

static gw_status connect_all(job *j, gw_error *error) {
    gw_ps_member who[GW_PS_SIM_MEMBERS_MAX];
    gw_status status = GW_OK;
    for (int r = 0; r < j->base.world && !status; r++) {
        process *p = at_rank(j, r);
        gw_ps_sim_disconnect(p);
        if (p->fresh) { /* its commit failed when regrouping was interrupted */
            gw_step_engine_close(p->step_engine);
            p->step_engine = NULL;
        }
        if (p->step_engine) status = gw_step_engine_suspend(p->step_engine, error);
        if (!status) status = gw_ps_sim_connect(p, r, error);
    }
    for (int r = 0; r < j->base.world; r++) who[r] = describe(at_rank(j, r));
    for (int r = 0; r < j->base.world && !status && !interrupted(j); r++) {
        process *p = at_rank(j, r);
        gw_step_engine_config config = {.core = p->base.core, .team = p->team, .members = who};
        if (p->step_engine) status = gw_step_engine_rejoin(p->step_engine, &config, error);
        else status = gw_ps_sim_commit(p, who, error);
    }
    return status;
}

static gw_status pass_state(job *j, int server, int from, int to, gw_error *error) {
    const void *bytes;
    size_t count;
    if (to < 0) return GW_OK;
    gw_status status = gw_ps_get_state(ps_of(j, from), server, &bytes, &count, error);
    if (status) return status;
    void *copy = malloc(count);
    if (!copy) return gw_fail(error, GW_MEMORY, "out of memory for a server's state");
    memcpy(copy, bytes, count);
    status = gw_ps_set_state(ps_of(j, to), server, copy, count, error);
    free(copy);
    return status;
}

static void begin_fresh(job *j, int server, gw_ps *ps) {
    if (gw_ps_gives_weights(ps)) gw_ps_pack_weights(ps_of(j, 0), server, gw_ps_space_weights(ps));
    gw_ps_begin_fresh(ps);
}

/* Copies a server's state to the rank that runs it, and from there to its replica. */
static gw_status place_state(job *j, int server, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, 0));
    int to = p->rank_of[server], source = p->source[server];
    gw_status status = GW_OK;
    if (source >= 0) status = pass_state(j, server, source, to, error);
    else if (!p->all_fresh) return gw_fail(error, GW_PEER_LOST, "server %d is lost with what it knew", server);
    else begin_fresh(j, server, ps_of(j, to));
    if (interrupted(j)) return status;
    return status ? status : pass_state(j, server, to, p->replica_of[server], error);
}

/* A new worker gets the numbers of its pushes, and weights from each server. */
static gw_status bring_up_to_date(job *j, int joiner, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, joiner));
    uint64_t *numbers = calloc((size_t)gw_ps_partitions(ps_of(j, joiner)) + 1, sizeof *numbers);
    if (!numbers) return gw_fail(error, GW_MEMORY, "out of memory for the numbers of partitions");
    for (int s = 0; s < p->servers; s++) {
        gw_ps *host = ps_of(j, p->rank_of[s]);
        gw_ps_next_push_numbers(host, joiner, numbers);
        gw_ps_begin_at(ps_of(j, joiner), s, numbers, gw_ps_has_weights(host) ? gw_ps_space_weights(host) : NULL);
    }
    at_rank(j, joiner)->first = gw_placement_first_step(p) + gw_placement_slowest_clock(p);
    gw_step_engine_begin_at(at_rank(j, joiner)->step_engine, at_rank(j, joiner)->first);
    free(numbers);
    return GW_OK;
}

static gw_status transfer_state(job *j, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, 0));
    gw_status status = GW_OK;
    bool all_fresh = p->all_fresh;
    for (int s = 0; s < p->servers && !status && !j->loss; s++) status = place_state(j, s, error);
    for (int r = 0; r < j->base.world && !j->loss; r++) gw_ps_admit(ps_of(j, r));
    for (int r = 0; r < j->base.world && !status && !all_fresh && !interrupted(j) && !j->loss; r++)
        if (at_rank(j, r)->fresh && gw_ps_sim_works(at_rank(j, r))) status = bring_up_to_date(j, r, error);
    for (int r = 0; r < j->base.world && !status && !j->loss; r++) status = gw_ps_transfer_done(ps_of(j, r), error);
    return status;
}

gw_status gw_ps_sim_regroup(job *j, gw_error *error) {
    j->regrouping = true;
    j->interrupt_after = j->generation && gw_rng_below(&j->rng, 2) ? (int)gw_rng_below(&j->rng, 20) : -1;
    gw_status status = connect_all(j, error);
    if (!status && !j->loss) status = transfer_state(j, error);
    j->regrouping = false;
    if (status || j->loss) return status;
    gw_ps_sim_check_lives(j);
    for (int r = 0; r < j->base.world; r++) {
        gw_step_engine_resume(at_rank(j, r)->step_engine);
        gw_ps_sim_continue(at_rank(j, r));
    }
    return GW_OK;
}

/* Which process to kill. */

static int living(const job *j, bool working) {
    int count = 0;
    for (int s = 0; s < gw_ps_sim_members(j->spec); s++)
        count += j->members[s].lives && gw_ps_sim_works(&j->members[s]) == working;
    return count;
}

/* The process has state that no other has. During regrouping its replica may not have received it yet. */
static bool irreplaceable(const job *j, const process *p) {
    gw_ps_member mine = describe(p);
    bool copies = gw_strategy_integer(&j->spec->strategy, GW_AXIS_ARCH, "replicas") > 0;
    return (mine.serves >= 0 || mine.copies >= 0) && (!copies || j->regrouping);
}

static bool dispensable(const job *j, const process *p) {
    int servers = (int)gw_strategy_integer(&j->spec->strategy, GW_AXIS_ARCH, "servers");
    bool comes = j->spec->back || !gw_ps_sim_works(p);
    if (!p->lives || irreplaceable(j, p)) return false;
    return comes || living(j, true) > (servers > 2 && !j->spec->apart ? servers : 2);
}

void gw_ps_sim_kill_one(job *j) {
    gw_error error = {.rank = -1};
    int rank = (int)gw_rng_below(&j->rng, (uint64_t)j->base.world);
    process *p = at_rank(j, rank);
    bool works = gw_ps_sim_works(p);
    j->kill_after = 1 + (int)gw_rng_below(&j->rng, 300);
    if (j->loss || j->outcome->killed >= j->spec->losses || !dispensable(j, p)) return;
    j->loss = true;
    j->outcome->killed++;
    gw_sim_kill(j->base.net, rank);
    gw_ps_sim_kill_process(p);
    if (j->spec->back || !works) {
        j->generation++; /* it belongs to the next generation */
        if (gw_ps_sim_start_process(j, j->member_of[rank], &error)) gw_ps_sim_broken(j, "%s", error.text);
        j->generation--;
    }
}
