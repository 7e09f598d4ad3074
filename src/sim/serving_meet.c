/* serving_meet.c - processes that come together, at the beginning and whenever one was lost, and who is lost. See
 * serving.h. The order is that of step_commit.c and step_servers.c; what is sent there is copied here. */
#include <stdlib.h>
#include <string.h>

#include "sim/serving_internal.h"

typedef gw_serving_job job;
typedef gw_serving_process process;

static process *at_rank(job *j, int rank) { return &j->seats[j->seat_of[rank]]; }
static gw_ps *ps_of(job *j, int rank) { return gw_stepper_servers(at_rank(j, rank)->stepper); }

static gw_attendant attend(const process *p) {
    gw_attendant mine = {.seat = p->seat, .life = p->born, .serves = -1, .copies = -1, .fresh = p->stepper == NULL,
                         .only = !gw_serving_works(p)};
    if (p->stepper) gw_ps_attend(gw_stepper_servers(p->stepper), &mine);
    return mine;
}

/* Somebody else is lost in the middle of the meeting. */
static bool interrupted(job *j) {
    if (j->budget < 0 || j->budget-- > 0) return false;
    gw_serving_strike(j);
    return j->dying;
}

static gw_status sit_down(job *j, gw_error *error) {
    gw_attendant who[GW_SERVING_SEATS_MAX];
    gw_status status = GW_OK;
    for (int r = 0; r < j->world && !status; r++) {
        process *p = at_rank(j, r);
        gw_serving_disconnect(p);
        if (p->fresh) { /* its commit failed in a meeting that was interrupted */
            gw_stepper_close(p->stepper);
            p->stepper = NULL;
        }
        if (p->stepper) status = gw_stepper_part(p->stepper, error);
        if (!status) status = gw_serving_connect(p, r, error);
    }
    for (int r = 0; r < j->world; r++) who[r] = attend(at_rank(j, r));
    for (int r = 0; r < j->world && !status && !interrupted(j); r++) {
        process *p = at_rank(j, r);
        gw_stepper_config config = {.core = p->core, .team = p->team, .attendants = who};
        if (p->stepper) status = gw_stepper_rejoin(p->stepper, &config, error);
        else status = gw_serving_commit(p, who, error);
    }
    return status;
}

static gw_status pass_state(job *j, int server, int from, int to, gw_error *error) {
    const void *bytes;
    size_t count;
    if (to < 0) return GW_OK;
    gw_status status = gw_ps_known(ps_of(j, from), server, &bytes, &count, error);
    if (status) return status;
    void *copy = malloc(count);
    if (!copy) return gw_fail(error, GW_MEMORY, "out of memory for a server's state");
    memcpy(copy, bytes, count);
    status = gw_ps_take(ps_of(j, to), server, copy, count, error);
    free(copy);
    return status;
}

/* To the rank that runs it, and from there to its replica. */
static gw_status place_state(job *j, int server, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, 0));
    int to = p->rank_of[server], source = p->source[server];
    gw_status status = GW_OK;
    if (source >= 0) status = pass_state(j, server, source, to, error);
    else if (!p->all_fresh) return gw_fail(error, GW_PEER_LOST, "server %d is lost with what it knew", server);
    else gw_ps_fresh(ps_of(j, to)); /* all weights are 0 */
    if (interrupted(j)) return status;
    return status ? status : pass_state(j, server, to, p->copy_of[server], error);
}

/* A worker that came anew gets the numbers of its pushes and the weights of one server. */
static gw_status welcome(job *j, int guest, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, guest));
    uint64_t *numbers = calloc((size_t)gw_ps_parcels(ps_of(j, guest)) + 1, sizeof *numbers);
    if (!numbers) return gw_fail(error, GW_MEMORY, "out of memory for the numbers of parcels");
    for (int s = 0; s < p->servers; s++) {
        gw_ps *host = ps_of(j, p->rank_of[s]);
        gw_ps_numbers(host, guest, numbers);
        gw_ps_begin_at(ps_of(j, guest), s, numbers, gw_ps_has_weights(host) ? gw_ps_space_weights(host) : NULL);
    }
    at_rank(j, guest)->first = gw_placement_first_step(p) + gw_placement_floor(p);
    gw_stepper_begin_at(at_rank(j, guest)->stepper, at_rank(j, guest)->first);
    free(numbers);
    return GW_OK;
}

static gw_status hand_over(job *j, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps_of(j, 0));
    gw_status status = GW_OK;
    bool all_fresh = p->all_fresh;
    for (int s = 0; s < p->servers && !status && !j->dying; s++) status = place_state(j, s, error);
    for (int r = 0; r < j->world && !j->dying; r++) gw_ps_admit(ps_of(j, r));
    for (int r = 0; r < j->world && !status && !all_fresh && !interrupted(j) && !j->dying; r++)
        if (at_rank(j, r)->fresh && gw_serving_works(at_rank(j, r))) status = welcome(j, r, error);
    for (int r = 0; r < j->world && !status && !j->dying; r++) status = gw_ps_settle(ps_of(j, r), error);
    return status;
}

gw_status gw_serving_meet(job *j, gw_error *error) {
    j->meeting = true;
    j->budget = j->round && gw_rng_below(&j->rng, 2) ? (int)gw_rng_below(&j->rng, 20) : -1;
    gw_status status = sit_down(j, error);
    if (!status && !j->dying) status = hand_over(j, error);
    j->meeting = false;
    if (status || j->dying) return status;
    gw_serving_check_lives(j);
    for (int r = 0; r < j->world; r++) {
        gw_stepper_resume(at_rank(j, r)->stepper);
        gw_serving_carry_on(at_rank(j, r));
    }
    return GW_OK;
}

/* Who is lost. */

static int living(const job *j, bool working) {
    int count = 0;
    for (int s = 0; s < gw_serving_seats(j->serving); s++)
        count += j->seats[s].lives && gw_serving_works(&j->seats[s]) == working;
    return count;
}

/* It knows what nobody else does. While they come together a replica may not have been given it yet. */
static bool irreplaceable(const job *j, const process *p) {
    gw_attendant mine = attend(p);
    bool copies = gw_strategy_integer(&j->serving->strategy, GW_AXIS_ARCH, "replicas") > 0;
    return (mine.serves >= 0 || mine.copies >= 0) && (!copies || j->meeting);
}

static bool dispensable(const job *j, const process *p) {
    int servers = (int)gw_strategy_integer(&j->serving->strategy, GW_AXIS_ARCH, "servers");
    bool comes = j->serving->back || !gw_serving_works(p);
    if (!p->lives || irreplaceable(j, p)) return false;
    return comes || living(j, true) > (servers > 2 && !j->serving->apart ? servers : 2);
}

void gw_serving_strike(job *j) {
    gw_error error = {.rank = -1};
    int rank = (int)gw_rng_below(&j->rng, (uint64_t)j->world);
    process *p = at_rank(j, rank);
    bool works = gw_serving_works(p);
    j->patience = 1 + (int)gw_rng_below(&j->rng, 300);
    if (j->dying || j->outcome->killed >= j->serving->losses || !dispensable(j, p)) return;
    j->dying = true;
    j->outcome->killed++;
    gw_sim_kill(j->net, rank);
    gw_serving_kill_process(p);
    if (j->serving->back || !works) {
        j->round++; /* it is born in the next */
        if (gw_serving_start_process(j, j->seat_of[rank], &error)) gw_serving_broken(j, "%s", error.text);
        j->round--;
    }
}
