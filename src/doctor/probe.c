/* probe.c - see probe.h. One thread takes commands and accepts peers. Measurements, their serving ends and name lookups
 * block, so each has a thread of its own, which ends with its work or with the process. */
#include "doctor/probe.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/connection_manager.h"
#include "doctor/available_transports.h"
#include "doctor/host_facts.h"
#include "doctor/probe_peer.h"
#include "doctor/report_line.h"
#include "launch/byte_queue.h"

enum { GENERATION_REACH = 0 }; /* for connections that only test a port; measurements count from 1 */

static const char job_name[] = "doctor";

typedef struct peer {
    char name[GW_DOCTOR_NAME_BYTES];
    gw_address address;
    int ports[GW_DOCTOR_PORTS_MAX], port_count;
    int awaited;     /* dialled ports without a result */
    uint32_t closed; /* bit i: ports[i] was not reached */
    char why[GW_DOCTOR_WHY_BYTES];
} peer;

/* A measurement that is being connected. */
typedef struct setup {
    uint32_t generation; /* of the last measurement */
    bool open;
    int peer, mtu, have;
    int fds[GW_PEER_STREAMS];
} setup;

typedef struct probe {
    int in, out;
    int rank, world;
    gw_connections *managers[GW_DOCTOR_PORTS_MAX]; /* one per port */
    int ports[GW_DOCTOR_PORTS_MAX], count;
    gw_address address;
    peer *peers; /* world, owned; NULL until opened */
    setup setup;
    gw_buffer commands;
} probe;

/* ---- reports ---- */

static void report(int out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One write, so that the lines of several threads stay whole. */
static void report(int out, const char *format, ...) {
    char line[GW_DOCTOR_LINE_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ') line[i] = '?';
    line[length++] = '\n';
    if (write(out, line, (size_t)length) < 0) return; /* the doctor is gone: the commands end, too */
}

static bool detach(void *(*run)(void *), void *ctx) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, ctx) != 0) return false;
    pthread_detach(thread);
    return true;
}

/* ---- reach ---- */

static void settle(probe *p, int number) {
    peer *other = &p->peers[number];
    if (--other->awaited == 0) report(p->out, "reached peer=%d closed=%u text=%s", number, other->closed, other->why);
}

static void unreached(probe *p, int number, int port, const char *why) {
    peer *other = &p->peers[number];
    if (!other->closed) snprintf(other->why, sizeof other->why, "%s", why);
    other->closed |= UINT32_C(1) << port;
    settle(p, number);
}

static gw_status dial(probe *p, int number, int port, uint32_t generation, uint32_t stream, int seconds) {
    gw_intro mine = {.purpose = GW_PURPOSE_DATA, .from = p->rank, .to = number, .world = p->world,
                     .generation = generation, .stream = stream};
    gw_address address = p->peers[number].address;
    gw_error ignored = {0};
    gw_address_set_port(&address, p->peers[number].ports[port]);
    return gw_connections_dial(p->managers[0], &address, 1, &mine, gw_clock_now() + (gw_time)seconds * GW_SECOND,
                               &ignored);
}

static void reach(probe *p) {
    for (int i = 0; i < p->world; i++) {
        peer *other = &p->peers[i];
        if (i == p->rank || !other->port_count) continue;
        other->awaited = other->port_count;
        other->closed = 0;
        other->why[0] = 0;
        for (int port = 0; port < other->port_count; port++)
            if (dial(p, i, port, GENERATION_REACH, (uint32_t)port, GW_PROBE_REACH_SECONDS) != GW_OK)
                unreached(p, i, port, "no memory");
    }
}

/* ---- measure ---- */

typedef struct task {
    int out, peer, mtu;
    int fds[GW_PEER_STREAMS];
} task;

static void *run_task(void *ctx) {
    task *t = ctx;
    gw_peer_figures f;
    if (gw_peer_measure(t->fds, t->mtu, &f))
        report(t->out,
               "measured peer=%d latency=%.9g best=%.9g skew=%.9g out=%.9g in=%.9g mtu_out=%d mtu_in=%d local=%s "
               "seen=%s remote=%s",
               t->peer, f.latency, f.latency_best, f.skew, f.out, f.in, f.mtu_out, f.mtu_in, f.local, f.seen, f.remote);
    else report(t->out, "unmeasured peer=%d text=the conversation broke off", t->peer);
    for (int i = 0; i < GW_PEER_STREAMS; i++) close(t->fds[i]);
    free(t);
    return NULL;
}

static void drop_setup(probe *p, const char *why) {
    setup *m = &p->setup;
    if (!m->open) return;
    m->open = false;
    for (int i = 0; i < GW_PEER_STREAMS; i++)
        if (m->fds[i] >= 0) close(m->fds[i]);
    report(p->out, "unmeasured peer=%d text=%s", m->peer, why);
}

static void measure(probe *p, const char *line) {
    setup *m = &p->setup;
    int number, port, mtu;
    if (!gw_report_line_integer(line, "peer", 0, p->world - 1, &number) || number == p->rank ||
        !gw_report_line_integer(line, "port", 0, p->peers[number].port_count - 1, &port) ||
        !gw_report_line_integer(line, "mtu", 0, INT32_MAX, &mtu))
        return;
    drop_setup(p, "another measurement was ordered");
    *m = (setup){.generation = m->generation + 1, .open = true, .peer = number, .mtu = mtu, .fds = {-1, -1, -1}};
    for (int i = 0; i < GW_PEER_STREAMS; i++)
        if (dial(p, number, port, m->generation, (uint32_t)i, GW_PROBE_DIAL_SECONDS) != GW_OK)
            drop_setup(p, "no memory");
}

static void begin_task(probe *p) {
    setup *m = &p->setup;
    task *t = malloc(sizeof *t);
    if (t) *t = (task){.out = p->out, .peer = m->peer, .mtu = m->mtu};
    if (t) memcpy(t->fds, m->fds, sizeof t->fds);
    if (t && detach(run_task, t)) {
        m->open = false;
        return;
    }
    free(t);
    drop_setup(p, "no memory");
}

/* ---- callbacks of the connection manager ---- */

static void *serve(void *fd) {
    gw_peer_serve((int)(intptr_t)fd);
    return NULL;
}

/* Measurements run in the clear: their bytes say nothing. */
static void established(void *ctx, const gw_intro *intro, int fd, bool dialled, const gw_traffic_keys *keys) {
    (void)keys;
    probe *p = ctx;
    setup *m = &p->setup;
    if (!dialled) {
        if (intro->generation == GENERATION_REACH || !detach(serve, (void *)(intptr_t)fd)) close(fd);
    } else if (intro->generation == GENERATION_REACH) {
        close(fd);
        settle(p, intro->from);
    } else if (m->open && intro->generation == m->generation && intro->stream < GW_PEER_STREAMS) {
        m->fds[intro->stream] = fd;
        if (++m->have == GW_PEER_STREAMS) begin_task(p);
    } else {
        close(fd);
    }
}

static void failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    probe *p = ctx;
    (void)status;
    if (mine->generation == GENERATION_REACH) unreached(p, mine->to, (int)mine->stream, detail);
    else if (mine->generation == p->setup.generation) drop_setup(p, detail);
}

/* ---- the other commands ---- */

static void listen_at(probe *p, int port, const gw_token *token, gw_error *error) {
    const gw_connection_handler handler = {.ctx = p, .established = established, .failed = failed};
    gw_connections *connections;
    if (gw_connections_open(&connections, p->rank, p->world, token, job_name, error) != GW_OK) return;
    if (gw_connections_listen(connections, &p->address, port, port, error) != GW_OK) {
        gw_connections_close(connections);
        return;
    }
    gw_connections_serve(connections, GW_PURPOSE_DATA, &handler);
    p->ports[p->count] = gw_address_port(gw_connections_address(connections, 0));
    p->managers[p->count++] = connections;
}

static void report_opened(probe *p, const char *interface, int mtu) {
    char address[GW_ADDRESS_TEXT], ports[GW_DOCTOR_PORTS_MAX * 6 + 1] = "";
    size_t used = 0;
    for (int i = 0; i < p->count; i++)
        used += (size_t)snprintf(ports + used, sizeof ports - used, "%s%d", i ? "," : "", p->ports[i]);
    report(p->out, "opened address=%s interface=%s mtu=%d ports=%s", gw_address_host_text(&p->address, address),
           interface, mtu, ports);
}

/* A port in use is skipped, as a rank would skip it. */
static void open_up(probe *p, const char *line) {
    char master[GW_DOCTOR_NAME_BYTES], selection[256] = "", interface[IF_NAMESIZE];
    gw_token token = {0};
    gw_error error = {0};
    int ports[GW_DOCTOR_PORTS_MAX], mtu = 0;
    int count = gw_report_line_list(line, "ports", 0, 65535, ports, GW_DOCTOR_PORTS_MAX);
    gw_report_line_text(line, "interface", selection, sizeof selection);
    if (p->peers || !count || !gw_report_line_integer(line, "world", 1, GW_DOCTOR_HOSTS_MAX, &p->world) ||
        !gw_report_line_integer(line, "rank", 0, p->world - 1, &p->rank) ||
        !gw_report_line_text(line, "master", master, sizeof master) ||
        !gw_report_line_text(line, "token", token.text, sizeof token.text))
        gw_fail(&error, GW_PROTOCOL, "this is not the doctor of the same version on the other side");
    if (!error.status && !(p->peers = calloc((size_t)p->world, sizeof *p->peers)))
        gw_fail(&error, GW_MEMORY, "no memory for %d peers", p->world);
    if (!error.status && gw_facts_address(master, selection, &p->address, interface, &mtu, &error) == GW_OK) {
        for (int i = 0; i < count; i++) listen_at(p, ports[i], &token, &error);
        if (p->count) error = (gw_error){0};
    }
    gw_token_wipe(&token);
    if (error.status) report(p->out, "failed text=%s", error.text);
    else report_opened(p, interface, mtu);
}

static void add_peer(probe *p, const char *line) {
    peer other = {0};
    char address[GW_ADDRESS_TEXT];
    int number;
    if (!gw_report_line_integer(line, "rank", 0, p->world - 1, &number) ||
        !gw_report_line_text(line, "address", address, sizeof address) || !gw_address_literal(address, &other.address))
        return;
    other.port_count = gw_report_line_list(line, "ports", 1, 65535, other.ports, GW_DOCTOR_PORTS_MAX);
    gw_report_line_text(line, "text", other.name, sizeof other.name);
    p->peers[number] = other;
}

/* A copy of the peers, because the resolver may take long. */
typedef struct name_lookup {
    int out, rank, world;
    peer peers[];
} name_lookup;

static void *run_lookup(void *ctx) {
    name_lookup *q = ctx;
    for (int i = 0; i < q->world; i++) {
        char text[GW_DOCTOR_ADDRESS_BYTES];
        if (i == q->rank || !q->peers[i].port_count) continue;
        gw_facts_resolve(q->peers[i].name, text);
        report(q->out, "resolved peer=%d text=%s", i, text);
    }
    free(q);
    return NULL;
}

static void resolve(const probe *p) {
    size_t bytes = (size_t)p->world * sizeof p->peers[0];
    name_lookup *q = malloc(sizeof *q + bytes);
    if (!q) return;
    *q = (name_lookup){.out = p->out, .rank = p->rank, .world = p->world};
    memcpy(q->peers, p->peers, bytes);
    if (!detach(run_lookup, q)) free(q);
}

static void report_transports(int out) {
    gw_transport_probe list[GW_TRANSPORT_PROBES_MAX];
    int count = gw_transport_probes_find(list);
    for (int i = 0; i < count; i++)
        report(out, "transport more=%d usable=%d name=%s text=%s", i + 1 < count, list[i].usable, list[i].name,
               list[i].detail);
}

static void run_command(probe *p, const char *line) {
    if (gw_report_line_is(line, "open")) open_up(p, line);
    else if (!p->peers || !p->count) return;
    else if (gw_report_line_is(line, "peer")) add_peer(p, line);
    else if (gw_report_line_is(line, "resolve")) resolve(p);
    else if (gw_report_line_is(line, "memory")) report(p->out, "memory rate=%.6g", gw_facts_memory());
    else if (gw_report_line_is(line, "transports")) report_transports(p->out);
    else if (gw_report_line_is(line, "reach")) reach(p);
    else if (gw_report_line_is(line, "measure")) measure(p, line);
}

/* ---- the loop ---- */

static void take_commands(probe *p) {
    char line[GW_DOCTOR_LINE_BYTES];
    size_t size;
    while ((size = gw_buffer_size(&p->commands))) {
        const char *head = gw_buffer_head(&p->commands), *newline = memchr(head, '\n', size);
        if (!newline) return;
        size_t length = (size_t)(newline - head);
        if (length < sizeof line) {
            memcpy(line, head, length);
            line[length] = 0;
            run_command(p, line);
        }
        gw_buffer_take(&p->commands, length + 1);
    }
}

static int until_next_deadline(const probe *p) {
    gw_time next = UINT64_MAX, now = gw_clock_now();
    for (int i = 0; i < p->count; i++) {
        gw_time own = gw_connections_next_deadline(p->managers[i]);
        if (own < next) next = own;
    }
    if (next <= now) return 0;
    return next - now > GW_SECOND ? 1000 : (int)((next - now) / GW_MILLISECOND + 1);
}

gw_status gw_probe_run(int in, int out, gw_error *error) {
    probe p = {.in = in, .out = out};
    char boot[GW_BOOT_BYTES];
    signal(SIGPIPE, SIG_IGN);
    gw_facts_boot(boot);
    report(out, GW_PROBE_HELLO " version=%d boot=%s", GW_PROBE_VERSION, boot);
    for (;;) {
        struct pollfd polls[1 + GW_DOCTOR_PORTS_MAX] = {{.fd = in, .events = POLLIN}};
        for (int i = 0; i < p.count; i++)
            polls[1 + i] = (struct pollfd){.fd = gw_connections_fd(p.managers[i]), .events = POLLIN};
        if (poll(polls, (nfds_t)(1 + p.count), until_next_deadline(&p)) < 0) continue;
        for (int i = 0; i < p.count; i++) gw_connections_poll(p.managers[i], gw_clock_now());
        if (!polls[0].revents) continue;
        if (gw_buffer_read(&p.commands, in) == 0) break;
        take_commands(&p);
    }
    for (int i = 0; i < p.count; i++) gw_connections_close(p.managers[i]);
    gw_status status = p.commands.failed ? gw_fail(error, GW_MEMORY, "no memory for the doctor's commands") : GW_OK;
    gw_buffer_free(&p.commands);
    free(p.peers);
    return status;
}
