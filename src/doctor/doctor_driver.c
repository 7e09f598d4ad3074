/* doctor_driver.c - see doctor_driver.h. The pairs are measured as in a round-robin tournament: in each round every
 * host is in one pair, so that no two measurements share a link. Slow pairs are measured again, alone. */
#include "doctor/doctor_driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/token.h"
#include "doctor/host_facts.h"
#include "doctor/judge.h"
#include "doctor/probe.h"
#include "doctor/probe_process.h"

enum { RENDEZVOUS_PORT = 29500, AGAIN_MAX = 64, REPEATS = 2 };

#define GREET_BUDGET (30 * GW_SECOND)
#define OPEN_BUDGET (20 * GW_SECOND) /* includes resolving the first host's name */
#define NAMES_BUDGET (15 * GW_SECOND)
#define MEMORY_BUDGET (20 * GW_SECOND)
#define TRANSPORTS_BUDGET (20 * GW_SECOND)
#define REACH_BUDGET ((GW_PROBE_REACH_SECONDS + 4) * GW_SECOND)
#define MEASURE_BUDGET ((GW_PROBE_DIAL_SECONDS + 20) * GW_SECOND) /* the sum of the waits in doctor_measure.c */

static const char silent[] = "its probe stopped answering";

typedef struct driver {
    const gw_doctor_drive_options *options;
    gw_doctor_report *report;
    gw_probe_processes probes;
    char boot[GW_DOCTOR_HOSTS_MAX][GW_BOOT_BYTES];
    const char *what; /* the current activity, for the progress */
    int step, steps;
} driver;

static bool alive(const driver *c, int host) { return !c->report->hosts[host].lost; }

static void lose(driver *c, int host, const char *why) {
    gw_doctor_host *h = &c->report->hosts[host];
    gw_probe_process *probe = &c->probes.list[host];
    probe->awaited = 0;
    if (h->lost) return;
    h->lost = true;
    if (probe->said[0]) snprintf(h->complaint, sizeof h->complaint, "%.100s (it said: %.130s)", why, probe->said);
    else snprintf(h->complaint, sizeof h->complaint, "%s", why);
}

/* ---- reports ---- */

static void greeted(driver *c, int host, const char *line) {
    int version;
    c->probes.list[host].greeted = true;
    if (!gw_report_line_integer(line, "version", GW_PROBE_VERSION, GW_PROBE_VERSION, &version) ||
        !gw_report_line_text(line, "boot", c->boot[host], GW_BOOT_BYTES))
        lose(c, host, "the gradwire there is of another version");
}

static void opened(driver *c, int host, const char *line) {
    gw_doctor_host *h = &c->report->hosts[host];
    h->port_count = gw_report_line_list(line, "ports", 1, 65535, h->ports, GW_DOCTOR_PORTS_MAX);
    if (!h->port_count || !gw_report_line_text(line, "address", h->address, sizeof h->address) ||
        !gw_report_line_text(line, "interface", h->interface, sizeof h->interface) ||
        !gw_report_line_integer(line, "mtu", 0, INT32_MAX, &h->mtu))
        lose(c, host, "its report makes no sense");
}

static void reached(driver *c, int host, int peer, const char *line) {
    gw_doctor_link *link = gw_doctor_link_of(c->report, host, peer);
    int closed = 0;
    gw_report_line_integer(line, "closed", 0, (1 << GW_DOCTOR_PORTS_MAX) - 1, &closed);
    link->closed = (uint32_t)closed;
    gw_report_line_text(line, "text", link->why, sizeof link->why);
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Of two measurements of a pair, takes the better value of each figure. */
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

static void measured(driver *c, int host, int peer, const char *line) {
    gw_doctor_link out = {0}, in;
    double bandwidth_in;
    int mtu_in;
    if (!gw_report_line_number(line, "latency", &out.latency) ||
        !gw_report_line_number(line, "best", &out.latency_best) || !gw_report_line_number(line, "skew", &out.skew) ||
        !gw_report_line_number(line, "out", &out.bandwidth) || !gw_report_line_number(line, "in", &bandwidth_in) ||
        !gw_report_line_integer(line, "mtu_out", 0, INT32_MAX, &out.path_mtu) ||
        !gw_report_line_integer(line, "mtu_in", 0, INT32_MAX, &mtu_in))
        return;
    in = out;
    in.bandwidth = bandwidth_in;
    in.path_mtu = mtu_in;
    in.skew = -out.skew;
    gw_report_line_text(line, "local", out.local, sizeof out.local);
    gw_report_line_text(line, "seen", out.seen, sizeof out.seen);
    snprintf(in.local, sizeof in.local, "%s", c->report->hosts[peer].address);
    gw_report_line_text(line, "remote", in.seen, sizeof in.seen);
    merge(gw_doctor_link_of(c->report, host, peer), &out);
    merge(gw_doctor_link_of(c->report, peer, host), &in);
}

static void unmeasured(driver *c, int a, int b, const char *line) {
    gw_doctor_link *links[2] = {gw_doctor_link_of(c->report, a, b), gw_doctor_link_of(c->report, b, a)};
    for (int i = 0; i < 2; i++)
        if (!links[i]->closed) gw_report_line_text(line, "text", links[i]->why, sizeof links[i]->why);
}

static void copied_memory(driver *c, int host, const char *line) {
    double rate = 0;
    gw_report_line_number(line, "rate", &rate);
    c->report->hosts[host].memory = larger(c->report->hosts[host].memory, rate);
}

static void found_transport(driver *c, int host, const char *line) {
    gw_doctor_host *h = &c->report->hosts[host];
    int more = 0, usable = 0;
    gw_report_line_integer(line, "more", 0, 1, &more);
    if (more) c->probes.list[host].awaited++; /* one command, several lines */
    if (h->transport_count == GW_TRANSPORT_PROBES_MAX) return;
    gw_transport_probe *transport = &h->transports[h->transport_count];
    if (!gw_report_line_text(line, "name", transport->name, sizeof transport->name)) return;
    gw_report_line_integer(line, "usable", 0, 1, &usable);
    gw_report_line_text(line, "text", transport->detail, sizeof transport->detail);
    transport->usable = usable;
    h->transport_count++;
}

static void take_report(void *ctx, int host, const char *line) {
    driver *c = ctx;
    gw_probe_process *probe = &c->probes.list[host];
    int peer = -1;
    bool about_peer = gw_report_line_integer(line, "peer", 0, c->report->count - 1, &peer) && peer != host;
    if (!probe->greeted && !gw_report_line_is(line, GW_PROBE_HELLO)) return;
    if (probe->awaited > 0) probe->awaited--;
    if (gw_report_line_is(line, GW_PROBE_HELLO)) greeted(c, host, line);
    else if (gw_report_line_is(line, "opened")) opened(c, host, line);
    else if (gw_report_line_is(line, "memory")) copied_memory(c, host, line);
    else if (gw_report_line_is(line, "transport")) found_transport(c, host, line);
    else if (gw_report_line_is(line, "failed")) {
        gw_report_line_text(line, "text", probe->said, sizeof probe->said);
        lose(c, host, "it cannot listen");
    } else if (about_peer && gw_report_line_is(line, "reached")) reached(c, host, peer, line);
    else if (about_peer && gw_report_line_is(line, "measured")) measured(c, host, peer, line);
    else if (about_peer && gw_report_line_is(line, "unmeasured")) unmeasured(c, host, peer, line);
    else if (about_peer && gw_report_line_is(line, "resolved")) {
        gw_doctor_link *link = gw_doctor_link_of(c->report, host, peer);
        gw_report_line_text(line, "text", link->resolved, sizeof link->resolved);
    }
}

/* ---- steps ---- */

static void show(void *ctx) {
    const driver *c = ctx;
    if (c->options->progress) c->options->progress(c->options->ctx, c->what, c->step, c->steps);
}

static void begin(driver *c, const char *what, int steps) {
    c->what = what;
    c->step = 0;
    c->steps = steps;
    show(c);
}

/* Waits for the awaited reports. A host whose connection ended is lost. A host whose report is late is lost only if
 * `essential` is given, which becomes its complaint. */
static void wait_for(driver *c, gw_time budget, const char *essential) {
    gw_probe_processes_wait(&c->probes, budget, show);
    for (int i = 0; i < c->report->count; i++) {
        gw_probe_process *probe = &c->probes.list[i];
        if (probe->over) lose(c, i, probe->greeted ? "its probe ended" : "the remote shell ended without a probe");
        else if (probe->awaited && essential) lose(c, i, essential);
        probe->awaited = 0;
    }
}

static int others_alive(const driver *c, int host) {
    int count = 0;
    for (int i = 0; i < c->report->count; i++) count += i != host && alive(c, i);
    return count;
}

static void start(driver *c) {
    gw_host_connection_options options = c->options->host_connection;
    options.command = "probe";
    options.listen_fd = -1;
    begin(c, "starting probes on the hosts", 0);
    for (int i = 0; i < c->report->count; i++) {
        gw_probe_process *probe = &c->probes.list[i];
        gw_error error = {0};
        const gw_host *host = &c->options->hosts->list[c->options->repeated ? 0 : i];
        if (gw_host_connection_open(&probe->connection, host, &options, &error) == GW_OK) probe->awaited = 1;
        else lose(c, i, error.text);
    }
    wait_for(c, GREET_BUDGET, "it did not answer within 30 s; try the remote shell by hand");
}

/* The ports of the range to probe, the first and the last included. The first host also has the rendezvous port. */
static void port_list(const driver *c, int host, char *text, size_t bytes) {
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

static gw_status open_all(driver *c, gw_error *error) {
    gw_token token;
    gw_status status = gw_token_random(&token, error);
    if (status) return status;
    begin(c, "opening ports", 0);
    for (int i = 0; i < c->report->count; i++) {
        char ports[GW_DOCTOR_PORTS_MAX * 6 + 1];
        if (!alive(c, i)) continue;
        port_list(c, i, ports, sizeof ports);
        gw_probe_command(&c->probes.list[i], "open rank=%d world=%d token=%s master=%s ports=%s interface=%s", i,
                         c->report->count, token.text, c->options->master, ports,
                         c->options->interface ? c->options->interface : "");
        c->probes.list[i].awaited = 1;
    }
    gw_token_wipe(&token);
    wait_for(c, OPEN_BUDGET, "it did not open its ports in time");
    return GW_OK;
}

static void introduce(driver *c) {
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
                gw_probe_command(&c->probes.list[j], "peer rank=%d address=%s ports=%s text=%s", i, h->address, ports,
                                 login ? login + 1 : h->name);
    }
}

static void resolve(driver *c) {
    if (!c->options->names) return;
    begin(c, "asking for names", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i)) continue;
        gw_probe_command(&c->probes.list[i], "resolve");
        c->probes.list[i].awaited = others_alive(c, i);
    }
    wait_for(c, NAMES_BUDGET, NULL);
}

static void copy_memory(driver *c, int host) {
    gw_probe_command(&c->probes.list[host], "memory");
    c->probes.list[host].awaited = 1;
}

/* Probes of one machine (namespaces, -n) measure their memory one after the other. */
static void measure_memory(driver *c) {
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

/* Once per machine: all its hosts have the same libraries. */
static void find_transports(driver *c) {
    begin(c, "looking for transports", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i) || c->report->hosts[i].machine != i) continue;
        gw_probe_command(&c->probes.list[i], "transports");
        c->probes.list[i].awaited = 1;
    }
    wait_for(c, TRANSPORTS_BUDGET, NULL);
}

static void reach(driver *c) {
    begin(c, "connecting all hosts with each other", 0);
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i)) continue;
        gw_probe_command(&c->probes.list[i], "reach");
        c->probes.list[i].awaited = others_alive(c, i);
    }
    wait_for(c, REACH_BUDGET, silent);
}

/* ---- measurements ---- */

static int open_port(const driver *c, int from, int to) {
    for (int i = 0; i < c->report->hosts[to].port_count; i++)
        if (!(gw_doctor_link_of(c->report, from, to)->closed >> i & 1)) return i;
    return -1;
}

/* One connection serves both directions, so it is enough that one side can reach the other. */
static void measure_pair(driver *c, int a, int b) {
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
    gw_probe_command(&c->probes.list[a], "measure peer=%d port=%d mtu=%d", b, port, mtu_a < mtu_b ? mtu_a : mtu_b);
    c->probes.list[a].awaited = 1;
}

/* The circle method. With an even number of hosts, the last host keeps its place, and the others move by one place in
 * each round. With an odd number, all hosts move, and one of them rests in each round. */
static void measure_all(driver *c) {
    int hosts = c->report->count, circle = hosts - 1 + hosts % 2;
    begin(c, "measuring the pairs", circle);
    for (c->step = 1; c->step <= circle && hosts > 1; c->step++) {
        int round = c->step - 1;
        if (hosts % 2 == 0) measure_pair(c, round, hosts - 1);
        for (int i = 1; i <= (circle - 1) / 2; i++)
            measure_pair(c, (round + i) % circle, (round - i + circle) % circle);
        wait_for(c, MEASURE_BUDGET, silent);
    }
}

/* Another program may have disturbed the first measurement. */
static void copy_again(driver *c) {
    for (int i = 0; i < c->report->count; i++) {
        if (!alive(c, i) || !gw_doctor_memory_suspect(c->report, i)) continue;
        copy_memory(c, i);
        wait_for(c, MEMORY_BUDGET, silent);
    }
}

/* False: nothing looked slow. */
static bool measure_again(driver *c) {
    int pairs[AGAIN_MAX][2], count = 0;
    for (int a = 0; a < c->report->count; a++)
        for (int b = a + 1; b < c->report->count && count < AGAIN_MAX; b++)
            if (alive(c, a) && alive(c, b) && gw_doctor_link_suspect(c->report, a, b)) {
                pairs[count][0] = a;
                pairs[count++][1] = b;
            }
    if (!count) return false;
    begin(c, "measuring slow pairs again", count);
    for (c->step = 1; c->step <= count; c->step++) {
        measure_pair(c, pairs[c->step - 1][0], pairs[c->step - 1][1]);
        wait_for(c, MEASURE_BUDGET, silent);
    }
    return true;
}

static void measure_suspects(driver *c) {
    for (int i = 0; i < REPEATS; i++) {
        copy_again(c);
        if (!measure_again(c)) return;
    }
}

/* ---- the whole examination ---- */

static gw_status prepare(driver *c, gw_error *error) {
    int count = c->report->count;
    c->probes = (gw_probe_processes){.count = count, .ctx = c, .received = take_report};
    c->probes.list = calloc((size_t)count, sizeof *c->probes.list);
    if (!c->probes.list) return gw_fail(error, GW_MEMORY, "no memory for %d hosts", count);
    for (int i = 0; i < count; i++) {
        gw_host_connection *o = &c->probes.list[i].connection;
        o->to = o->from = o->errors = -1;
        if (c->options->repeated)
            snprintf(c->report->hosts[i].name, GW_DOCTOR_NAME_BYTES, "%.240s/%d", c->options->hosts->list[0].name, i);
        else snprintf(c->report->hosts[i].name, GW_DOCTOR_NAME_BYTES, "%s", c->options->hosts->list[i].name);
    }
    return GW_OK;
}

gw_status gw_doctor_drive(const gw_doctor_drive_options *options, gw_doctor_report *report, gw_error *error) {
    int count = options->repeated ? options->hosts->list[0].slots : options->hosts->count;
    if (count > GW_DOCTOR_HOSTS_MAX)
        return gw_fail(error, GW_INVALID, "the doctor examines at most %d hosts at once, not %d", GW_DOCTOR_HOSTS_MAX,
                       count);
    driver *c = calloc(1, sizeof *c);
    if (!c || !gw_doctor_report_init(report, count)) {
        free(c);
        return gw_fail(error, GW_MEMORY, "no memory for %d hosts", count);
    }
    c->options = options;
    c->report = report;
    signal(SIGPIPE, SIG_IGN); /* a probe may end while a command is written */
    gw_status status = prepare(c, error);
    if (!status) {
        start(c);
        status = open_all(c, error);
        introduce(c);
        resolve(c);
        measure_memory(c);
        find_transports(c);
        reach(c);
        measure_all(c);
        measure_suspects(c);
        gw_probe_processes_close(&c->probes);
    }
    if (status) gw_doctor_report_free(report);
    free(c);
    return status;
}
