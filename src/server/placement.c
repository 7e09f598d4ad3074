/* placement.c - see placement.h. A server stays where its state is; one whose rank was lost goes to a rank that runs
 * none, which gets the state from the replica. The replica of a server stands beside the next server. */
#include "server/placement.h"

#include <stdlib.h>
#include <string.h>

#include "server/shares.h"

static gw_status take_memory(gw_placement *p, gw_error *error) {
    size_t world = (size_t)p->world, servers = (size_t)p->servers;
    p->who = calloc(world, sizeof *p->who);
    p->rank_of = calloc(servers, sizeof *p->rank_of);
    p->copy_of = calloc(servers, sizeof *p->copy_of);
    p->source = calloc(servers, sizeof *p->source);
    if (p->who && p->rank_of && p->copy_of && p->source) return GW_OK;
    gw_placement_close(p);
    return gw_fail(error, GW_MEMORY, "out of memory for %zu servers", servers);
}

static int lookup(const int *list, int count, int value) {
    for (int i = 0; i < count; i++)
        if (list[i] == value) return i;
    return -1;
}

int gw_placement_server(const gw_placement *p, int rank) { return lookup(p->rank_of, p->servers, rank); }
int gw_placement_copy(const gw_placement *p, int rank) { return lookup(p->copy_of, p->servers, rank); }

int gw_placement_workers(const gw_placement *p) {
    int count = 0;
    for (int r = 0; r < p->world; r++) count += !p->who[r].only;
    return count;
}

static bool goes_on(const gw_attendant *who) { return !who->fresh && !who->only && !who->leaves; }

uint64_t gw_placement_floor(const gw_placement *p) {
    uint64_t slowest = UINT64_MAX, most = 0;
    for (int r = 0; r < p->world; r++) {
        if (goes_on(&p->who[r]) && p->who[r].pushes < slowest) slowest = p->who[r].pushes;
        if (p->who[r].pushes > most) most = p->who[r].pushes;
    }
    return slowest == UINT64_MAX ? most : slowest;
}

uint64_t gw_placement_first_step(const gw_placement *p) {
    for (int r = 0; r < p->world; r++)
        if (!p->who[r].fresh && !p->who[r].only) return p->who[r].first_step;
    return 0;
}

static bool any_only(const gw_placement *p) { return gw_placement_workers(p) < p->world; }

/* Where every server begins: spread over the ranks, or over those that do nothing else. */
static int home_of(const gw_placement *p, int server) {
    if (!any_only(p)) return gw_server_rank(server, p->servers, p->world);
    for (int r = 0, seen = 0; r < p->world; r++)
        if (p->who[r].only && seen++ == server) return r;
    return -1;
}

static void find_sources(gw_placement *p) {
    for (int s = 0; s < p->servers; s++) {
        p->source[s] = p->rank_of[s] = -1;
        for (int r = 0; r < p->world; r++)
            if (p->who[r].serves == s) p->source[s] = p->rank_of[s] = r;
        for (int r = 0; r < p->world && p->source[s] < 0; r++)
            if (p->who[r].copies == s) p->source[s] = r;
    }
}

static bool may_serve(const gw_placement *p, int rank) {
    return rank >= 0 && gw_placement_server(p, rank) < 0 && (!any_only(p) || p->who[rank].only);
}

/* Its home, else one that was just started, else any that runs none. */
static int find_room(const gw_placement *p, int server) {
    int home = home_of(p, server);
    if (may_serve(p, home)) return home;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < p->world; r++)
            if (may_serve(p, r) && (pass || p->who[r].fresh)) return r;
    return -1;
}

static gw_status place_servers(gw_placement *p, gw_error *error) {
    for (int s = 0; s < p->servers; s++) {
        if (p->rank_of[s] >= 0) continue;
        p->rank_of[s] = find_room(p, s);
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
        p->copy_of[s] = -1;
        if (!replicas || p->world < 2) continue;
        p->copy_of[s] = p->servers > 1 ? p->rank_of[(s + 1) % p->servers] : (p->rank_of[s] + 1) % p->world;
    }
}

gw_status gw_placement_open(gw_placement *p, const gw_attendant *attendants, int world, int servers, int replicas,
                            gw_error *error) {
    *p = (gw_placement){.world = world, .servers = servers, .all_fresh = true};
    gw_status status = take_memory(p, error);
    if (status) return status;
    memcpy(p->who, attendants, (size_t)world * sizeof *attendants);
    for (int r = 0; r < world; r++) p->all_fresh = p->all_fresh && p->who[r].fresh;
    find_sources(p);
    status = place_servers(p, error);
    if (status) gw_placement_close(p);
    else place_copies(p, replicas);
    return status;
}

void gw_placement_close(gw_placement *p) {
    free(p->who);
    free(p->rank_of);
    free(p->copy_of);
    free(p->source);
    *p = (gw_placement){0};
}
