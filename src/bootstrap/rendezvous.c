/* rendezvous.c - see rendezvous.h: the side of ranks other than 0; that of rank 0 is in rendezvous_server.c. */
#include "bootstrap/rendezvous.h"

#include "base/fork_descriptors.h"
#include "bootstrap/channel.h"
#include "bootstrap/rendezvous_server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_GRACE GW_SECOND      /* rank 0 may be about to report the missing ranks */
#define PAUSE (20 * GW_MILLISECOND) /* before rank 0 is dialled again */

typedef struct join_state {
    gw_connections *connections;
    const gw_rendezvous_address *rendezvous;
    const gw_endpoint *mine;
    int world;
    gw_time start, deadline;
    gw_channel *channel; /* to rank 0; NULL: not connected */
    gw_intro intro;
    gw_time again;           /* when to dial rank 0 again; 0: not at all */
    const char *lost_reason; /* how rank 0 closed the last connection; NULL: it did not */
    uint8_t record[GW_ENDPOINT_BYTES];
    size_t sent;
    bool flushed; /* the record is handed to the kernel */
    uint8_t header[GW_REPLY_BYTES];
    size_t header_have;
    gw_reply reply;
    uint8_t *body; /* reply.length bytes */
    size_t body_have;
    gw_error *error;
} join_state;

static double seconds_since(gw_time start) { return (double)(gw_clock_now() - start) / (double)GW_SECOND; }

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    join_state *me = ctx;
    (void)peer;
    if (!dialled || me->channel) gw_fd_close(fd);
    else gw_channel_open(&me->channel, fd, keys, me->error);
}

static void on_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    join_state *me = ctx;
    const char *where = me->rendezvous->text;
    if (status == GW_DENIED)
        gw_fail_rank(
            me->error, status, 0,
            "rank %d cannot join at %s (%s): give all ranks the same GRADWIRE_TOKEN or GRADWIRE_TOKEN_FILE, or "
            "choose another MASTER_PORT if something else answers at that one",
            mine->from, where, detail);
    else if (me->lost_reason)
        gw_fail_rank(me->error, GW_PEER_LOST, 0,
                     "rank 0 at %s closed the connection of rank %d before all ranks had joined (%s), and cannot be "
                     "reached again (%s): it may have failed (see its own error), or left the job for good",
                     where, mine->from, me->lost_reason, detail);
    else
        gw_fail_rank(me->error, status, 0,
                     "rank %d cannot reach rank 0 at %s after %.0f s (%s): check that rank 0 runs, that MASTER_ADDR "
                     "names its host as seen from here, that MASTER_PORT is the same everywhere, and that no firewall "
                     "closes it",
                     mine->from, where, seconds_since(me->start), detail);
}

/* code: an errno, 0: the end. Before rank 0 has answered, this rank dials again: a rank that leaves a job and joins it
 * again may reach a rank 0 that has not left yet. Altered bytes will be altered again. */
static void connection_lost(join_state *me, int code) {
    const char *why = code ? gw_channel_why(code) : "end of stream";
    if (code == EBADMSG) {
        gw_fail_rank(me->error, GW_PROTOCOL, 0, "rank %d cannot join at %s: in rank 0's answer %s", me->mine->rank,
                     me->rendezvous->text, why);
        return;
    }
    if (me->header_have > 0) {
        gw_fail_rank(me->error, GW_PEER_LOST, 0, "rank 0 at %s closed the connection of rank %d while it answered (%s)",
                     me->rendezvous->text, me->mine->rank, why);
        return;
    }
    gw_channel_close(me->channel);
    me->channel = NULL;
    me->sent = 0;
    me->lost_reason = why;
    me->again = gw_clock_now() + PAUSE;
}

static gw_status dial_server(join_state *me) {
    me->again = 0;
    return gw_connections_dial(me->connections, me->rendezvous->at, me->rendezvous->count, &me->intro, me->deadline,
                               me->error);
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/* Reads on until `want` bytes are there. False: not yet, or an error in me->error. */
static bool read_more(join_state *me, uint8_t *into, size_t *have, size_t want) {
    while (*have < want) {
        ssize_t got = gw_channel_receive(me->channel, into + *have, want - *have);
        if (got < 0 && would_block()) return false;
        if (got <= 0) {
            connection_lost(me, got == 0 ? 0 : errno);
            return false;
        }
        *have += (size_t)got;
    }
    return true;
}

/* True when the answer is complete. Errors go to me->error. */
static bool exchange(join_state *me) {
    if (me->sent < sizeof me->record) {
        ssize_t sent = gw_channel_send(me->channel, me->record + me->sent, sizeof me->record - me->sent);
        if (sent > 0) me->sent += (size_t)sent;
        else if (sent < 0 && !would_block()) {
            connection_lost(me, errno);
            return false;
        }
    }
    me->flushed = gw_channel_flush(me->channel) && me->sent == sizeof me->record;
    if (!me->body) {
        if (!read_more(me, me->header, &me->header_have, sizeof me->header)) return false;
        if (gw_reply_read(&me->reply, me->header, me->world, me->error) != GW_OK) return false;
        me->body = malloc(me->reply.length);
        if (!me->body) {
            gw_fail(me->error, GW_MEMORY, "out of memory for the table of %d ranks", me->world);
            return false;
        }
    }
    return read_more(me, me->body, &me->body_have, me->reply.length);
}

static void wait_a_little(const join_state *me) {
    struct pollfd fds[2] = {{.fd = gw_connections_fd(me->connections), .events = POLLIN},
                            {.fd = gw_channel_fd(me->channel), .events = POLLIN | (me->flushed ? 0 : POLLOUT)}};
    gw_time until = gw_connections_next_deadline(me->connections);
    if (me->deadline < until) until = me->deadline;
    if (me->again && me->again < until) until = me->again;
    gw_rendezvous_sleep(fds, me->channel ? 2 : 1, gw_rendezvous_wake_time(me->rendezvous, until));
}

static gw_status wait_for_table(join_state *me, gw_endpoint *all) {
    while (me->error->status == GW_OK) {
        gw_time now = gw_clock_now();
        if (me->again && now >= me->again && dial_server(me) != GW_OK) break;
        gw_connections_poll(me->connections, now);
        if (me->channel && exchange(me)) return gw_reply_body_read(&me->reply, me->body, me->world, all, me->error);
        if (now >= me->deadline + ANSWER_GRACE)
            gw_fail(me->error, GW_TIMEOUT,
                    "rank %d has joined at %s, but not all of the %d ranks have after %.0f s: rank 0's own error names "
                    "those missing",
                    me->mine->rank, me->rendezvous->text, me->world, seconds_since(me->start));
        if (gw_rendezvous_cancelled(me->rendezvous))
            gw_fail(me->error, GW_ABORTED, "the launcher has written a new roster");
        if (me->error->status == GW_OK) wait_a_little(me);
    }
    return me->error->status;
}

/* A link-local address is valid only with the number that this host gives the interface. */
static void add_scope(const gw_endpoint *mine, gw_endpoint *all, int world) {
    for (int i = 0; i < world; i++)
        if (all[i].address.any.sa_family == AF_INET6 && gw_address_link_local(&all[i].address))
            all[i].address.v6.sin6_scope_id = mine->address.v6.sin6_scope_id;
}

static gw_status trust(gw_connections *connections, const gw_endpoint *all, int world, gw_error *error) {
    uint8_t(*keys)[GW_KEY_BYTES] = malloc((size_t)world * sizeof *keys);
    if (!keys) return gw_fail(error, GW_MEMORY, "out of memory for the keys of %d ranks", world);
    for (int rank = 0; rank < world; rank++) memcpy(keys[rank], all[rank].public_key, GW_KEY_BYTES);
    gw_status status = gw_connections_trust(connections, (const uint8_t(*)[GW_KEY_BYTES])keys, world, error);
    free(keys);
    return status;
}

static gw_status join(gw_connections *connections, const gw_rendezvous_address *rendezvous, const gw_endpoint *mine,
                      int world, gw_time deadline, gw_endpoint *all, gw_error *error) {
    join_state me = {
        .connections = connections, .rendezvous = rendezvous, .mine = mine, .world = world, .start = gw_clock_now()};
    me.deadline = deadline;
    me.error = error;
    gw_endpoint_write(mine, me.record);
    gw_connections_serve(connections, GW_PURPOSE_JOIN, &(gw_connection_handler){&me, on_established, on_failed});
    me.intro = (gw_intro){.purpose = GW_PURPOSE_JOIN,
                          .from = mine->rank,
                          .to = 0,
                          .world = world,
                          .security = gw_security_of_control(gw_connections_asked(connections))};
    gw_status status = dial_server(&me);
    if (status == GW_OK) status = wait_for_table(&me, all);
    gw_connections_refuse(connections, GW_PURPOSE_JOIN);
    gw_channel_close(me.channel);
    free(me.body);
    return status;
}

gw_status gw_rendezvous(gw_connections *connections, const gw_rendezvous_address *rendezvous, const gw_endpoint *mine,
                        int world, gw_time deadline, gw_endpoint *all, gw_error *error) {
    gw_error own = {0};
    gw_status status = GW_OK;
    gw_endpoint me = *mine;
    memcpy(me.public_key, gw_connections_public_key(connections), GW_KEY_BYTES);
    if (world == 1) all[0] = me;
    else if (me.rank == 0) status = gw_rendezvous_serve(connections, rendezvous, &me, world, deadline, all, &own);
    else status = join(connections, rendezvous, &me, world, deadline, all, &own);
    if (status == GW_OK) add_scope(&me, all, world);
    if (status == GW_OK) status = trust(connections, all, world, &own);
    if (status != GW_OK) gw_fail_rank(error, status, own.rank, "%s", own.text);
    return status;
}
