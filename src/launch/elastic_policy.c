/* elastic_policy.c - see elastic_policy.h. */
#include "launch/elastic_policy.h"

#include "base/port.h"
#include "launch/silence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_time backoff_first = 100 * GW_MILLISECOND;
static const gw_time backoff_most = 30 * GW_SECOND;
enum { UP_ENOUGH = 10 }; /* after a run of this many back-offs, a rank's next back-off is backoff_first */

gw_status gw_elastic_open(gw_elastic *e, const gw_elastic_options *options, gw_error *error) {
    int world = gw_hosts_world(options->hosts);
    *e = (gw_elastic){.options = *options, .restarts = options->restarts, .workers = gw_hosts_workers(options->hosts)};
    if (world > GW_ROSTER_MEMBERS_MAX)
        return gw_fail(error, GW_INVALID, "--elastic and --restarts are for jobs of up to %d ranks",
                       GW_ROSTER_MEMBERS_MAX);
    e->members = calloc((size_t)world, sizeof *e->members);
    if (!e->members) return gw_fail(error, GW_MEMORY, "there is no memory for a job of %d ranks", world);
    e->roster = (gw_roster){.world = world, .workers = e->workers, .port = options->port};
    snprintf(e->roster.address, sizeof e->roster.address, "%s", options->address);
    for (int r = 0; r < world; r++) e->roster.members[r] = r;
    return GW_OK;
}

void gw_elastic_close(gw_elastic *e) { free(e->members); }

/* The port that rank 0 of the next generation binds a moment later. Each generation has its own port, because ranks of
 * the previous one may still listen on theirs. The launcher cannot test ports of other hosts: if the port is taken,
 * rank 0 retries until the previous generation frees it. */
static int next_port(const gw_elastic *e) {
    const gw_elastic_options *o = &e->options;
    if (gw_hosts_all_local(o->hosts)) {
        unsigned seed = (unsigned)getpid() * 31 + 2 * (unsigned)e->roster.generation;
        int port = o->port_low ? gw_port_find_in(o->port_low, o->port_high, 2 * (unsigned)e->roster.generation)
                               : gw_port_find(seed);
        return port ? port : o->port;
    }
    if (!o->port_low) return o->port + 2 * (e->roster.generation % 16);
    int first = o->port_low < o->port_high ? o->port_low + 1 : o->port_low; /* the lowest belongs to the program */
    return first + (o->port - o->port_low + 2 * (e->roster.generation % 10000)) % (o->port_high - first + 1);
}

static const gw_host *host_of(const gw_elastic *e, int member) {
    const gw_hosts *hosts = e->options.hosts;
    for (int i = 0; i < hosts->count; i++) {
        const gw_host *host = &hosts->list[i];
        if (member >= host->first_rank && member < host->first_rank + host->ranks) return host;
    }
    return &hosts->list[0];
}

/* Sets the rendezvous address to the one at which peers last reached this member or, if that is unknown, to the name of
 * its host. */
static void move_rendezvous(gw_elastic *e, int member) {
    const char *name = host_of(e, member)->name, *login = strchr(name, '@');
    const char *met = e->members[member].address;
    e->by_name = !met[0];
    snprintf(e->roster.address, sizeof e->roster.address, "%s", met[0] ? met : login ? login + 1 : name);
}

/* Writes the roster of the next generation. If rank 0 is now a member of another host, the rendezvous moves there. */
static void begin_generation(gw_elastic *e) {
    int first = e->roster.members[0], all = gw_hosts_world(e->options.hosts);
    e->roster.generation++;
    e->asked_since = 0;
    e->roster.world = 0;
    for (int member = 0; member < all; member++)
        if (!e->members[member].gone) e->roster.members[e->roster.world++] = member;
    if (host_of(e, e->roster.members[0]) != host_of(e, first)) move_rendezvous(e, e->roster.members[0]);
    e->roster.port = next_port(e);
}

gw_elastic_fate gw_elastic_ended(gw_elastic *e, int member, bool well) {
    bool *gone = &e->members[member].gone;
    if (*gone) return GW_ELASTIC_FINISHED; /* its host was lost earlier */
    e->finishing |= well && member < e->workers;
    *gone = e->finishing || e->restarts == 0;
    if (well) return GW_ELASTIC_FINISHED;
    if (gw_elastic_over(e)) return GW_ELASTIC_NOBODY;
    if (*gone && member >= e->workers) return GW_ELASTIC_UNSERVED;
    if (!*gone) e->restarts--;
    begin_generation(e);
    return *gone ? GW_ELASTIC_WITHOUT : GW_ELASTIC_RESTART;
}

gw_elastic_fate gw_elastic_host_lost(gw_elastic *e, const gw_host *host) {
    int lost = 0;
    for (int member = host->first_rank; member < host->first_rank + host->ranks; member++) {
        lost += !e->members[member].gone;
        e->members[member].gone = true;
    }
    if (lost == 0) return GW_ELASTIC_FINISHED;
    if (gw_elastic_over(e)) return GW_ELASTIC_NOBODY;
    if (host->serves) return GW_ELASTIC_UNSERVED;
    begin_generation(e);
    return GW_ELASTIC_WITHOUT;
}

gw_time gw_elastic_backoff(gw_elastic *e, int member, gw_time up) {
    gw_time *backoff = &e->members[member].backoff, most = e->options.deadline / 2;
    if (most > backoff_most) most = backoff_most;
    *backoff = up >= UP_ENOUGH * *backoff ? backoff_first : 2 * *backoff;
    if (*backoff > most) *backoff = most;
    return *backoff;
}

bool gw_elastic_set_address(gw_elastic *e, int member, const char *address, size_t bytes) {
    snprintf(e->members[member].address, sizeof e->members[member].address, "%.*s", (int)bytes, address);
    if (!e->by_name || member != e->roster.members[0]) return false;
    move_rendezvous(e, member);
    begin_generation(e);
    return true;
}

void gw_elastic_wants_generation(gw_elastic *e, int member, int generation, int blamed) {
    e->members[member].asks = generation;
    e->members[member].blames = blamed;
}

static bool asks(const gw_elastic *e, int member) { return e->members[member].asks > e->roster.generation; }

/* The number of the other host that the ranks of a host blame; -1: none. A machine is listed once for its workers and
 * once for its servers: no network lies between these two entries, so blame between them is for a process and does not
 * count. */
static int accused_by(const gw_elastic *e, int host) {
    const gw_hosts *hosts = e->options.hosts;
    for (int r = 0; r < e->roster.world; r++) {
        int member = e->roster.members[r], blamed = e->members[member].blames;
        if (host_of(e, member) != &hosts->list[host] || blamed < 0 || blamed >= e->roster.world) continue;
        const gw_host *other = host_of(e, e->roster.members[blamed]);
        if (strcmp(other->name, hosts->list[host].name) != 0) return (int)(other - hosts->list);
    }
    return -1;
}

/* A host that is cut off is blamed by the others and blames one of them. Returns the one that most hosts blame; of
 * several with equal blame, the one with the highest ranks. -1: no host is blamed and blames another. */
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

/* Counts the members of this generation that wait for the next one, and those that do not; finished members do not
 * count. *late: a member that does not wait and is not condemned yet; -1: none. */
static void count_asking(const gw_elastic *e, int *asking, int *missing, int *late) {
    *asking = *missing = 0;
    *late = -1;
    for (int r = 0; r < e->roster.world; r++) {
        int member = e->roster.members[r];
        if (e->members[member].gone) continue;
        *asking += asks(e, member);
        *missing += !asks(e, member);
        if (!asks(e, member) && e->members[member].condemned != e->roster.generation + 1) *late = member;
    }
}

gw_elastic_answer gw_elastic_answer_all(gw_elastic *e, gw_time now, int *which) {
    int asking, missing;
    count_asking(e, &asking, &missing, which);
    if (asking == 0) return GW_ELASTIC_NOTHING;
    if (!e->asked_since) e->asked_since = now;
    if (missing > 0) {
        if (*which < 0 || now < e->asked_since + gw_silence_limit(e->options.deadline)) return GW_ELASTIC_NOTHING;
        e->members[*which].condemned = e->roster.generation + 1;
        return GW_ELASTIC_LATE;
    }
    *which = cut_off(e);
    if (*which >= 0) return GW_ELASTIC_CUT;
    begin_generation(e);
    return GW_ELASTIC_REGROUPED;
}

bool gw_elastic_over(const gw_elastic *e) {
    for (int member = 0; member < e->workers; member++)
        if (!e->members[member].gone) return false;
    return true;
}
