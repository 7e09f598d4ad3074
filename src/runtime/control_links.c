/* control_links.c - control connections: fixed-size messages over authenticated sockets to other ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork_descriptors.h"
#include "base/log.h"
#include "runtime/context.h"

#define QUEUE_BYTES ((size_t)GW_LINK_QUEUE * GW_CONTROL_BYTES)

gw_status gw_control_links_open(gw_context *context, gw_error *error) {
    context->links = calloc((size_t)context->world, sizeof *context->links);
    if (!context->links)
        return gw_fail(error, GW_MEMORY, "out of memory for control links to %d ranks", context->world);
    context->link_count = context->world;
    for (int r = 0; r < context->world; r++) context->links[r] = (gw_control_link){.rank = r};
    return GW_OK;
}

static void watch(gw_context *context, gw_control_link *link, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (link->waiting ? EPOLLOUT : 0)};
    epoll_ctl(context->events, operation, gw_channel_fd(link->channel), &event);
}

static void hang_up(gw_context *context, gw_control_link *link) {
    epoll_ctl(context->events, EPOLL_CTL_DEL, gw_channel_fd(link->channel), NULL);
    gw_channel_close(link->channel);
    link->channel = NULL;
    link->waiting = false;
    link->in_have = link->out_first = link->out_used = 0;
}

static void drop(gw_context *context, gw_control_link *link, const char *detail, gw_time now) {
    if (!link->channel) return;
    hang_up(context, link);
    gw_core_link_lost(context->core, link->rank, detail, now);
}

/* Ignores send errors: the receiving side reports them, after it has read the peer's last messages. */
static void flush(gw_context *context, gw_control_link *link) {
    bool was_waiting = link->waiting;
    while (link->out_used) {
        size_t run = QUEUE_BYTES - link->out_first;
        if (run > link->out_used) run = link->out_used;
        ssize_t sent = gw_channel_send(link->channel, link->out + link->out_first, run);
        if (sent <= 0) break;
        link->out_first = (link->out_first + (size_t)sent) % QUEUE_BYTES;
        link->out_used -= (size_t)sent;
    }
    link->waiting = !gw_channel_flush(link->channel) || link->out_used > 0;
    if (link->waiting != was_waiting) watch(context, link, EPOLL_CTL_MOD);
}

void gw_control_links_send(gw_context *context, int neighbour, const gw_control_message *message) {
    if (neighbour >= context->link_count || !context->links[neighbour].channel) return;
    gw_control_link *link = &context->links[neighbour];
    if (QUEUE_BYTES - link->out_used < GW_CONTROL_BYTES) {
        if (message->kind != GW_CONTROL_BEAT)
            gw_log(GW_LOG_WARN, context->rank, "the control link to rank %d is stuck: a message was dropped",
                   neighbour);
        return;
    }
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    size_t at = (link->out_first + link->out_used) % QUEUE_BYTES, run = QUEUE_BYTES - at;
    if (run > sizeof bytes) run = sizeof bytes;
    memcpy(link->out + at, bytes, run);
    memcpy(link->out, bytes + run, sizeof bytes - run);
    link->out_used += sizeof bytes;
    flush(context, link);
}

/* Two ranks may dial each other at once. Both then keep the connection that the lower rank dialled. */
void gw_control_links_adopt(gw_context *context, int rank, int fd, bool dialled, const gw_traffic_keys *keys) {
    if (rank >= context->link_count || rank == context->rank) { /* it counts more ranks than there are */
        gw_log(GW_LOG_WARN, context->rank, "a control link of rank %d was refused: this job has %d ranks", rank,
               context->link_count);
        gw_fd_close(fd);
        return;
    }
    gw_control_link *link = &context->links[rank];
    bool by_lower = dialled == (context->rank < rank);
    if (dialled) link->dialling = false;
    if (!link->out) link->out = malloc(QUEUE_BYTES);
    if (!link->out || (link->channel && link->by_lower && !by_lower)) {
        gw_fd_close(fd);
        return;
    }
    if (link->channel) hang_up(context, link);
    gw_error error = {.rank = -1};
    if (gw_channel_open(&link->channel, fd, keys, &error) != GW_OK) {
        gw_log(GW_LOG_ERROR, context->rank, "no control link to rank %d: %s", rank, error.text);
        return;
    }
    link->by_lower = by_lower;
    watch(context, link, EPOLL_CTL_ADD);
    gw_core_link_up(context->core, rank, gw_clock_now());
}

void gw_control_links_dial(gw_context *context, int rank) {
    gw_intro mine = {.purpose = GW_PURPOSE_CONTROL,
                     .from = context->rank,
                     .to = rank,
                     .world = context->world,
                     .security = gw_security_of_control(gw_connections_asked(context->connections))};
    if (context->links[rank].dialling) return;
    if (context->links[rank].channel) hang_up(context, &context->links[rank]);
    context->links[rank].dialling = true;
    if (gw_connections_dial_again(context->connections, &context->endpoints[rank].address, &mine,
                                  gw_clock_now() + context->deadline, NULL))
        context->links[rank].dialling = false;
}

void gw_control_links_failed(gw_context *context, int rank, gw_status status, const char *detail) {
    context->links[rank].dialling = false;
    if (status != GW_PEER_LOST) return;
    char text[256];
    snprintf(text, sizeof text, "its process ended (%s)", detail);
    gw_core_died(context->core, rank, text, gw_clock_now());
}

static void receive(gw_context *context, gw_control_link *link, gw_time now) {
    while (link->channel) {
        ssize_t got = gw_channel_receive(link->channel, link->in + link->in_have, GW_CONTROL_BYTES - link->in_have);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            drop(context, link, got == 0 ? "its process ended (connection closed)" : gw_channel_why(errno), now);
            return;
        }
        link->in_have += (size_t)got;
        if (link->in_have < GW_CONTROL_BYTES) continue;
        link->in_have = 0;
        gw_control_message message;
        gw_error error = {.rank = -1};
        if (gw_control_read(&message, link->in, context->world, &error) != GW_OK) drop(context, link, error.text, now);
        else gw_core_receive(context->core, link->rank, &message, now);
    }
}

void gw_control_links_poll(gw_context *context, gw_time now) {
    for (int i = 0; i < context->link_count; i++) {
        gw_control_link *link = &context->links[i];
        if (!link->channel) continue;
        if (link->waiting) flush(context, link);
        receive(context, link, now);
    }
}

void gw_control_links_flush(gw_context *context, int index) {
    if (context->links[index].channel) flush(context, &context->links[index]);
}

void gw_control_links_close(gw_context *context) {
    for (int i = 0; i < context->link_count; i++) {
        gw_channel_close(context->links[i].channel);
        free(context->links[i].out);
    }
    free(context->links);
    context->links = NULL;
    context->link_count = 0;
}
