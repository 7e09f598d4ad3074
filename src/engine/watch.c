/* watch.c - the processes of the ranks on this host, watched by pidfd: the end of one is proved, and known at once,
 * even where somebody else (a child that was forked without the library's knowledge, a proxy) keeps its connections.
 *
 * What a rank said before it ended is heard first. A neighbour's words lie in its control link, which has been read to
 * its end when gw_watch_settle is called. Those of others come by way of their neighbours, so who is no neighbour waits
 * for these to tell, and believes its own eyes after PATIENCE: a rank that has left in order would otherwise look
 * like one that died. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "engine/node.h"

#define PATIENCE GW_SECOND /* as long as a rank that leaves may take to tell its neighbours (node.c) */

/* In the progress thread's epoll an event with a number is that of a rank: 1 + rank. */
static void watch_rank(gw_node *node, int rank) {
    const gw_endpoint *endpoint = &node->endpoints[rank];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank + 1};
    int fd = gw_process_watch((int)endpoint->pid, endpoint->started);
    if (fd >= 0 && epoll_ctl(node->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        gw_fd_close(fd);
        fd = -1;
    }
    if (fd < 0)
        gw_log(GW_LOG_DEBUG, node->rank, "the process of rank %d (%u) cannot be watched: its end is noticed by its "
                                         "connections alone", rank, (unsigned)endpoint->pid);
    node->watched[rank].fd = fd;
}

gw_status gw_watch_open(gw_node *node, gw_error *error) {
    node->watched = calloc((size_t)node->world, sizeof *node->watched);
    if (!node->watched) return gw_fail(error, GW_MEMORY, "out of memory for %d processes", node->world);
    for (int r = 0; r < node->world; r++) {
        node->watched[r].fd = -1;
        if (node->endpoints[r].pid != (uint32_t)getpid() && gw_node_same_host(node, r, node->rank)) watch_rank(node, r);
    }
    return GW_OK;
}

void gw_watch_close(gw_node *node) {
    for (int r = 0; node->watched && r < node->world; r++) gw_fd_close(node->watched[r].fd);
    free(node->watched);
    node->watched = NULL;
}

void gw_watch_ended(gw_node *node, int rank, gw_time now) {
    gw_watched *process = &node->watched[rank];
    if (process->fd < 0) return;
    epoll_ctl(node->events, EPOLL_CTL_DEL, process->fd, NULL);
    gw_fd_close(process->fd);
    *process = (gw_watched){.fd = -1, .ended_at = now};
    node->ended++;
}

/* True when nothing is to be done about its end any more. */
static bool settle_one(gw_node *node, int rank, gw_time now) {
    const gw_control *control = gw_core_control(node->core);
    gw_time patience = node->deadline / 4 < PATIENCE ? node->deadline / 4 : PATIENCE;
    if (gw_control_left(control, rank)) return true;
    bool due = now >= node->watched[rank].ended_at + patience;
    if (!due && !gw_control_near(control, rank) && !gw_control_lost(control, rank)) return false;
    gw_core_died(node->core, rank, "its process ended", now);
    return true;
}

void gw_watch_settle(gw_node *node, gw_time now) {
    for (int r = 0; node->ended && r < node->world; r++) {
        gw_watched *process = &node->watched[r];
        if (!process->ended_at || !settle_one(node, r, now)) continue;
        process->ended_at = 0;
        node->ended--;
    }
}
