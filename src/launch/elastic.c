/* elastic.c - see elastic.h. */
#include "launch/elastic.h"

#include "base/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gw_status gw_elastic_open(gw_elastic *e, const gw_hosts *hosts, int restarts, const char *address, int port,
                          gw_error *error) {
    int world = gw_hosts_world(hosts);
    *e = (gw_elastic){.hosts = hosts, .restarts = restarts, .workers = gw_hosts_workers(hosts),
                       .base_port = port};
    if (world > GW_ROLL_SEATS_MAX)
        return gw_fail(error, GW_INVALID, "--elastic and --restarts are for jobs of up to %d ranks", GW_ROLL_SEATS_MAX);
    e->gone = calloc((size_t)world, sizeof *e->gone);
    if (!e->gone) return gw_fail(error, GW_MEMORY, "there is no memory for a job of %d ranks", world);
    e->roll = (gw_roll){.world = world, .workers = e->workers, .port = port};
    snprintf(e->roll.address, sizeof e->roll.address, "%s", address);
    for (int r = 0; r < world; r++) e->roll.seats[r] = r;
    return GW_OK;
}

void gw_elastic_close(gw_elastic *e) { free(e->gone); }

/* Rank 0 takes it a moment later. Each round has its own, for ranks of the last may still listen. */
static int next_port(const gw_elastic *e) {
    if (!gw_hosts_all_local(e->hosts)) return e->base_port + 2 * (e->roll.round % 16);
    int port = gw_port_find((unsigned)getpid() * 31 + 2 * (unsigned)e->roll.round);
    return port ? port : e->base_port;
}

static const gw_host *host_of(const gw_elastic *e, int seat) {
    for (int i = 0; i < e->hosts->count; i++) {
        const gw_host *host = &e->hosts->list[i];
        if (seat >= host->first_rank && seat < host->first_rank + host->ranks) return host;
    }
    return &e->hosts->list[0];
}

/* Rank 0 may have moved to another host: it is met where its seat is. */
static void call(gw_elastic *e) {
    int first = e->roll.seats[0], all = gw_hosts_world(e->hosts);
    e->roll.round++;
    e->roll.world = 0;
    for (int seat = 0; seat < all; seat++)
        if (!e->gone[seat]) e->roll.seats[e->roll.world++] = seat;
    const gw_host *host = host_of(e, e->roll.seats[0]);
    if (host != host_of(e, first)) {
        const char *login = strchr(host->name, '@');
        snprintf(e->roll.address, sizeof e->roll.address, "%s", login ? login + 1 : host->name);
    }
    e->roll.port = next_port(e);
}

gw_elastic_fate gw_elastic_ended(gw_elastic *e, int seat, bool well) {
    e->gone[seat] = well || e->restarts == 0;
    if (well) return GW_ELASTIC_FINISHED;
    if (gw_elastic_over(e)) return GW_ELASTIC_NOBODY;
    if (e->gone[seat] && seat >= e->workers) return GW_ELASTIC_UNSERVED;
    if (!e->gone[seat]) e->restarts--;
    call(e);
    return e->gone[seat] ? GW_ELASTIC_WITHOUT : GW_ELASTIC_AGAIN;
}

bool gw_elastic_over(const gw_elastic *e) {
    for (int seat = 0; seat < e->workers; seat++)
        if (!e->gone[seat]) return false;
    return true;
}
