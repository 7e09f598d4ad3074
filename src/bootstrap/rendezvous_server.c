/* rendezvous_server.c - rank 0 collects the records of all ranks, checks that they fit together, and answers all at
 * once: with the table, or with the one sentence that says why there is none. */
#include "bootstrap/rendezvous_server.h"

#include "base/fork_descriptors.h"
#include "bootstrap/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TIME GW_SECOND     /* to send the answer, beyond the deadline */
#define LATE_TIME (2 * GW_SECOND) /* how long an error waits for ranks still on their way */

/* A rank that has joined, or tries to. */
typedef struct joiner {
    gw_channel *channel; /* NULL: gone */
    gw_intro intro;
    uint8_t record[GW_ENDPOINT_BYTES];
    size_t have, sent; /* bytes of the record, of the answer */
    bool flushed;      /* the answer is handed to the kernel */
} joiner;

typedef struct server {
    gw_connections *connections;
    const gw_rendezvous_address *rendezvous;
    const char *where;
    int world;
    gw_time start;
    gw_endpoint *all;
    bool *arrived; /* per rank */
    int missing;   /* ranks that have not arrived */
    int answered;  /* joiners that have the whole answer */
    int expected;  /* joiners to expect, by the largest world that any rank claims */
    joiner *joiners;
    struct pollfd *fds; /* joiners, then the connection manager */
    int count, room;    /* of joiners */
    uint8_t *answer;    /* NULL while records are collected */
    size_t answer_bytes;
    gw_error *error;
} server;

void gw_rendezvous_sleep(struct pollfd *fds, int count, gw_time until) {
    gw_time now = gw_clock_now();
    if (until <= now) return;
    gw_time ms = (until - now + GW_MILLISECOND - 1) / GW_MILLISECOND;
    poll(fds, (nfds_t)count, ms < 1000 ? (int)ms : 1000);
}

bool gw_rendezvous_cancelled(const gw_rendezvous_address *rendezvous) {
    return rendezvous->off && rendezvous->off(rendezvous->ctx);
}

gw_time gw_rendezvous_wake_time(const gw_rendezvous_address *rendezvous, gw_time until) {
    gw_time soon = gw_clock_now() + 20 * GW_MILLISECOND;
    return rendezvous->off && soon < until ? soon : until;
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static void hang_up(joiner *j) {
    gw_channel_close(j->channel);
    j->channel = NULL;
}

static bool reserve_joiner(server *s) {
    if (s->count < s->room) return true;
    int room = s->room ? 2 * s->room : 16;
    joiner *joiners = realloc(s->joiners, (size_t)room * sizeof *joiners);
    if (joiners) s->joiners = joiners;
    struct pollfd *fds = realloc(s->fds, ((size_t)room + 1) * sizeof *fds);
    if (fds) s->fds = fds;
    if (!joiners || !fds) return false;
    s->room = room;
    return true;
}

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    server *s = ctx;
    gw_channel *channel;
    if (dialled || !reserve_joiner(s)) {
        gw_fd_close(fd);
        return;
    }
    if (gw_channel_open(&channel, fd, keys, s->error) != GW_OK) return;
    s->joiners[s->count++] = (joiner){.channel = channel, .intro = *peer};
    if (peer->world - 1 > s->expected) s->expected = peer->world - 1;
}

/* "rank 3", "ranks 3, 5-7", cut to fit. */
static void list_missing(const server *s, char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, s->missing == 1 ? "rank" : "ranks");
    for (int rank = 0, shown = 0; rank < s->world; rank++) {
        if (s->arrived[rank]) continue;
        if (used + 40 > room) {
            snprintf(text + used, room - used, ", ... (%d in all)", s->missing);
            return;
        }
        int last = rank;
        while (last + 1 < s->world && !s->arrived[last + 1]) last++;
        used += (size_t)snprintf(text + used, room - used, "%s %d", shown++ ? "," : "", rank);
        if (last > rank) used += (size_t)snprintf(text + used, room - used, last > rank + 1 ? "-%d" : ", %d", last);
        rank = last;
    }
}

static double seconds(const server *s) { return (double)(gw_clock_now() - s->start) / (double)GW_SECOND; }

static void fail_missing(server *s) {
    char who[160];
    list_missing(s, who, sizeof who);
    if (gw_connections_starved(s->connections)) { /* so the network is not to blame */
        gw_fail(s->error, GW_SYSTEM,
                "%s of %d %s not arrived at %s after %.0f s: rank 0 has no descriptors left for connections to them: "
                "raise ulimit -n",
                who, s->world, s->missing == 1 ? "has" : "have", s->where, seconds(s));
        return;
    }
    unsigned long long strangers = gw_connections_strangers(s->connections);
    gw_fail(s->error, GW_TIMEOUT,
            "%s of %d %s not arrived at %s after %.0f s: check that they run, that MASTER_ADDR and MASTER_PORT are the "
            "same everywhere, that no firewall is between, and that all have the same token (strangers refused: "
            "%llu)",
            who, s->world, s->missing == 1 ? "has" : "have", s->where, seconds(s), strangers);
}

static void fail_lost(server *s, const joiner *j, const char *why) {
    char who[160] = "the table of ranks to be sent";
    if (j->intro.from >= s->world) return; /* it came when the table was complete, and is not in it */
    const gw_endpoint *e = &s->all[j->intro.from];
    if (s->missing) list_missing(s, who, sizeof who);
    s->expected--;
    gw_fail_rank(s->error, GW_PEER_LOST, j->intro.from,
                 "rank %d on %s (process %u) went away (%s) while it waited at %s for %s: see that rank's own error",
                 j->intro.from, e->host, e->pid, why, s->where, who);
}

static void fail_altered(server *s, const joiner *j) {
    s->expected--;
    gw_fail_rank(s->error, GW_PROTOCOL, j->intro.from, "rank %d cannot join at %s: %s", j->intro.from, s->where,
                 gw_channel_why(EBADMSG));
}

/* Otherwise one side would find out in the middle of the job, when it meets a connection that it does not expect. */
static void fail_asked(server *s, const gw_endpoint *e, gw_security_choice asked) {
    const gw_endpoint *zero = &s->all[0];
    gw_fail_rank(s->error, GW_MISMATCH, e->rank,
                 "ranks disagree about the protection of connections: rank %d on %s (process %u) says security=%s, "
                 "rank 0 on %s (process %u) says security=%s: give all the same strategy",
                 e->rank, e->host, e->pid, gw_security_choice_names[asked], zero->host, zero->pid,
                 gw_security_choice_names[gw_connections_asked(s->connections)]);
}

static void register_rank(server *s, joiner *j) {
    gw_endpoint e;
    const gw_endpoint *zero = &s->all[0];
    if (gw_endpoint_read(&e, j->record, j->intro.world, s->error) != GW_OK) return;
    if (e.rank != j->intro.from) {
        gw_fail_rank(s->error, GW_PROTOCOL, j->intro.from, "rank %d on %s calls itself rank %d in its record",
                     j->intro.from, e.host, e.rank);
    } else if (j->intro.world != s->world) {
        gw_fail_rank(s->error, GW_MISMATCH, e.rank,
                     "ranks disagree about the size of the job: rank %d on %s (process %u) says %d, rank 0 on %s "
                     "(process %u) says %d: give all the same WORLD_SIZE",
                     e.rank, e.host, e.pid, j->intro.world, zero->host, zero->pid, s->world);
    } else if (j->intro.asked != gw_connections_asked(s->connections)) {
        fail_asked(s, &e, j->intro.asked);
    } else if (memcmp(e.public_key, j->intro.public_key, GW_KEY_BYTES) != 0) {
        gw_fail_rank(s->error, GW_PROTOCOL, e.rank, "rank %d on %s names a key in its record that is not its own",
                     e.rank, e.host);
    } else if (s->arrived[e.rank]) {
        const gw_endpoint *first = &s->all[e.rank];
        s->expected++;
        gw_fail_rank(s->error, GW_MISMATCH, e.rank,
                     "rank %d has come twice: from %s (process %u) and from %s (process %u): give every process a RANK "
                     "of its own, and every job a MASTER_PORT of its own",
                     e.rank, first->host, first->pid, e.host, e.pid);
    } else {
        s->all[e.rank] = e;
        s->arrived[e.rank] = true;
        s->missing--;
    }
}

/* Once the record is complete, also notices that the joiner closes the connection. */
static void receive_from(server *s, joiner *j) {
    uint8_t beyond;
    bool complete = j->have == sizeof j->record;
    ssize_t got = complete ? gw_channel_receive(j->channel, &beyond, 1)
                           : gw_channel_receive(j->channel, j->record + j->have, sizeof j->record - j->have);
    if (got < 0 && would_block()) return;
    if (got <= 0) {
        if (got < 0 && errno == EBADMSG && s->error->status == GW_OK) fail_altered(s, j);
        if (complete && s->error->status == GW_OK) fail_lost(s, j, got == 0 ? "end of stream" : gw_channel_why(errno));
        hang_up(j);
    } else if (complete) {
        gw_fail_rank(s->error, GW_PROTOCOL, j->intro.from, "rank %d sent more than its record to rank 0",
                     j->intro.from);
        hang_up(j);
    } else {
        j->have += (size_t)got;
        if (j->have == sizeof j->record && !s->answer) register_rank(s, j);
    }
}

/* A joiner's socket is closed when it has the answer and we have its record: closing a socket with unread bytes would
 * discard the answer. */
static void send_answer(server *s, joiner *j) {
    size_t left = s->answer_bytes - j->sent;
    ssize_t sent = left ? gw_channel_send(j->channel, s->answer + j->sent, left) : 0;
    if (sent < 0 && would_block()) return;
    if (sent < 0) {
        if (s->error->status == GW_OK) fail_lost(s, j, gw_channel_why(errno));
        hang_up(j);
        return;
    }
    j->sent += (size_t)sent;
    j->flushed = gw_channel_flush(j->channel) && j->sent == s->answer_bytes;
    if (!j->flushed || j->have < sizeof j->record) return;
    s->answered++;
    hang_up(j);
}

static int present(const server *s) {
    int present = 0;
    for (int i = 0; i < s->count; i++) present += s->joiners[i].channel != NULL;
    return present;
}

/* Sleeps until something can be done, and does it. */
static void serve(server *s, gw_time deadline) {
    gw_time until = gw_connections_next_deadline(s->connections);
    for (int i = 0; i < s->count; i++) {
        const joiner *j = &s->joiners[i];
        bool talks = s->answer && !j->flushed;
        s->fds[i] = (struct pollfd){.fd = gw_channel_fd(j->channel), .events = (short)(POLLIN | (talks ? POLLOUT : 0))};
    }
    s->fds[s->count] = (struct pollfd){.fd = gw_connections_fd(s->connections), .events = POLLIN};
    if (deadline < until) until = deadline;
    gw_rendezvous_sleep(s->fds, s->count + 1, gw_rendezvous_wake_time(s->rendezvous, until));
    for (int i = 0; i < s->count && (s->answer || s->error->status == GW_OK); i++) {
        joiner *j = &s->joiners[i];
        if (j->channel) receive_from(s, j);
        if (j->channel && s->answer) send_answer(s, j);
    }
    gw_connections_poll(s->connections, gw_clock_now());
}

static void collect(server *s, gw_time deadline) {
    while (s->error->status == GW_OK && s->missing > 0) {
        if (gw_clock_now() >= deadline) fail_missing(s);
        else if (gw_rendezvous_cancelled(s->rendezvous))
            gw_fail(s->error, GW_ABORTED, "the launcher has written a new roster");
        else serve(s, deadline);
    }
}

static bool write_answer(server *s) {
    gw_reply reply = {.status = s->error->status, .rank = s->error->rank};
    bool table = reply.status == GW_OK;
    if (table) reply.rank = -1;
    reply.length = (uint32_t)(table ? (size_t)s->world * GW_ENDPOINT_BYTES : strlen(s->error->text));
    s->answer_bytes = GW_REPLY_BYTES + reply.length;
    s->answer = malloc(s->answer_bytes);
    if (!s->answer) return false;
    gw_reply_write(&reply, s->answer);
    if (!table) memcpy(s->answer + GW_REPLY_BYTES, s->error->text, reply.length);
    for (int rank = 0; table && rank < s->world; rank++)
        gw_endpoint_write(&s->all[rank], s->answer + GW_REPLY_BYTES + (size_t)rank * GW_ENDPOINT_BYTES);
    return true;
}

/* Sends the answer to all joiners. After an error it also waits for ranks that are still on their way, which would
 * otherwise get no answer. Once the rendezvous is cancelled, no more ranks come. */
static void answer(server *s, gw_time deadline) {
    bool late = s->error->status == GW_MISMATCH || s->error->status == GW_PEER_LOST || s->error->status == GW_PROTOCOL;
    gw_time now = gw_clock_now(), stay = late ? now + LATE_TIME : now;
    if (stay > deadline) stay = deadline;
    gw_time end = ANSWER_TIME + (late ? stay : now > deadline ? now : deadline);
    while (now < end && (present(s) > 0 || (now < stay && s->answered < s->expected)) &&
           !gw_rendezvous_cancelled(s->rendezvous)) {
        serve(s, present(s) > 0 ? end : stay);
        now = gw_clock_now();
    }
    if (s->error->status == GW_OK && s->answered < s->world - 1)
        gw_fail(s->error, GW_TIMEOUT, "%d of %d ranks did not take the table of ranks from %s in time",
                s->world - 1 - s->answered, s->world, s->where);
}

gw_status gw_rendezvous_serve(gw_connections *connections, const gw_rendezvous_address *rendezvous,
                              const gw_endpoint *mine, int world, gw_time deadline, gw_endpoint *all, gw_error *error) {
    server s = {.connections = connections, .rendezvous = rendezvous, .where = rendezvous->text, .world = world,
              .start = gw_clock_now(), .all = all};
    s.error = error;
    s.missing = s.expected = world - 1;
    s.arrived = calloc((size_t)world, sizeof *s.arrived);
    if (!s.arrived || !reserve_joiner(&s)) {
        gw_fail(error, GW_MEMORY, "out of memory for the table of %d ranks", world);
        goto done;
    }
    s.arrived[0] = true;
    all[0] = *mine;
    gw_connections_serve(connections, GW_PURPOSE_JOIN, &(gw_connection_handler){&s, on_established, NULL});
    collect(&s, deadline);
    if (write_answer(&s)) answer(&s, deadline);
    else gw_fail(error, GW_MEMORY, "out of memory for the table of %d ranks", world);
    gw_connections_refuse(connections, GW_PURPOSE_JOIN);
done:
    for (int i = 0; i < s.count; i++) hang_up(&s.joiners[i]);
    free(s.answer);
    free(s.fds);
    free(s.joiners);
    free(s.arrived);
    return error->status;
}
