/* elastic.c - see elastic.h. */
#include "launch/elastic.h"

#include "base/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_time backoff_first = 100 * GW_MILLISECOND;
static const gw_time backoff_most = 30 * GW_SECOND;
enum { UP_ENOUGH = 10 }; /* a rank that was up for so many times its wait begins at the first again */

gw_status gw_elastic_open(gw_elastic *e, const gw_elastic_options *options, gw_error *error) {
    int world = gw_hosts_world(options->hosts);
    *e = (gw_elastic){.options = *options, .restarts = options->restarts, .workers = gw_hosts_workers(options->hosts)};
    if (world > GW_ROLL_SEATS_MAX)
        return gw_fail(error, GW_INVALID, "--elastic and --restarts are for jobs of up to %d ranks", GW_ROLL_SEATS_MAX);
    e->seats = calloc((size_t)world, sizeof *e->seats);
    if (!e->seats) return gw_fail(error, GW_MEMORY, "there is no memory for a job of %d ranks", world);
    e->roll = (gw_roll){.world = world, .workers = e->workers, .port = options->port};
    snprintf(e->roll.address, sizeof e->roll.address, "%s", options->address);
    for (int r = 0; r < world; r++) e->roll.seats[r] = r;
    return GW_OK;
}

void gw_elastic_close(gw_elastic *e) { free(e->seats); }

/* Rank 0 takes it a moment later. Each round has its own, for ranks of the last may still listen. On other hosts no one
 * can say what is free: if the port is taken, rank 0 tries until those of the last round have left it. */
static int next_port(const gw_elastic *e) {
    const gw_elastic_options *o = &e->options;
    if (gw_hosts_all_local(o->hosts)) {
        unsigned seed = (unsigned)getpid() * 31 + 2 * (unsigned)e->roll.round;
        int port = o->port_low ? gw_port_find_in(o->port_low, o->port_high, 2 * (unsigned)e->roll.round)
                               : gw_port_find(seed);
        return port ? port : o->port;
    }
    if (!o->port_low) return o->port + 2 * (e->roll.round % 16);
    int first = o->port_low < o->port_high ? o->port_low + 1 : o->port_low; /* the lowest is the program's own */
    return first + (o->port - o->port_low + 2 * (e->roll.round % 10000)) % (o->port_high - first + 1);
}

static const gw_host *host_of(const gw_elastic *e, int seat) {
    const gw_hosts *hosts = e->options.hosts;
    for (int i = 0; i < hosts->count; i++) {
        const gw_host *host = &hosts->list[i];
        if (seat >= host->first_rank && seat < host->first_rank + host->ranks) return host;
    }
    return &hosts->list[0];
}

/* Where the others have met a rank they can meet it again. Otherwise its host's name has to do. */
static void move_meeting(gw_elastic *e, int seat) {
    const char *name = host_of(e, seat)->name, *login = strchr(name, '@');
    const char *met = e->seats[seat].address;
    snprintf(e->roll.address, sizeof e->roll.address, "%s", met[0] ? met : login ? login + 1 : name);
}

/* Rank 0 may have moved to another host: it is met where its seat is. */
static void call(gw_elastic *e) {
    int first = e->roll.seats[0], all = gw_hosts_world(e->options.hosts);
    e->roll.round++;
    e->roll.world = 0;
    for (int seat = 0; seat < all; seat++)
        if (!e->seats[seat].gone) e->roll.seats[e->roll.world++] = seat;
    if (host_of(e, e->roll.seats[0]) != host_of(e, first)) move_meeting(e, e->roll.seats[0]);
    e->roll.port = next_port(e);
}

gw_elastic_fate gw_elastic_ended(gw_elastic *e, int seat, bool well) {
    bool *gone = &e->seats[seat].gone;
    if (*gone) return GW_ELASTIC_FINISHED; /* its host was lost before */
    *gone = well || e->restarts == 0;
    if (well) return GW_ELASTIC_FINISHED;
    if (gw_elastic_over(e)) return GW_ELASTIC_NOBODY;
    if (*gone && seat >= e->workers) return GW_ELASTIC_UNSERVED;
    if (!*gone) e->restarts--;
    call(e);
    return *gone ? GW_ELASTIC_WITHOUT : GW_ELASTIC_AGAIN;
}

gw_elastic_fate gw_elastic_host_lost(gw_elastic *e, const gw_host *host) {
    int lost = 0;
    for (int seat = host->first_rank; seat < host->first_rank + host->ranks; seat++) {
        lost += !e->seats[seat].gone;
        e->seats[seat].gone = true;
    }
    if (lost == 0) return GW_ELASTIC_FINISHED;
    if (gw_elastic_over(e)) return GW_ELASTIC_NOBODY;
    if (host->serves) return GW_ELASTIC_UNSERVED;
    call(e);
    return GW_ELASTIC_WITHOUT;
}

gw_time gw_elastic_backoff(gw_elastic *e, int seat, gw_time up) {
    gw_time *backoff = &e->seats[seat].backoff, most = e->options.deadline / 2;
    if (most > backoff_most) most = backoff_most;
    *backoff = up >= UP_ENOUGH * *backoff ? backoff_first : 2 * *backoff;
    if (*backoff > most) *backoff = most;
    return *backoff;
}

void gw_elastic_met(gw_elastic *e, int seat, const char *address, size_t bytes) {
    snprintf(e->seats[seat].address, sizeof e->seats[seat].address, "%.*s", (int)bytes, address);
}

bool gw_elastic_over(const gw_elastic *e) {
    for (int seat = 0; seat < e->workers; seat++)
        if (!e->seats[seat].gone) return false;
    return true;
}
