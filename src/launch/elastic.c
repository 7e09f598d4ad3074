/* elastic.c - see elastic.h. */
#include "launch/elastic.h"

#include "base/port.h"
#include "launch/silence.h"

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
    e->by_name = !met[0];
    snprintf(e->roll.address, sizeof e->roll.address, "%s", met[0] ? met : login ? login + 1 : name);
}

/* Rank 0 may have moved to another host: it is met where its seat is. */
static void call(gw_elastic *e) {
    int first = e->roll.seats[0], all = gw_hosts_world(e->options.hosts);
    e->roll.round++;
    e->asked_since = 0;
    e->roll.world = 0;
    for (int seat = 0; seat < all; seat++)
        if (!e->seats[seat].gone) e->roll.seats[e->roll.world++] = seat;
    if (host_of(e, e->roll.seats[0]) != host_of(e, first)) move_meeting(e, e->roll.seats[0]);
    e->roll.port = next_port(e);
}

gw_elastic_fate gw_elastic_ended(gw_elastic *e, int seat, bool well) {
    bool *gone = &e->seats[seat].gone;
    if (*gone) return GW_ELASTIC_FINISHED; /* its host was lost before */
    e->finishing |= well && seat < e->workers;
    *gone = e->finishing || e->restarts == 0;
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

bool gw_elastic_met(gw_elastic *e, int seat, const char *address, size_t bytes) {
    snprintf(e->seats[seat].address, sizeof e->seats[seat].address, "%.*s", (int)bytes, address);
    if (!e->by_name || seat != e->roll.seats[0]) return false;
    move_meeting(e, seat);
    call(e);
    return true;
}

void gw_elastic_asked(gw_elastic *e, int seat, int round, int blamed) {
    e->seats[seat].asks = round;
    e->seats[seat].blames = blamed;
}

static bool asks(const gw_elastic *e, int seat) { return e->seats[seat].asks > e->roll.round; }

/* The host that the ranks of a host have lost, as its number; -1: none but their own. */
static int accused_by(const gw_elastic *e, int host) {
    const gw_hosts *hosts = e->options.hosts;
    for (int r = 0; r < e->roll.world; r++) {
        int seat = e->roll.seats[r], blamed = e->seats[seat].blames;
        if (host_of(e, seat) != &hosts->list[host] || blamed < 0 || blamed >= e->roll.world) continue;
        int other = (int)(host_of(e, e->roll.seats[blamed]) - hosts->list);
        if (other != host) return other;
    }
    return -1;
}

/* Where one host is cut off, the others say that they lost it, and it says that it lost one of them. Of two such hosts
 * that of the lower ranks stays. -1: no two hosts accuse each other. */
static int cut_off(const gw_elastic *e) {
    int count = e->options.hosts->count, worst = -1, most = 0;
    for (int host = 0; host < count; host++) {
        int accusers = 0;
        for (int other = 0; other < count; other++) accusers += accused_by(e, other) == host;
        if (accused_by(e, host) < 0 || accusers == 0 || accusers < most) continue;
        most = accusers;
        worst = host;
    }
    return worst;
}

/* How many of this round ask for the next, and how many do not; those that have ended well since do not count. *late is
 * one that was not condemned yet; -1: none. */
static void count_asking(const gw_elastic *e, int *asking, int *missing, int *late) {
    *asking = *missing = 0;
    *late = -1;
    for (int r = 0; r < e->roll.world; r++) {
        int seat = e->roll.seats[r];
        if (e->seats[seat].gone) continue;
        *asking += asks(e, seat);
        *missing += !asks(e, seat);
        if (!asks(e, seat) && e->seats[seat].condemned != e->roll.round + 1) *late = seat;
    }
}

gw_elastic_answer gw_elastic_answer_all(gw_elastic *e, gw_time now, int *which) {
    int asking, missing;
    count_asking(e, &asking, &missing, which);
    if (asking == 0) return GW_ELASTIC_NOTHING;
    if (!e->asked_since) e->asked_since = now;
    if (missing > 0) {
        if (*which < 0 || now < e->asked_since + gw_silence_limit(e->options.deadline)) return GW_ELASTIC_NOTHING;
        e->seats[*which].condemned = e->roll.round + 1;
        return GW_ELASTIC_LATE;
    }
    *which = cut_off(e);
    if (*which >= 0) return GW_ELASTIC_CUT;
    call(e);
    return GW_ELASTIC_CALLED;
}

bool gw_elastic_over(const gw_elastic *e) {
    for (int seat = 0; seat < e->workers; seat++)
        if (!e->seats[seat].gone) return false;
    return true;
}
