/* judge.c - see judge.h. The rules blame a host if all links to or from it are bad, otherwise a pair of hosts. A fault
 * is reported once. The rules about figures are in judge_figures.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/judge_internal.h"

void gw_find(gw_findings *findings, gw_finding_kind kind, int host, int peer, const char *format, ...) {
    if (findings->count == GW_FINDINGS_MAX) {
        findings->left_out++;
        return;
    }
    gw_finding *f = &findings->list[findings->count++];
    *f = (gw_finding){.kind = kind, .host = host, .peer = peer};
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
}

const char *gw_finding_name(gw_finding_kind kind) {
    static const char *const names[GW_FINDING_KINDS] = {"host",    "port",  "mtu",     "stall", "slow",
                                                        "latency", "clock", "address", "memory"};
    return names[kind];
}

int gw_alive_count(const gw_doctor_report *r) {
    int count = 0;
    for (int i = 0; i < r->count; i++) count += gw_alive(r, i);
    return count;
}

static int smaller(int a, int b) { return a < b ? a : b; }

bool gw_link_holed(const gw_doctor_report *r, int from, int to) {
    const gw_doctor_link *link = gw_doctor_link_of(r, from, to);
    return link->measured && link->path_mtu > 0 && link->path_mtu < smaller(r->hosts[from].mtu, r->hosts[to].mtu);
}

bool gw_link_fair(const gw_doctor_report *r, int from, int to) {
    return from != to && gw_doctor_link_of(r, from, to)->measured && !gw_link_holed(r, from, to) &&
           !gw_link_holed(r, to, from) && strcmp(r->hosts[from].address, r->hosts[to].address) != 0;
}

/* ---- ports ---- */

#define PORTS_TEXT (GW_DOCTOR_PORTS_MAX * 6 + 16)

static const char *port_list(const gw_doctor_host *host, uint32_t closed, char text[PORTS_TEXT]) {
    size_t used = (size_t)snprintf(text, PORTS_TEXT, "%s", closed & (closed - 1) ? "ports" : "port");
    for (int i = 0, first = 1; i < host->port_count; i++) {
        if (!(closed >> i & 1)) continue;
        used += (size_t)snprintf(text + used, PORTS_TEXT - used, "%s%d", first ? " " : ",", host->ports[i]);
        first = 0;
    }
    return text;
}

/* The ports of a host that no other host reached; *witness: one of those other hosts. */
static uint32_t closed_to_all(const gw_doctor_report *r, int host, int *witness) {
    uint32_t closed = UINT32_MAX;
    *witness = -1;
    for (int i = 0; i < r->count; i++) {
        if (i == host || !gw_alive(r, i)) continue;
        closed &= gw_doctor_link_of(r, i, host)->closed;
        *witness = i;
    }
    return *witness < 0 ? 0 : closed;
}

static bool unreached(const gw_doctor_report *r, int from, int to) {
    uint32_t all = (UINT32_C(1) << r->hosts[to].port_count) - 1;
    return (gw_doctor_link_of(r, from, to)->closed & all) == all;
}

/* The host reaches no port of any other host. */
static bool shut_in(const gw_doctor_report *r, int host) {
    for (int i = 0; i < r->count; i++)
        if (i != host && gw_alive(r, i) && !unreached(r, host, i)) return false;
    return true;
}

static void judge_pair_ports(const gw_doctor_report *r, int host, uint32_t known, gw_findings *findings) {
    char ports[PORTS_TEXT];
    for (int i = 0; i < r->count; i++) {
        if (i == host || !gw_alive(r, i)) continue;
        const gw_doctor_link *link = gw_doctor_link_of(r, i, host);
        uint32_t closed = link->closed & ~known;
        if (!closed || (gw_alive_count(r) > 2 && shut_in(r, i))) continue;
        if (!known && unreached(r, i, host) && unreached(r, host, i)) {
            if (i < host)
                gw_find(findings, GW_FINDING_PORT, host, i,
                        "hosts %s and %s cannot reach each other (%s): look at the routes between them, and at their "
                        "firewalls",
                        r->hosts[i].name, r->hosts[host].name, link->why);
            continue;
        }
        gw_find(findings, GW_FINDING_PORT, host, i,
                "host %s cannot reach host %s at %s (%s): look at the firewall of %s, and at the route from %s",
                r->hosts[i].name, r->hosts[host].name, port_list(&r->hosts[host], closed, ports), link->why,
                r->hosts[host].name, r->hosts[i].name);
    }
}

void gw_judge_ports(const gw_doctor_report *r, gw_findings *findings) {
    char ports[PORTS_TEXT];
    for (int i = 0; i < r->count; i++) {
        if (!gw_alive(r, i)) continue;
        int witness = -1;
        uint32_t closed = gw_alive_count(r) > 2 ? closed_to_all(r, i, &witness) : 0;
        if (closed)
            gw_find(findings, GW_FINDING_PORT, i, -1,
                    "no other host can reach host %s at %s (%s): open it in the firewall of %s", r->hosts[i].name,
                    port_list(&r->hosts[i], closed, ports), gw_doctor_link_of(r, witness, i)->why, r->hosts[i].name);
        else if (gw_alive_count(r) > 2 && shut_in(r, i))
            gw_find(findings, GW_FINDING_PORT, i, -1,
                    "host %s can reach no other host (%s): look at its route and at its firewall's rules "
                    "for what goes out",
                    r->hosts[i].name, gw_doctor_link_of(r, i, (i + 1) % r->count)->why);
        judge_pair_ports(r, i, closed, findings);
    }
}

/* ---- connections that broke ---- */

/* The two hosts reach each other, but nothing could be measured between them. */
static bool broken(const gw_doctor_report *r, int a, int b) {
    return a != b && gw_alive(r, a) && gw_alive(r, b) && !gw_doctor_link_of(r, a, b)->measured &&
           !(unreached(r, a, b) && unreached(r, b, a));
}

void gw_judge_broken(const gw_doctor_report *r, gw_findings *findings) {
    bool blamed[GW_DOCTOR_HOSTS_MAX] = {false};
    for (int i = 0; i < r->count && gw_alive_count(r) > 2; i++) {
        int count = 0;
        for (int j = 0; j < r->count; j++) count += broken(r, i, j);
        blamed[i] = gw_alive(r, i) && count == gw_alive_count(r) - 1;
        if (blamed[i])
            gw_find(findings, GW_FINDING_STALL, i, -1,
                    "host %s can be connected to, but every conversation with it breaks off: look at its load and its "
                    "cable",
                    r->hosts[i].name);
    }
    for (int a = 0; a < r->count; a++)
        for (int b = a + 1; b < r->count; b++)
            if (broken(r, a, b) && !blamed[a] && !blamed[b])
                gw_find(findings, GW_FINDING_STALL, b, a,
                        "hosts %s and %s connect, but their conversation breaks off (%s): look at the way between them",
                        r->hosts[a].name, r->hosts[b].name, gw_doctor_link_of(r, a, b)->why);
}

/* ---- packet sizes ---- */

/* The MTU of most hosts; 0 if no MTU has a majority. */
static int usual_mtu(const gw_doctor_report *r) {
    for (int i = 0; i < r->count; i++) {
        int same = 0;
        for (int j = 0; j < r->count; j++) same += gw_alive(r, j) && r->hosts[j].mtu == r->hosts[i].mtu;
        if (gw_alive(r, i) && 2 * same > gw_alive_count(r)) return r->hosts[i].mtu;
    }
    return 0;
}

static void judge_own_mtu(const gw_doctor_report *r, gw_findings *findings) {
    int usual = usual_mtu(r), first = -1;
    for (int i = 0; i < r->count; i++) {
        const gw_doctor_host *host = &r->hosts[i];
        if (host->lost) continue;
        if (first < 0) first = i;
        if (usual && host->mtu != usual)
            gw_find(findings, GW_FINDING_MTU, i, -1,
                    "host %s has an MTU of %d on %s, the others %d: set it there with `ip link set %s mtu %d`",
                    host->name, host->mtu, host->interface, usual, host->interface, usual);
        else if (!usual && host->mtu != r->hosts[first].mtu)
            gw_find(findings, GW_FINDING_MTU, i, first,
                    "host %s has an MTU of %d on %s, host %s %d: give all hosts of a network the same", host->name,
                    host->mtu, host->interface, r->hosts[first].name, r->hosts[first].mtu);
    }
}

/* The smallest path MTU in this direction, if every link with a known path MTU loses large packets; otherwise 0. */
static int hole_of(const gw_doctor_report *r, int host, bool inward) {
    int passes = 0;
    for (int i = 0; i < r->count; i++) {
        int from = inward ? i : host, to = inward ? host : i;
        const gw_doctor_link *link = gw_doctor_link_of(r, from, to);
        if (i == host || !link->measured || !link->path_mtu) continue;
        if (!gw_link_holed(r, from, to)) return 0;
        if (!passes || link->path_mtu < passes) passes = link->path_mtu;
    }
    return passes;
}

static void judge_pair_holes(const gw_doctor_report *r, const bool *blamed, gw_findings *findings) {
    for (int from = 0; from < r->count; from++) {
        for (int to = 0; to < r->count; to++) {
            if (from == to || blamed[from] || blamed[to] || !gw_link_holed(r, from, to)) continue;
            gw_find(findings, GW_FINDING_MTU, to, from,
                    "packets over %d bytes from host %s to host %s vanish, though both ends are set to %d: look at the "
                    "MTU of what lies between them",
                    gw_doctor_link_of(r, from, to)->path_mtu, r->hosts[from].name, r->hosts[to].name,
                    smaller(r->hosts[from].mtu, r->hosts[to].mtu));
        }
    }
}

void gw_judge_mtu(const gw_doctor_report *r, gw_findings *findings) {
    bool blamed[GW_DOCTOR_HOSTS_MAX] = {false};
    judge_own_mtu(r, findings);
    for (int i = 0; i < r->count && gw_alive_count(r) > 2; i++) {
        const gw_doctor_host *host = &r->hosts[i];
        int in = hole_of(r, i, true), out = hole_of(r, i, false);
        if (!in && !out) continue;
        blamed[i] = true;
        gw_find(findings, GW_FINDING_MTU, i, -1,
                "packets over %d bytes %s host %s vanish, though its %s is set to %d: look at the MTU of its switch "
                "port, or set the host's to what passes",
                in && (!out || in < out) ? in : out,
                in && out ? "to and from"
                : in      ? "to"
                          : "from",
                host->name, host->interface, host->mtu);
    }
    judge_pair_holes(r, blamed, findings);
}

/* ---- addresses ---- */

static void judge_names(const gw_doctor_report *r, int host, gw_findings *findings) {
    int first = -1, silent = -1;
    for (int i = 0; i < r->count; i++) {
        if (i == host || !gw_alive(r, i)) continue;
        const char *resolved = gw_doctor_link_of(r, i, host)->resolved;
        if (!resolved[0]) silent = i;
        else if (first < 0) first = i;
        else if (strcmp(resolved, gw_doctor_link_of(r, first, host)->resolved) != 0)
            gw_find(findings, GW_FINDING_ADDRESS, host, i,
                    "host %s is %s to host %s and %s to host %s: make their /etc/hosts or name servers agree",
                    r->hosts[host].name, gw_doctor_link_of(r, first, host)->resolved, r->hosts[first].name, resolved,
                    r->hosts[i].name);
    }
    if (first >= 0 && silent >= 0)
        gw_find(findings, GW_FINDING_ADDRESS, host, silent,
                "host %s does not know the name of host %s, which is %s to host %s: add it to its /etc/hosts "
                "or name server",
                r->hosts[silent].name, r->hosts[host].name, gw_doctor_link_of(r, first, host)->resolved,
                r->hosts[first].name);
}

void gw_judge_addresses(const gw_doctor_report *r, gw_findings *findings) {
    for (int i = 0; i < r->count; i++) {
        if (!gw_alive(r, i)) continue;
        judge_names(r, i, findings);
        for (int j = 0; j < r->count; j++) {
            const gw_doctor_link *link = gw_doctor_link_of(r, i, j);
            if (i == j || !link->measured || !link->seen[0] || strcmp(link->seen, link->local) == 0) continue;
            gw_find(findings, GW_FINDING_ADDRESS, i, j,
                    "host %s calls itself %s, but host %s sees it as %s: addresses are translated between them, and "
                    "peers cannot dial what a host says of itself",
                    r->hosts[i].name, link->local, r->hosts[j].name, link->seen);
        }
    }
}

/* ---- all rules ---- */

void gw_doctor_judge(const gw_doctor_report *r, gw_findings *findings) {
    findings->count = findings->left_out = 0;
    for (int i = 0; i < r->count; i++)
        if (!gw_alive(r, i))
            gw_find(findings, GW_FINDING_HOST, i, -1, "host %s cannot be examined: %s", r->hosts[i].name,
                    r->hosts[i].complaint);
    gw_judge_ports(r, findings);
    gw_judge_broken(r, findings);
    gw_judge_mtu(r, findings);
    gw_judge_bandwidth(r, findings);
    gw_judge_latency(r, findings);
    gw_judge_clocks(r, findings);
    gw_judge_addresses(r, findings);
    gw_judge_memory(r, findings);
}
