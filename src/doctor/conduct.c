/* conduct.c - see conduct.h. The pairs are measured as in a tournament: in each round every host is in one pair, so
 * that no two measurements share a link; those that look slow are then measured again with nothing beside them. */
#include "doctor/conduct.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/host_facts.h"
#include "doctor/judge.h"
#include "doctor/probe.h"
#include "doctor/station.h"
#include "transport/token.h"

enum { RENDEZVOUS_PORT = 29500, AGAIN_MAX = 64, SECOND_LOOKS = 2 };

#define GREET_BUDGET (30 * GW_SECOND)
#define OPEN_BUDGET (20 * GW_SECOND) /* the first host's name has to be resolved */
#define NAMES_BUDGET (15 * GW_SECOND)
#define MEMORY_BUDGET (20 * GW_SECOND)
#define CARRIERS_BUDGET (20 * GW_SECOND)
#define REACH_BUDGET ((GW_PROBE_REACH_SECONDS + 4) * GW_SECOND)
#define MEASURE_BUDGET ((GW_PROBE_DIAL_SECONDS + 20) * GW_SECOND) /* the sum of the waits in measure.c */

static const char silent[] = "its probe stopped answering";

typedef struct conduct {
    const gw_conduct_options *options;
    gw_doctor_report *report;
    gw_stations stations;
    char boot[GW_DOCTOR_HOSTS_MAX][GW_BOOT_BYTES];
    const char *what; /* that is being done, for the progress */
    int step, steps;
} conduct;

static bool alive(const conduct *c, int host) { return !c->report->hosts[host].lost; }

static void lose(conduct *c, int host, const char *why) {
    gw_doctor_host *h = &c->report->hosts[host];
    gw_station *station = &c->stations.list[host];
    station->awaited = 0;
    if (h->lost) return;
    h->lost = true;
    if (station->said[0]) snprintf(h->complaint, sizeof h->complaint, "%.100s (it said: %.130s)", why, station->said);
    else snprintf(h->complaint, sizeof h->complaint, "%s", why);
}

/* ---- reports ---- */

static void greeted(conduct *c, int host, const char *line) {
    int version;
    c->stations.list[host].greeted = true;
    if (!gw_line_integer(line, "version", GW_PROBE_VERSION, GW_PROBE_VERSION, &version) ||
        !gw_line_text(line, "boot", c->boot[host], GW_BOOT_BYTES))
        lose(c, host, "the gradwire there is of another version");
}

static void opened(conduct *c, int host, const char *line) {
    gw_doctor_host *h = &c->report->hosts[host];
    h->port_count = gw_line_list(line, "ports", 1, 65535, h->ports, GW_DOCTOR_PORTS_MAX);
    if (!h->port_count || !gw_line_text(line, "address", h->address, sizeof h->address) ||
        !gw_line_text(line, "interface", h->interface, sizeof h->interface) ||
        !gw_line_integer(line, "mtu", 0, INT32_MAX, &h->mtu))
        lose(c, host, "its report makes no sense");
}

static void reached(conduct *c, int host, int peer, const char *line) {
    gw_doctor_link *link = gw_doctor_link_of(c->report, host, peer);
    int closed = 0;
    gw_line_integer(line, "closed", 0, (1 << GW_DOCTOR_PORTS_MAX) - 1, &closed);
    link->closed = (uint32_t)closed;
    gw_line_text(line, "text", link->why, sizeof link->why);
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Of two measurements of a pair each figure's better counts. */
static void merge(gw_doctor_link *link, const gw_doctor_link *now) {
    gw_doctor_link before = *link;
    link->latency = now->latency;
    link->latency_best = now->latency_best;
    link->bandwidth = now->bandwidth;
    link->path_mtu = now->path_mtu;
    link->skew = now->skew;
    link->measured = true;
    memcpy(link->local, now->local, sizeof link->local);
    memcpy(link->seen, now->seen, sizeof link->seen);
    if (!before.measured) return;
    if (before.latency < link->latency) link->latency = before.latency;
    if (before.latency_best < link->latency_best) link->latency_best = before.latency_best;
    link->bandwidth = larger(before.bandwidth, link->bandwidth);
    if (before.path_mtu > link->path_mtu) link->path_mtu = before.path_mtu;
}

static void measured(conduct *c, int host, int peer, const char *line) {
    gw_doctor_link out = {0}, in;
    double bandwidth_in;
    int mtu_in;
    if (!gw_line_number(line, "latency", &out.latency) || !gw_line_number(line, "best", &out.latency_best) ||
        !gw_line_number(line, "skew", &out.skew) || !gw_line_number(line, "out", &out.bandwidth) ||
        !gw_line_number(line, "in", &bandwidth_in) || !gw_line_integer(line, "mtu_out", 0, INT32_MAX, &out.path_mtu) ||
        !gw_line_integer(line, "mtu_in", 0, INT32_MAX, &mtu_in))
        return;
    in = out;
    in.bandwidth = bandwidth_in;
    in.path_mtu = mtu_in;
    in.skew = -out.skew;
    gw_line_text(line, "local", out.local, sizeof out.local);
    gw_line_text(line, "seen", out.seen, sizeof out.seen);
    snprintf(in.local, sizeof in.local, "%s", c->report->hosts[peer].address);
    gw_line_text(line, "remote", in.seen, sizeof in.seen);
    merge(gw_doctor_link_of(c->report, host, peer), &out);
    merge(gw_doctor_link_of(c->report, peer, host), &in);
}

static void unmeasured(conduct *c, int a, int b, const char *line) {
    gw_doctor_link *links[2] = {gw_doctor_link_of(c->report, a, b), gw_doctor_link_of(c->report, b, a)};
    for (int i = 0; i < 2; i++)
        if (!links[i]->closed) gw_line_text(line, "text", links[i]->why, sizeof links[i]->why);
}

static void copied(conduct *c, int host, const char *line) {
    double rate = 0;
    gw_line_number(line, "rate", &rate);
    c->report->hosts[host].memory = larger(c->report->hosts[host].memory, rate);
}

static void carried(conduct *c, int host, const char *line) {
    gw_doctor_host *h = &c->report->hosts[host];
    int more = 0, usable = 0;
    gw_line_integer(line, "more", 0, 1, &more);
    if (more) c->stations.list[host].awaited++; /* one order, several lines */
    if (h->carrier_count == GW_CARRIERS_MAX) return;
    gw_carrier *carrier = &h->carriers[h->carrier_count];
    if (!gw_line_text(line, "name", carrier->name, sizeof carrier->name)) return;
    gw_line_integer(line, "usable", 0, 1, &usable);
    gw_line_text(line, "text", carrier->detail, sizeof carrier->detail);
    carrier->usable = usable;
    h->carrier_count++;
}

static void heard(void *ctx, int host, const char *line) {
    conduct *c = ctx;
    gw_station *station = &c->stations.list[host];
    int peer = -1;
    bool about_peer = gw_line_integer(line, "peer", 0, c->report->count - 1, &peer) && peer != host;
    if (!station->greeted && !gw_line_is(line, GW_PROBE_HELLO)) return;
    if (station->awaited > 0) station->awaited--;
    if (gw_line_is(line, GW_PROBE_HELLO)) greeted(c, host, line);
    else if (gw_line_is(line, "opened")) opened(c, host, line);
    else if (gw_line_is(line, "memory")) copied(c, host, line);
    else if (gw_line_is(line, "carrier")) carried(c, host, line);
    else if (gw_line_is(line, "failed")) {
        gw_line_text(line, "text", station->said, sizeof station->said);
        lose(c, host, "it cannot listen");
    } else if (about_peer && gw_line_is(line, "reached")) reached(c, host, peer, line);
    else if (about_peer && gw_line_is(line, "measured")) measured(c, host, peer, line);
    else if (about_peer && gw_line_is(line, "unmeasured")) unmeasured(c, host, peer, line);
    else if (about_peer && gw_line_is(line, "resolved")) {
        gw_doctor_link *link = gw_doctor_link_of(c->report, host, peer);
        gw_line_text(line, "text", link->resolved, sizeof link->resolved);
    }
}

/* ---- steps ---- */

static void show(void *ctx) {
    const conduct *c = ctx;
    if (c->options->progress) c->options->progress(c->options->ctx, c->what, c->step, c->steps);
}

static void begin(conduct *c, const char *what, int steps) {
    c->what = what;
    c->step = 0;
    c->steps = steps;
    show(c);
}

/* Waits for what was ordered. A host whose connection ended is lost; one that owes a report only if that is essential.
 */
static void wait_for(conduct *c, gw_time budget, const char *essential) {
    gw_stations_wait(&c->stations, budget, show);
    for (int i = 0; i < c->report->count; i++) {
        gw_station *station = &c->stations.list[i];
        if (station->over) lose(c, i, station->greeted ? "its probe ended" : "the remote shell ended without a probe");
        else if (station->awaited && essential) lose(c, i, essential);
        station->awaited = 0;
    }
}

static int others_alive(const conduct *c, int host) {
    int count = 0;
    for (int i = 0; i < c->report->count; i++) count += i != host && alive(c, i);
    return count;
}

static void start(conduct *c) {
    gw_outpost_options options = c->options->outpost;
    options.command = "probe";
    options.listen_fd = -1;
    begin(c, "starting probes on the hosts", 0);
    for (int i = 0; i < c->report->count; i++) {
        gw_station *station = &c->stations.list[i];
        gw_error error = {0};
        const gw_host *host = &c->options->hosts->list[c->options->repeated ? 0 : i];
        if (gw_outpost_open(&station->outpost, host, &options, &error) == GW_OK) station->awaited = 1;
        else lose(c, i, error.text);
    }
    wait_for(c, GREET_BUDGET, "it did not answer within 30 s; try the remote shell by hand");
}

/* As many ports of the range as are probed, first and last among them. The first host also has the port of the
 * rendezvous. */
static void port_list(const conduct *c, int host, char *text, size_t bytes) {
    int low = c->options->port_low, high = c->options->port_high, range = high - low + 1;
    int count = range < GW_DOCTOR_PORTS_MAX ? range : GW_DOCTOR_PORTS_MAX;
    size_t used = 0;
    if (low == 0) {
        snprintf(text, bytes, "0");
        if (host == 0 && !c->options->repeated) snprintf(text, bytes, "0,%d", RENDEZVOUS_PORT);
        return;
    }
    for (int i = 0; i < count && used < bytes; i++) {
        int port = count == 1 ? low : low + (int)((int64_t)(range - 1) * i / (count - 1));
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", i ? "," : "", port);
    }
}

static gw_status open_all(conduct *c, gw_error *error) {
    gw_token token;
    gw_status status = gw_token_random(&token, error);
    if (status) return status;
    begin(c, "opening ports", 0);
    for (int i = 0; i < c->report->count; i++) {
        char ports[GW_DOCTOR_PORTS_MAX * 6 + 1];
        if (!alive(c, i)) continue;
        port_list(c, i, ports, sizeof ports);
        gw_station_order(&c->stations.list[i], "open rank=%d world=%d token=%s master=%s ports=%s interface=%s", i,
                         c->report->count, token.text, c->options->master, ports,
                         c->options->interface ? c->options->interface : "");
        c->stations.list[i].awaited = 1;
    }
    gw_token_wipe(&token);
    wait_for(c, OPEN_BUDGET, "it did not open its ports in time");
    return GW_OK;
}

static void introduce(conduct *c) {
    for (int i = 0; i < c->report->count; i++) {
        const gw_doctor_host *h = &c->report->hosts[i];
        char ports[GW_DOCTOR_PORTS_MAX * 6 + 1] = "";
        const char *login = strchr(h->name, '@');
        size_t used = 0;
        if (!alive(c, i)) continue;
        for (int p = 0; p < h->port_count; p++)
            used += (size_t)snprintf(ports + used, sizeof ports - used, "%s%d", p ? "," : "", h->ports[p]);
        for (int j = 0; j < c->report->count; j++)
            if (j != i && alive(c, j))
                gw_station_order(&c->stations.list[j], "peer rank=%d address=%s ports=%s text=%s", i, h->address, ports,
                                 login ? login + 1 : h->name);
    }
}

static void resolve(conduct *c) {
    if (!c->options->names) return;
    begin(c, "asking for names", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i)) continue;
        gw_station_order(&c->stations.list[i], "resolve");
        c->stations.list[i].awaited = others_alive(c, i);
    }
    wait_for(c, NAMES_BUDGET, NULL);
}

static void copy_memory(conduct *c, int host) {
    gw_station_order(&c->stations.list[host], "memory");
    c->stations.list[host].awaited = 1;
}

/* Probes of one machine (namespaces, -n) copy one after the other. */
static void measure_memory(conduct *c) {
    int turn[GW_DOCTOR_HOSTS_MAX], turns = 0;
    for (int i = 0; i < c->report->count; i++) {
        turn[i] = 0;
        c->report->hosts[i].machine = i;
        for (int j = i - 1; j >= 0; j--) {
            if (strcmp(c->boot[j], c->boot[i]) != 0) continue;
            turn[i]++;
            c->report->hosts[i].machine = j;
        }
        if (turn[i] >= turns) turns = turn[i] + 1;
    }
    begin(c, "copying memory", turns);
    for (c->step = 1; c->step <= turns; c->step++) {
        for (int i = 0; i < c->report->count; i++)
            if (alive(c, i) && turn[i] == c->step - 1) copy_memory(c, i);
        wait_for(c, MEMORY_BUDGET, silent);
    }
}

/* Once a machine: what is installed is the same for all on it. */
static void find_carriers(conduct *c) {
    begin(c, "looking for transports", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i) || c->report->hosts[i].machine != i) continue;
        gw_station_order(&c->stations.list[i], "carriers");
        c->stations.list[i].awaited = 1;
    }
    wait_for(c, CARRIERS_BUDGET, NULL);
}

static void reach(conduct *c) {
    begin(c, "connecting everybody with everybody", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i)) continue;
        gw_station_order(&c->stations.list[i], "reach");
        c->stations.list[i].awaited = others_alive(c, i);
    }
    wait_for(c, REACH_BUDGET, silent);
}

/* ---- measurements ---- */

static int open_port(const conduct *c, int from, int to) {
    for (int i = 0; i < c->report->hosts[to].port_count; i++)
        if (!(gw_doctor_link_of(c->report, from, to)->closed >> i & 1)) return i;
    return -1;
}

/* One connection serves both directions, so it is enough that one side can reach the other. */
static void order_pair(conduct *c, int a, int b) {
    if (!alive(c, a) || !alive(c, b)) return;
    int port = open_port(c, a, b);
    if (port < 0) {
        int other = a;
        a = b;
        b = other;
        port = open_port(c, a, b);
    }
    if (port < 0) return;
    int mtu_a = c->report->hosts[a].mtu, mtu_b = c->report->hosts[b].mtu;
    gw_station_order(&c->stations.list[a], "measure peer=%d port=%d mtu=%d", b, port, mtu_a < mtu_b ? mtu_a : mtu_b);
    c->stations.list[a].awaited = 1;
}

/* The circle method: the last stands still, the others move on by one place each round; where the number is odd, who
 * stands opposite the last rests. */
static void measure_all(conduct *c) {
    int hosts = c->report->count, circle = hosts - 1 + hosts % 2;
    begin(c, "measuring the pairs", circle);
    for (c->step = 1; c->step <= circle && hosts > 1; c->step++) {
        int round = c->step - 1;
        if (hosts % 2 == 0) order_pair(c, round, hosts - 1);
        for (int i = 1; i <= (circle - 1) / 2; i++)
            order_pair(c, (round + i) % circle, (round - i + circle) % circle);
        wait_for(c, MEASURE_BUDGET, silent);
    }
}

/* Something else may have run on the machine just then. */
static void copy_again(conduct *c) {
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i) || !gw_doctor_forgetful(c->report, i)) continue;
        copy_memory(c, i);
        wait_for(c, MEMORY_BUDGET, silent);
    }
}

/* True: there was something to look at. */
static bool measure_again(conduct *c) {
    int pairs[AGAIN_MAX][2], count = 0;
    for (int a = 0; a < c->report->count; a++)
        for (int b = a + 1; b < c->report->count && count < AGAIN_MAX; b++)
            if (alive(c, a) && alive(c, b) && gw_doctor_suspect(c->report, a, b)) {
                pairs[count][0] = a;
                pairs[count++][1] = b;
            }
    if (!count) return false;
    begin(c, "looking again at what was slow", count);
    for (c->step = 1; c->step <= count; c->step++) {
        order_pair(c, pairs[c->step - 1][0], pairs[c->step - 1][1]);
        wait_for(c, MEASURE_BUDGET, silent);
    }
    return true;
}

static void look_again(conduct *c) {
    for (int i = 0; i < SECOND_LOOKS; i++) {
        copy_again(c);
        if (!measure_again(c)) return;
    }
}

/* ---- all of it ---- */

static gw_status prepare(conduct *c, gw_error *error) {
    int count = c->report->count;
    c->stations = (gw_stations){.count = count, .ctx = c, .heard = heard};
    c->stations.list = calloc((size_t)count, sizeof *c->stations.list);
    if (!c->stations.list) return gw_fail(error, GW_MEMORY, "no memory for %d hosts", count);
    for (int i = 0; i < count; i++) {
        gw_outpost *o = &c->stations.list[i].outpost;
        o->to = o->from = o->errors = -1;
        if (c->options->repeated)
            snprintf(c->report->hosts[i].name, GW_DOCTOR_NAME_BYTES, "%.240s/%d", c->options->hosts->list[0].name, i);
        else
            snprintf(c->report->hosts[i].name, GW_DOCTOR_NAME_BYTES, "%s", c->options->hosts->list[i].name);
    }
    return GW_OK;
}

gw_status gw_conduct(const gw_conduct_options *options, gw_doctor_report *report, gw_error *error) {
    int count = options->repeated ? options->hosts->list[0].slots : options->hosts->count;
    if (count > GW_DOCTOR_HOSTS_MAX)
        return gw_fail(error, GW_INVALID, "the doctor examines at most %d hosts at once, not %d", GW_DOCTOR_HOSTS_MAX,
                       count);
    conduct *c = calloc(1, sizeof *c);
    if (!c || !gw_doctor_report_init(report, count)) {
        free(c);
        return gw_fail(error, GW_MEMORY, "no memory for %d hosts", count);
    }
    c->options = options;
    c->report = report;
    signal(SIGPIPE, SIG_IGN); /* a probe may go away while it is told something */
    gw_status status = prepare(c, error);
    if (!status) {
        start(c);
        status = open_all(c, error);
        introduce(c);
        resolve(c);
        measure_memory(c);
        find_carriers(c);
        reach(c);
        measure_all(c);
        look_again(c);
        gw_stations_close(&c->stations);
    }
    if (status) gw_doctor_report_free(report);
    free(c);
    return status;
}
