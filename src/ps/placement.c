/* placement.c - see placement.h. A server stays on the rank that has its state. If that rank was lost, the server moves
 * to a rank that runs none, and gets its state from the replica. The replica of a server is on the rank of the next
 * server. */
#include "ps/placement.h"

#include <stdlib.h>
#include <string.h>

#include "ps/shards.h"

static gw_status take_memory(gw_placement *p, gw_error *error) {
    size_t world = (size_t)p->world, servers = (size_t)p->servers;
    p->members = calloc(world, sizeof *p->members);
    p->rank_of = calloc(servers, sizeof *p->rank_of);
    p->replica_of = calloc(servers, sizeof *p->replica_of);
    p->source = calloc(servers, sizeof *p->source);
    if (p->members && p->rank_of && p->replica_of && p->source) return GW_OK;
    gw_placement_close(p);
    return gw_fail(error, GW_MEMORY, "out of memory for %zu servers", servers);
}

static int lookup(const int *list, int count, int value) {
    for (int i = 0; i < count; i++)
        if (list[i] == value) return i;
    return -1;
}

int gw_placement_server(const gw_placement *p, int rank) { return lookup(p->rank_of, p->servers, rank); }
int gw_placement_replica(const gw_placement *p, int rank) { return lookup(p->replica_of, p->servers, rank); }

int gw_placement_workers(const gw_placement *p) {
    int count = 0;
    for (int r = 0; r < p->world; r++) count += !p->members[r].serves_only;
    return count;
}

static bool goes_on(const gw_ps_member *who) { return !who->fresh && !who->serves_only && !who->leaves; }

uint64_t gw_placement_slowest_clock(const gw_placement *p) {
    uint64_t slowest = UINT64_MAX, most = 0;
    for (int r = 0; r < p->world; r++) {
        if (goes_on(&p->members[r]) && p->members[r].pushes < slowest) slowest = p->members[r].pushes;
        if (p->members[r].pushes > most) most = p->members[r].pushes;
    }
    return slowest == UINT64_MAX ? most : slowest;
}

uint64_t gw_placement_first_step(const gw_placement *p) {
    for (int r = 0; r < p->world; r++)
        if (!p->members[r].fresh && !p->members[r].serves_only) return p->members[r].first_step;
    return 0;
}

static bool any_only(const gw_placement *p) { return gw_placement_workers(p) < p->world; }

/* Where each server starts: spread over all ranks, or over those that only serve. */
static int home_of(const gw_placement *p, int server) {
    if (!any_only(p)) return gw_server_rank(server, p->servers, p->world);
    for (int r = 0, seen = 0; r < p->world; r++)
        if (p->members[r].serves_only && seen++ == server) return r;
    return -1;
}

static void find_sources(gw_placement *p) {
    for (int s = 0; s < p->servers; s++) {
        p->source[s] = p->rank_of[s] = -1;
        for (int r = 0; r < p->world; r++)
            if (p->members[r].serves == s) p->source[s] = p->rank_of[s] = r;
        for (int r = 0; r < p->world && p->source[s] < 0; r++)
            if (p->members[r].copies == s) p->source[s] = r;
    }
}

static bool may_serve(const gw_placement *p, int rank) {
    return rank >= 0 && gw_placement_server(p, rank) < 0 && (!any_only(p) || p->members[rank].serves_only);
}

/* Its first rank, else one that has just started, else any that runs no server. */
static int find_rank(const gw_placement *p, int server) {
    int home = home_of(p, server);
    if (may_serve(p, home)) return home;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < p->world; r++)
            if (may_serve(p, r) && (pass || p->members[r].fresh)) return r;
    return -1;
}

static gw_status place_servers(gw_placement *p, gw_error *error) {
    for (int s = 0; s < p->servers; s++) {
        if (p->rank_of[s] >= 0) continue;
        p->rank_of[s] = find_rank(p, s);
        if (p->rank_of[s] >= 0) continue;
        if (any_only(p))
            return gw_fail(error, GW_UNSUPPORTED,
                           "there is no process left for server %d: --restarts N starts a server that is lost again, "
                           "and arch=ps:replicas=1 or snapshot=N keeps what it knew",
                           s);
        return gw_fail(error, GW_UNSUPPORTED,
                       "%d servers run beside as many workers, and only %d are left: start fewer servers, or let "
                       "--restarts N start workers again",
                       p->servers, p->world);
    }
    return GW_OK;
}

static void place_copies(gw_placement *p, int replicas) {
    for (int s = 0; s < p->servers; s++) {
        p->replica_of[s] = -1;
        if (!replicas || p->world < 2) continue;
        p->replica_of[s] = p->servers > 1 ? p->rank_of[(s + 1) % p->servers] : (p->rank_of[s] + 1) % p->world;
    }
}

gw_status gw_placement_open(gw_placement *p, const gw_ps_member *members, int world, int servers, int replicas,
                            gw_error *error) {
    *p = (gw_placement){.world = world, .servers = servers, .all_fresh = true};
    gw_status status = take_memory(p, error);
    if (status) return status;
    memcpy(p->members, members, (size_t)world * sizeof *members);
    for (int r = 0; r < world; r++) p->all_fresh = p->all_fresh && p->members[r].fresh;
    find_sources(p);
    status = place_servers(p, error);
    if (status) gw_placement_close(p);
    else place_copies(p, replicas);
    return status;
}

void gw_placement_close(gw_placement *p) {
    free(p->members);
    free(p->rank_of);
    free(p->replica_of);
    free(p->source);
    *p = (gw_placement){0};
}

uint32_t gw_ps_serial(const gw_ps_member *members, int world) {
    uint32_t most = 0;
    for (int r = 0; r < world; r++) {
        if (!members[r].fresh) return members[r].serial;
        if (members[r].serial > most) most = members[r].serial;
    }
    return most;
}
