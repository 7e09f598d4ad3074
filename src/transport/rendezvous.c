/* rendezvous.c - see rendezvous.h: the part of ranks other than 0; that of rank 0 is in host.c. */
#include "transport/rendezvous.h"

#include "base/descriptor.h"
#include "transport/host.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_GRACE GW_SECOND /* rank 0 may be about to tell who is missing */
#define PAUSE (20 * GW_MILLISECOND) /* before rank 0 is called again */

typedef struct guest {
    gw_gateway *gateway;
    const gw_meeting *meeting;
    const gw_endpoint *mine;
    int world;
    gw_time start, deadline;
    int fd; /* to rank 0, -1: not yet */
    gw_intro intro;
    gw_time again;    /* when rank 0 is to be called again, 0: it is not */
    const char *away; /* how it has closed the last connection, NULL: it has not */
    uint8_t record[GW_ENDPOINT_BYTES];
    size_t sent;
    uint8_t header[GW_REPLY_BYTES];
    size_t header_have;
    gw_reply reply;
    uint8_t *body; /* reply.length bytes */
    size_t body_have;
    gw_error *error;
} guest;

static double seconds_since(gw_time start) { return (double)(gw_clock_now() - start) / (double)GW_SECOND; }

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled) {
    guest *me = ctx;
    (void)peer;
    if (!dialled || me->fd >= 0)
        gw_fd_close(fd);
    else
        me->fd = fd;
}

static void on_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    guest *me = ctx;
    const char *where = me->meeting->text;
    if (status == GW_DENIED)
        gw_fail_rank(
            me->error, status, 0,
            "rank %d cannot join at %s (%s): give all ranks the same GRADWIRE_TOKEN or GRADWIRE_TOKEN_FILE, or "
            "choose another MASTER_PORT if something else answers at that one",
            mine->from, where, detail);
    else if (me->away)
        gw_fail_rank(me->error, GW_PEER_LOST, 0,
                     "rank 0 at %s closed the connection of rank %d before all ranks had joined (%s), and cannot be "
                     "reached again (%s): it may have failed (see its own error), or left the job for good",
                     where, mine->from, me->away, detail);
    else
        gw_fail_rank(me->error, status, 0,
                     "rank %d cannot reach rank 0 at %s after %.0f s (%s): check that rank 0 runs, that MASTER_ADDR "
                     "names its host as seen from here, that MASTER_PORT is the same everywhere, and that no firewall "
                     "closes it",
                     mine->from, where, seconds_since(me->start), detail);
}

/* Before it has answered: who leaves a job and joins again may meet a rank 0 that has yet to leave. */
static void lost(guest *me, const char *why) {
    if (me->header_have > 0) {
        gw_fail_rank(me->error, GW_PEER_LOST, 0, "rank 0 at %s closed the connection of rank %d while it answered (%s)",
                     me->meeting->text, me->mine->rank, why);
        return;
    }
    gw_fd_close(me->fd);
    me->fd = -1;
    me->sent = 0;
    me->away = why;
    me->again = gw_clock_now() + PAUSE;
}

static gw_status call(guest *me) {
    me->again = 0;
    return gw_gateway_dial(me->gateway, me->meeting->at, me->meeting->count, &me->intro, me->deadline, me->error);
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/* Reads on until `want` bytes are there. False: not yet, or an error in me->error. */
static bool read_more(guest *me, uint8_t *into, size_t *have, size_t want) {
    while (*have < want) {
        ssize_t got = recv(me->fd, into + *have, want - *have, 0);
        if (got < 0 && would_block()) return false;
        if (got <= 0) {
            lost(me, got == 0 ? "end of stream" : strerrordesc_np(errno));
            return false;
        }
        *have += (size_t)got;
    }
    return true;
}

/* True when the answer is wholly here. Errors go to me->error. */
static bool converse(guest *me) {
    if (me->sent < sizeof me->record) {
        ssize_t sent = send(me->fd, me->record + me->sent, sizeof me->record - me->sent, MSG_NOSIGNAL);
        if (sent > 0)
            me->sent += (size_t)sent;
        else if (sent < 0 && !would_block()) {
            lost(me, strerrordesc_np(errno));
            return false;
        }
    }
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

static void wait_a_little(const guest *me) {
    struct pollfd fds[2] = {{.fd = gw_gateway_fd(me->gateway), .events = POLLIN},
                            {.fd = me->fd, .events = POLLIN | (me->sent < sizeof me->record ? POLLOUT : 0)}};
    gw_time until = gw_gateway_next_deadline(me->gateway);
    if (me->deadline < until) until = me->deadline;
    if (me->again && me->again < until) until = me->again;
    gw_rendezvous_sleep(fds, me->fd < 0 ? 1 : 2, gw_rendezvous_look(me->meeting, until));
}

static gw_status visit(guest *me, gw_endpoint *all) {
    while (me->error->status == GW_OK) {
        gw_time now = gw_clock_now();
        if (me->again && now >= me->again && call(me) != GW_OK) break;
        gw_gateway_poll(me->gateway, now);
        if (me->fd >= 0 && converse(me)) return gw_reply_body_read(&me->reply, me->body, me->world, all, me->error);
        if (now >= me->deadline + ANSWER_GRACE)
            gw_fail(me->error, GW_TIMEOUT,
                    "rank %d has joined at %s, but not all of the %d ranks have after %.0f s: rank 0's own error names "
                    "those missing",
                    me->mine->rank, me->meeting->text, me->world, seconds_since(me->start));
        if (gw_rendezvous_off(me->meeting)) gw_fail(me->error, GW_ABORTED, "the roll has been called anew");
        if (me->error->status == GW_OK) wait_a_little(me);
    }
    return me->error->status;
}

/* An address of one link means something only with the number that this host gives the interface. */
static void add_scope(const gw_endpoint *mine, gw_endpoint *all, int world) {
    for (int i = 0; i < world; i++)
        if (all[i].address.any.sa_family == AF_INET6 && gw_address_link_local(&all[i].address))
            all[i].address.v6.sin6_scope_id = mine->address.v6.sin6_scope_id;
}

static gw_status be_guest(gw_gateway *gateway, const gw_meeting *meeting, const gw_endpoint *mine, int world,
                          gw_time deadline, gw_endpoint *all, gw_error *error) {
    guest me = {.gateway = gateway, .meeting = meeting, .mine = mine, .world = world, .start = gw_clock_now()};
    me.deadline = deadline;
    me.fd = -1;
    me.error = error;
    gw_endpoint_write(mine, me.record);
    gw_gateway_serve(gateway, GW_PURPOSE_JOIN, &(gw_gateway_room){&me, on_established, on_failed});
    me.intro = (gw_intro){.purpose = GW_PURPOSE_JOIN, .from = mine->rank, .to = 0, .world = world};
    gw_status status = call(&me);
    if (status == GW_OK) status = visit(&me, all);
    gw_gateway_shut(gateway, GW_PURPOSE_JOIN);
    gw_fd_close(me.fd);
    free(me.body);
    return status;
}

gw_status gw_rendezvous(gw_gateway *gateway, const gw_meeting *meeting, const gw_endpoint *mine, int world,
                        gw_time deadline, gw_endpoint *all, gw_error *error) {
    gw_error own = {0};
    gw_status status = GW_OK;
    if (world == 1)
        all[0] = *mine;
    else if (mine->rank == 0)
        status = gw_rendezvous_host(gateway, meeting, mine, world, deadline, all, &own);
    else
        status = be_guest(gateway, meeting, mine, world, deadline, all, &own);
    if (status == GW_OK)
        add_scope(mine, all, world);
    else
        gw_fail_rank(error, status, own.rank, "%s", own.text);
    return status;
}
