/* host.c - rank 0 collects the records of all ranks, checks that they fit together, and answers all at once: with the
 * table, or with the one sentence that says why there is none. */
#include "transport/host.h"

#include "base/descriptor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TIME GW_SECOND      /* to get the answer out, beyond the deadline */
#define LATECOMERS (2 * GW_SECOND) /* how long bad news waits for those still on their way */

/* One that has joined, or tries to. */
typedef struct visitor {
    int fd; /* -1: gone */
    gw_intro intro;
    uint8_t record[GW_ENDPOINT_BYTES];
    size_t have, sent; /* bytes of the record, of the answer */
} visitor;

typedef struct host {
    gw_gateway *gateway;
    const gw_meeting *meeting;
    const char *where;
    int world;
    gw_time start;
    gw_endpoint *all;
    bool *arrived; /* per rank */
    int missing;   /* ranks that have not arrived */
    int told;      /* visitors that have the whole answer */
    int expected;  /* visitors there will be if the largest world anyone believes in is right */
    visitor *visitors;
    struct pollfd *fds; /* visitors, and the gateway */
    int count, room;    /* of visitors */
    uint8_t *answer;    /* NULL while gathering */
    size_t answer_bytes;
    gw_error *error;
} host;

void gw_rendezvous_sleep(struct pollfd *fds, int count, gw_time until) {
    gw_time now = gw_clock_now();
    if (until <= now) return;
    gw_time ms = (until - now + GW_MILLISECOND - 1) / GW_MILLISECOND;
    poll(fds, (nfds_t)count, ms < 1000 ? (int)ms : 1000);
}

bool gw_rendezvous_off(const gw_meeting *meeting) { return meeting->off && meeting->off(meeting->ctx); }

gw_time gw_rendezvous_look(const gw_meeting *meeting, gw_time until) {
    gw_time soon = gw_clock_now() + 20 * GW_MILLISECOND;
    return meeting->off && soon < until ? soon : until;
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static void leave(visitor *v) {
    gw_fd_close(v->fd);
    v->fd = -1;
}

static bool make_room(host *h) {
    if (h->count < h->room) return true;
    int room = h->room ? 2 * h->room : 16;
    visitor *visitors = realloc(h->visitors, (size_t)room * sizeof *visitors);
    if (visitors) h->visitors = visitors;
    struct pollfd *fds = realloc(h->fds, ((size_t)room + 1) * sizeof *fds);
    if (fds) h->fds = fds;
    if (!visitors || !fds) return false;
    h->room = room;
    return true;
}

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled) {
    host *h = ctx;
    if (dialled || !make_room(h)) {
        gw_fd_close(fd);
        return;
    }
    h->visitors[h->count++] = (visitor){.fd = fd, .intro = *peer};
    if (peer->world - 1 > h->expected) h->expected = peer->world - 1;
}

/* "rank 3", "ranks 3, 5-7", cut where the room ends. */
static void list_missing(const host *h, char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, h->missing == 1 ? "rank" : "ranks");
    for (int rank = 0, shown = 0; rank < h->world; rank++) {
        if (h->arrived[rank]) continue;
        if (used + 40 > room) {
            snprintf(text + used, room - used, ", ... (%d in all)", h->missing);
            return;
        }
        int last = rank;
        while (last + 1 < h->world && !h->arrived[last + 1]) last++;
        used += (size_t)snprintf(text + used, room - used, "%s %d", shown++ ? "," : "", rank);
        if (last > rank) used += (size_t)snprintf(text + used, room - used, last > rank + 1 ? "-%d" : ", %d", last);
        rank = last;
    }
}

static double seconds(const host *h) { return (double)(gw_clock_now() - h->start) / (double)GW_SECOND; }

static void fail_missing(host *h) {
    char who[160];
    list_missing(h, who, sizeof who);
    unsigned long long strangers = gw_gateway_strangers(h->gateway);
    gw_fail(h->error, GW_TIMEOUT,
            "%s of %d %s not arrived at %s after %.0f s: check that they run, that MASTER_ADDR and MASTER_PORT are the "
            "same everywhere, that no firewall is between, and that all have the same token (strangers refused: "
            "%llu)",
            who, h->world, h->missing == 1 ? "has" : "have", h->where, seconds(h), strangers);
}

static void fail_lost(host *h, const visitor *v, const char *why) {
    char who[160] = "the table of ranks to be sent";
    const gw_endpoint *e = &h->all[v->intro.from];
    if (h->missing) list_missing(h, who, sizeof who);
    h->expected--;
    gw_fail_rank(h->error, GW_PEER_LOST, v->intro.from,
                 "rank %d on %s (process %u) went away (%s) while it waited at %s for %s: see that rank's own error",
                 v->intro.from, e->host, e->pid, why, h->where, who);
}

static void check_in(host *h, visitor *v) {
    gw_endpoint e;
    const gw_endpoint *zero = &h->all[0];
    if (gw_endpoint_read(&e, v->record, v->intro.world, h->error) != GW_OK) return;
    if (e.rank != v->intro.from) {
        gw_fail_rank(h->error, GW_PROTOCOL, v->intro.from, "rank %d on %s calls itself rank %d in its record",
                     v->intro.from, e.host, e.rank);
    } else if (v->intro.world != h->world) {
        gw_fail_rank(h->error, GW_MISMATCH, e.rank,
                     "ranks disagree about the size of the job: rank %d on %s (process %u) says %d, rank 0 on %s "
                     "(process %u) says %d: give all the same WORLD_SIZE",
                     e.rank, e.host, e.pid, v->intro.world, zero->host, zero->pid, h->world);
    } else if (h->arrived[e.rank]) {
        const gw_endpoint *first = &h->all[e.rank];
        h->expected++;
        gw_fail_rank(h->error, GW_MISMATCH, e.rank,
                     "rank %d has come twice: from %s (process %u) and from %s (process %u): give every process a RANK "
                     "of its own, and every job a MASTER_PORT of its own",
                     e.rank, first->host, first->pid, e.host, e.pid);
    } else {
        h->all[e.rank] = e;
        h->arrived[e.rank] = true;
        h->missing--;
    }
}

/* Also notices, once the record is here, that the visitor hangs up. */
static void hear(host *h, visitor *v) {
    uint8_t beyond;
    bool complete = v->have == sizeof v->record;
    ssize_t got =
        complete ? recv(v->fd, &beyond, 1, 0) : recv(v->fd, v->record + v->have, sizeof v->record - v->have, 0);
    if (got < 0 && would_block()) return;
    if (got <= 0) {
        if (complete && h->error->status == GW_OK) fail_lost(h, v, got == 0 ? "end of stream" : strerrordesc_np(errno));
        leave(v);
    } else if (complete) {
        gw_fail_rank(h->error, GW_PROTOCOL, v->intro.from, "rank %d sent more than its record to rank 0",
                     v->intro.from);
        leave(v);
    } else {
        v->have += (size_t)got;
        if (v->have == sizeof v->record && !h->answer) check_in(h, v);
    }
}

/* A visitor leaves when it has the answer and we have its record: closing a socket with unread bytes would take the
 * answer back. */
static void tell(host *h, visitor *v) {
    size_t left = h->answer_bytes - v->sent;
    ssize_t sent = left ? send(v->fd, h->answer + v->sent, left, MSG_NOSIGNAL) : 0;
    if (sent < 0 && would_block()) return;
    if (sent < 0) {
        if (h->error->status == GW_OK) fail_lost(h, v, strerrordesc_np(errno));
        leave(v);
        return;
    }
    v->sent += (size_t)sent;
    if (v->sent < h->answer_bytes || v->have < sizeof v->record) return;
    h->told++;
    leave(v);
}

static int present(const host *h) {
    int present = 0;
    for (int i = 0; i < h->count; i++) present += h->visitors[i].fd >= 0;
    return present;
}

/* One round: sleep until something can be done, and do it. */
static void serve(host *h, gw_time deadline) {
    gw_time until = gw_gateway_next_deadline(h->gateway);
    for (int i = 0; i < h->count; i++) {
        const visitor *v = &h->visitors[i];
        bool talks = h->answer && v->sent < h->answer_bytes;
        h->fds[i] = (struct pollfd){.fd = v->fd, .events = (short)(POLLIN | (talks ? POLLOUT : 0))};
    }
    h->fds[h->count] = (struct pollfd){.fd = gw_gateway_fd(h->gateway), .events = POLLIN};
    if (deadline < until) until = deadline;
    gw_rendezvous_sleep(h->fds, h->count + 1, gw_rendezvous_look(h->meeting, until));
    for (int i = 0; i < h->count && (h->answer || h->error->status == GW_OK); i++) {
        visitor *v = &h->visitors[i];
        if (v->fd >= 0) hear(h, v);
        if (v->fd >= 0 && h->answer) tell(h, v);
    }
    gw_gateway_poll(h->gateway, gw_clock_now());
}

static void gather(host *h, gw_time deadline) {
    while (h->error->status == GW_OK && h->missing > 0) {
        if (gw_clock_now() >= deadline)
            fail_missing(h);
        else if (gw_rendezvous_off(h->meeting))
            gw_fail(h->error, GW_ABORTED, "the roll has been called anew");
        else
            serve(h, deadline);
    }
}

static bool write_answer(host *h) {
    gw_reply reply = {.status = h->error->status, .rank = h->error->rank};
    bool table = reply.status == GW_OK;
    if (table) reply.rank = -1;
    reply.length = (uint32_t)(table ? (size_t)h->world * GW_ENDPOINT_BYTES : strlen(h->error->text));
    h->answer_bytes = GW_REPLY_BYTES + reply.length;
    h->answer = malloc(h->answer_bytes);
    if (!h->answer) return false;
    gw_reply_write(&reply, h->answer);
    if (!table) memcpy(h->answer + GW_REPLY_BYTES, h->error->text, reply.length);
    for (int rank = 0; table && rank < h->world; rank++)
        gw_endpoint_write(&h->all[rank], h->answer + GW_REPLY_BYTES + (size_t)rank * GW_ENDPOINT_BYTES);
    return true;
}

/* After a disagreement those who are still on their way would otherwise wait for nothing. But where all are called to
 * another meeting, nobody comes any more. */
static void answer(host *h, gw_time deadline) {
    bool late = h->error->status == GW_MISMATCH || h->error->status == GW_PEER_LOST || h->error->status == GW_PROTOCOL;
    gw_time now = gw_clock_now(), stay = late ? now + LATECOMERS : now;
    if (stay > deadline) stay = deadline;
    gw_time end = ANSWER_TIME + (late ? stay : now > deadline ? now : deadline);
    while (now < end && (present(h) > 0 || (now < stay && h->told < h->expected)) && !gw_rendezvous_off(h->meeting)) {
        serve(h, present(h) > 0 ? end : stay);
        now = gw_clock_now();
    }
    if (h->error->status == GW_OK && h->told < h->world - 1)
        gw_fail(h->error, GW_TIMEOUT, "%d of %d ranks did not take the table of ranks from %s in time",
                h->world - 1 - h->told, h->world, h->where);
}

gw_status gw_rendezvous_host(gw_gateway *gateway, const gw_meeting *meeting, const gw_endpoint *mine, int world,
                             gw_time deadline, gw_endpoint *all, gw_error *error) {
    host h = {.gateway = gateway, .meeting = meeting, .where = meeting->text, .world = world,
              .start = gw_clock_now(), .all = all};
    h.error = error;
    h.missing = h.expected = world - 1;
    h.arrived = calloc((size_t)world, sizeof *h.arrived);
    if (!h.arrived || !make_room(&h)) {
        gw_fail(error, GW_MEMORY, "out of memory for the table of %d ranks", world);
        goto done;
    }
    h.arrived[0] = true;
    all[0] = *mine;
    gw_gateway_serve(gateway, GW_PURPOSE_JOIN, &(gw_gateway_room){&h, on_established, NULL});
    gather(&h, deadline);
    if (write_answer(&h))
        answer(&h, deadline);
    else
        gw_fail(error, GW_MEMORY, "out of memory for the table of %d ranks", world);
    gw_gateway_shut(gateway, GW_PURPOSE_JOIN);
done:
    for (int i = 0; i < h.count; i++)
        if (h.visitors[i].fd >= 0) leave(&h.visitors[i]);
    free(h.answer);
    free(h.fds);
    free(h.visitors);
    free(h.arrived);
    return error->status;
}
