/* judge_figures.c - the rules about figures: bandwidth, latency, clocks, memory. A host is compared with the median of
 * the others. The bandwidth of a host, in each direction, is the best of its links, so that one slow host does not
 * spoil the figures of the rest. A pair is compared with the bandwidths of both its ends. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "doctor/judge_internal.h"

#define SLOW_SHARE 0.5       /* of the others' bandwidth: less is a finding */
#define SLOW_PAIR_SHARE 0.33 /* the same for a pair: a single measurement against the best of several */
#define SUSPECT_SHARE 0.6    /* less is measured again before it is judged */
#define STALLED 10e3         /* bytes per second: a connection with less is stalled */
#define LATENCY_FACTOR 10.0  /* a finding: more than this many times the latency of the others, */
#define LATENCY_MARGIN 1e-3  /* and more than the others by this many seconds */
#define SKEW_TOLERATED 0.1   /* seconds */

const char *gw_doctor_rate(double bytes_per_second, char text[GW_RATE_TEXT]) {
    double bits = bytes_per_second * 8;
    if (bits >= 9.995e9) snprintf(text, GW_RATE_TEXT, "%.1f Gbit/s", bits / 1e9);
    else if (bits >= 999.5e6) snprintf(text, GW_RATE_TEXT, "%.2f Gbit/s", bits / 1e9);
    else if (bits >= 9.95e6) snprintf(text, GW_RATE_TEXT, "%.0f Mbit/s", bits / 1e6);
    else snprintf(text, GW_RATE_TEXT, "%.2f Mbit/s", bits / 1e6);
    return text;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median without NANs and without the value at `except`; NAN if nothing is left. */
static double median_of_others(const double *values, int count, int except) {
    double sorted[GW_DOCTOR_HOSTS_MAX];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (i != except && !isnan(values[i])) sorted[used++] = values[i];
    if (!used) return NAN;
    qsort(sorted, (size_t)used, sizeof sorted[0], ascending);
    return sorted[used / 2];
}

/* ---- bandwidth ---- */

typedef struct abilities {
    double in[GW_DOCTOR_HOSTS_MAX], out[GW_DOCTOR_HOSTS_MAX]; /* bytes per second; NAN: not known */
} abilities;

static double better(double a, double b) { return isnan(a) || b > a ? b : a; }

static void find_abilities(const gw_doctor_report *r, abilities *can) {
    for (int i = 0; i < r->count; i++) can->in[i] = can->out[i] = NAN;
    for (int from = 0; from < r->count; from++) {
        for (int to = 0; to < r->count; to++) {
            if (!gw_link_fair(r, from, to)) continue;
            double bandwidth = gw_doctor_link_of(r, from, to)->bandwidth;
            can->out[from] = better(can->out[from], bandwidth);
            can->in[to] = better(can->in[to], bandwidth);
        }
    }
}

/* NAN < x is false: an unknown value is not slow. */
static bool lags(double value, double others) { return value < SLOW_SHARE * others; }

static void judge_host_speed(const gw_doctor_report *r, const abilities *can, int host, gw_findings *findings) {
    double others[2] = {median_of_others(can->in, r->count, host), median_of_others(can->out, r->count, host)};
    char own_text[GW_RATE_TEXT], others_text[GW_RATE_TEXT], more_text[GW_RATE_TEXT];
    bool slow[2] = {lags(can->in[host], others[0]) && can->in[host] > STALLED,
                    lags(can->out[host], others[1]) && can->out[host] > STALLED};
    if (gw_alive_count(r) == 2) slow[1] = false; /* one sends as slowly as the other receives: report it once */
    const char *name = r->hosts[host].name;
    if (slow[0] && slow[1])
        gw_find(findings, GW_FINDING_SLOW, host, -1,
                "host %s receives at %s and sends at %s, the others at %s: look at its cable or switch port", name,
                gw_doctor_rate(can->in[host], own_text), gw_doctor_rate(can->out[host], more_text),
                gw_doctor_rate(others[0], others_text));
    else if (slow[0] || slow[1])
        gw_find(findings, GW_FINDING_SLOW, host, -1,
                "host %s %s at %s, the others at %s: look at its cable or switch port", name,
                slow[0] ? "receives" : "sends", gw_doctor_rate(slow[0] ? can->in[host] : can->out[host], own_text),
                gw_doctor_rate(slow[0] ? others[0] : others[1], others_text));
}

static void judge_pair_speed(const gw_doctor_report *r, const abilities *can, int from, int to, gw_findings *findings) {
    char own[GW_RATE_TEXT], sends[GW_RATE_TEXT], receives[GW_RATE_TEXT];
    double bandwidth = gw_doctor_link_of(r, from, to)->bandwidth;
    if (bandwidth <= STALLED)
        gw_find(findings, GW_FINDING_STALL, to, from,
                "connections from host %s to host %s open but carry no data: packets above some size are likely to "
                "vanish on the way; look at the MTU of what lies between them",
                r->hosts[from].name, r->hosts[to].name);
    else if (bandwidth < SLOW_PAIR_SHARE * fmin(can->out[from], can->in[to]))
        gw_find(findings, GW_FINDING_SLOW, to, from,
                "from host %s to host %s data flows at %s, though %s sends at %s and %s receives at %s elsewhere: look "
                "at the route between them",
                r->hosts[from].name, r->hosts[to].name, gw_doctor_rate(bandwidth, own), r->hosts[from].name,
                gw_doctor_rate(can->out[from], sends), r->hosts[to].name, gw_doctor_rate(can->in[to], receives));
}

void gw_judge_bandwidth(const gw_doctor_report *r, gw_findings *findings) {
    abilities can;
    find_abilities(r, &can);
    for (int i = 0; i < r->count; i++) judge_host_speed(r, &can, i, findings);
    for (int from = 0; from < r->count; from++)
        for (int to = 0; to < r->count; to++)
            if (gw_link_fair(r, from, to)) judge_pair_speed(r, &can, from, to, findings);
}

static bool doubtful(const gw_doctor_report *r, int from, int to, const abilities *can) {
    double bandwidth = gw_doctor_link_of(r, from, to)->bandwidth;
    double usual = fmax(median_of_others(can->in, r->count, to), median_of_others(can->out, r->count, from));
    return gw_link_fair(r, from, to) && bandwidth < SUSPECT_SHARE * usual;
}

bool gw_doctor_link_suspect(const gw_doctor_report *r, int a, int b) {
    abilities can;
    find_abilities(r, &can);
    return doubtful(r, a, b, &can) || doubtful(r, b, a, &can);
}

/* ---- latency, clocks, memory ---- */

void gw_judge_latency(const gw_doctor_report *r, gw_findings *findings) {
    double best[GW_DOCTOR_HOSTS_MAX];
    for (int i = 0; i < r->count; i++) {
        best[i] = NAN;
        for (int j = 0; j < r->count; j++)
            if (i != j && gw_doctor_link_of(r, i, j)->measured)
                best[i] = fmin(best[i], gw_doctor_link_of(r, i, j)->latency_best);
    }
    for (int i = 0; i < r->count && gw_alive_count(r) > 2; i++) {
        double others = median_of_others(best, r->count, i);
        if (!(best[i] > LATENCY_FACTOR * others && best[i] > others + LATENCY_MARGIN)) continue;
        gw_find(findings, GW_FINDING_LATENCY, i, -1,
                "every message to or from host %s takes at least %.3g ms, among the others %.3g ms: look at its route",
                r->hosts[i].name, best[i] * 1e3, others * 1e3);
    }
}

/* A clock is wrong if it disagrees with most others. */
void gw_judge_clocks(const gw_doctor_report *r, gw_findings *findings) {
    bool many = gw_alive_count(r) > 2;
    for (int i = many ? 0 : 1; i < r->count; i++) {
        double ahead[GW_DOCTOR_HOSTS_MAX];
        int known = 0, agreeing = 0;
        for (int j = 0; j < r->count; j++) {
            const gw_doctor_link *link = gw_doctor_link_of(r, j, i);
            ahead[j] = i != j && link->measured ? link->skew : NAN;
            known += !isnan(ahead[j]);
            agreeing += fabs(ahead[j]) <= SKEW_TOLERATED;
        }
        if (2 * agreeing >= known) continue;
        double skew = median_of_others(ahead, r->count, i);
        gw_find(findings, GW_FINDING_CLOCK, i, -1,
                "the clock of host %s is %.3g s %s %s: let a time service (NTP) set it", r->hosts[i].name, fabs(skew),
                skew > 0 ? "ahead of" : "behind", many ? "those of the others" : "that of the other host");
    }
}

/* The median of hosts on other machines; NAN if there are none. */
static double memory_of_others(const gw_doctor_report *r, int host) {
    double memory[GW_DOCTOR_HOSTS_MAX];
    for (int i = 0; i < r->count; i++) {
        const gw_doctor_host *h = &r->hosts[i];
        memory[i] = !h->lost && h->memory > 0 && h->machine != r->hosts[host].machine ? h->memory : NAN;
    }
    return median_of_others(memory, r->count, host);
}

static bool copies_below(const gw_doctor_report *r, int host, double share) {
    double own = r->hosts[host].memory;
    return gw_alive(r, host) && own > 0 && own < share * memory_of_others(r, host);
}

bool gw_doctor_memory_suspect(const gw_doctor_report *r, int host) { return copies_below(r, host, SUSPECT_SHARE); }

void gw_judge_memory(const gw_doctor_report *r, gw_findings *findings) {
    for (int i = 0; i < r->count; i++)
        if (copies_below(r, i, SLOW_SHARE))
            gw_find(findings, GW_FINDING_MEMORY, i, -1,
                    "host %s copies memory at %.1f GB/s, the others at %.1f: is something else running there, or a "
                    "memory channel empty?",
                    r->hosts[i].name, r->hosts[i].memory / 1e9, memory_of_others(r, i) / 1e9);
}
