/* links.c - control connections: fixed-size messages over the authenticated sockets of other ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "engine/node.h"

#define QUEUE_BYTES ((size_t)GW_LINK_QUEUE * GW_CONTROL_BYTES)

gw_status gw_links_open(gw_node *node, gw_error *error) {
    node->links = calloc((size_t)node->world, sizeof *node->links);
    if (!node->links) return gw_fail(error, GW_MEMORY, "out of memory for control links to %d ranks", node->world);
    node->link_count = node->world;
    for (int r = 0; r < node->world; r++) node->links[r] = (gw_control_link){.rank = r, .fd = -1};
    return GW_OK;
}

static void watch(gw_node *node, gw_control_link *link, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (link->out_used ? EPOLLOUT : 0)};
    epoll_ctl(node->events, operation, link->fd, &event);
}

static void hang_up(gw_node *node, gw_control_link *link) {
    epoll_ctl(node->events, EPOLL_CTL_DEL, link->fd, NULL);
    gw_fd_close(link->fd);
    link->fd = -1;
    link->in_have = link->out_first = link->out_used = 0;
}

static void drop(gw_node *node, gw_control_link *link, const char *detail, gw_time now) {
    if (link->fd < 0) return;
    hang_up(node, link);
    gw_core_link_lost(node->core, link->rank, detail, now);
}

/* Errors of sending are left to the reading side to notice: what the peer said before it went must be heard first. */
static void flush(gw_node *node, gw_control_link *link) {
    bool was_waiting = link->out_used > 0;
    while (link->out_used) {
        size_t run = QUEUE_BYTES - link->out_first;
        if (run > link->out_used) run = link->out_used;
        ssize_t sent = send(link->fd, link->out + link->out_first, run, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) break;
        link->out_first = (link->out_first + (size_t)sent) % QUEUE_BYTES;
        link->out_used -= (size_t)sent;
    }
    if (was_waiting) watch(node, link, EPOLL_CTL_MOD);
}

void gw_links_send(gw_node *node, int neighbour, const gw_control_message *message) {
    if (neighbour >= node->link_count || node->links[neighbour].fd < 0) return;
    gw_control_link *link = &node->links[neighbour];
    if (QUEUE_BYTES - link->out_used < GW_CONTROL_BYTES) {
        if (message->kind != GW_CONTROL_BEAT)
            gw_log(GW_LOG_WARN, node->rank, "the control link to rank %d is stuck: a message was dropped", neighbour);
        return;
    }
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    size_t at = (link->out_first + link->out_used) % QUEUE_BYTES, run = QUEUE_BYTES - at;
    if (run > sizeof bytes) run = sizeof bytes;
    memcpy(link->out + at, bytes, run);
    memcpy(link->out, bytes + run, sizeof bytes - run);
    link->out_used += sizeof bytes;
    flush(node, link);
}

/* Two ranks may dial each other at once. Both then keep the connection that the lower one made. */
void gw_links_adopt(gw_node *node, int rank, int fd, bool dialled) {
    gw_control_link *link = &node->links[rank];
    bool by_lower = dialled == (node->rank < rank);
    if (dialled) link->dialling = false;
    if (!link->out) link->out = malloc(QUEUE_BYTES);
    if (!link->out || (link->fd >= 0 && link->by_lower && !by_lower)) {
        gw_fd_close(fd);
        return;
    }
    if (link->fd >= 0) hang_up(node, link);
    link->fd = fd;
    link->by_lower = by_lower;
    watch(node, link, EPOLL_CTL_ADD);
    gw_core_link_up(node->core, rank, gw_clock_now());
}

void gw_links_dial(gw_node *node, int rank) {
    gw_intro mine = {.purpose = GW_PURPOSE_CONTROL, .from = node->rank, .to = rank, .world = node->world};
    if (node->links[rank].dialling) return;
    if (node->links[rank].fd >= 0) hang_up(node, &node->links[rank]);
    node->links[rank].dialling = true;
    if (gw_gateway_dial_again(node->gateway, &node->endpoints[rank].address, &mine, gw_clock_now() + node->deadline,
                              NULL))
        node->links[rank].dialling = false;
}

void gw_links_failed(gw_node *node, int rank, gw_status status, const char *detail) {
    node->links[rank].dialling = false;
    if (status != GW_PEER_LOST) return;
    char text[256];
    snprintf(text, sizeof text, "its process ended (%s)", detail);
    gw_core_died(node->core, rank, text, gw_clock_now());
}

static void receive(gw_node *node, gw_control_link *link, gw_time now) {
    while (link->fd >= 0) {
        ssize_t got = recv(link->fd, link->in + link->in_have, GW_CONTROL_BYTES - link->in_have, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            drop(node, link, got == 0 ? "its process ended (connection closed)" : strerror(errno), now);
            return;
        }
        link->in_have += (size_t)got;
        if (link->in_have < GW_CONTROL_BYTES) continue;
        link->in_have = 0;
        gw_control_message message;
        gw_error error = {.rank = -1};
        if (gw_control_read(&message, link->in, node->world, &error) != GW_OK) drop(node, link, error.text, now);
        else gw_core_receive(node->core, link->rank, &message, now);
    }
}

void gw_links_poll(gw_node *node, gw_time now) {
    for (int i = 0; i < node->link_count; i++) {
        gw_control_link *link = &node->links[i];
        if (link->fd < 0) continue;
        if (link->out_used) flush(node, link);
        receive(node, link, now);
    }
}

void gw_links_flush(gw_node *node, int index) {
    if (node->links[index].fd >= 0) flush(node, &node->links[index]);
}

void gw_links_close(gw_node *node) {
    for (int i = 0; i < node->link_count; i++) {
        gw_fd_close(node->links[i].fd);
        free(node->links[i].out);
    }
    free(node->links);
    node->links = NULL;
    node->link_count = 0;
}
