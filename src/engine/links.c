/* links.c - control connections: fixed-size messages over the authenticated sockets of neighbours. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "engine/node.h"

#define QUEUE_BYTES ((size_t)GW_LINK_QUEUE * GW_CONTROL_BYTES)

static gw_control_link *find(gw_node *node, int rank) {
    for (int i = 0; i < node->link_count; i++)
        if (node->links[i].rank == rank) return &node->links[i];
    return NULL;
}

static void watch(gw_node *node, gw_control_link *link, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (link->out_used ? EPOLLOUT : 0)};
    epoll_ctl(node->events, operation, link->fd, &event);
}

static void drop(gw_node *node, gw_control_link *link, const char *detail, gw_time now) {
    if (link->fd < 0) return;
    epoll_ctl(node->events, EPOLL_CTL_DEL, link->fd, NULL);
    gw_fd_close(link->fd);
    link->fd = -1;
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
    gw_control_link *link = find(node, neighbour);
    if (!link || link->fd < 0) return;
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

void gw_links_adopt(gw_node *node, int neighbour, int fd) {
    gw_control_link *link = find(node, neighbour);
    if (!link || link->fd >= 0) {
        gw_fd_close(fd);
        return;
    }
    if (!link->out) link->out = malloc(QUEUE_BYTES);
    if (!link->out) {
        gw_fd_close(fd);
        return;
    }
    link->fd = fd;
    watch(node, link, EPOLL_CTL_ADD);
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

bool gw_links_up(const gw_node *node) {
    for (int i = 0; i < node->link_count; i++)
        if (node->links[i].fd < 0) return false;
    return true;
}

void gw_links_close(gw_node *node) {
    for (int i = 0; i < node->link_count; i++) {
        gw_fd_close(node->links[i].fd);
        free(node->links[i].out);
    }
    node->link_count = 0;
}
