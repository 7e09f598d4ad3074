/* process_watch.c - watches the processes of this host's ranks by pidfd. The end of a process is certain and known at
 * once, even if something else (a child forked without the library's knowledge, a proxy) keeps its connections open.
 *
 * The last control messages of a rank must be handled before the end of its process; otherwise a rank that left in
 * order would look like one that died. The messages of a neighbour are in its control link, which has been read to its
 * end when gw_watch_settle is called. The messages of other ranks come through their neighbours: wait for them, but at
 * most PATIENCE. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fork_descriptors.h"
#include "base/log.h"
#include "base/process.h"
#include "runtime/context.h"

#define PATIENCE GW_SECOND /* as long as a leaving rank may take to inform its neighbours (context.c) */

/* In the progress thread's epoll, events of processes carry 1 + rank; others carry 0. */
static void watch_rank(gw_context *context, int rank) {
    const gw_endpoint *endpoint = &context->endpoints[rank];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank + 1};
    int fd = gw_process_watch((int)endpoint->pid, endpoint->started);
    if (fd >= 0 && epoll_ctl(context->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        gw_fd_close(fd);
        fd = -1;
    }
    if (fd < 0)
        gw_log(GW_LOG_DEBUG, context->rank,
               "the process of rank %d (%u) cannot be watched: its end is noticed by its "
               "connections alone",
               rank, (unsigned)endpoint->pid);
    context->watched[rank].fd = fd;
}

gw_status gw_watch_open(gw_context *context, gw_error *error) {
    context->watched = calloc((size_t)context->world, sizeof *context->watched);
    if (!context->watched) return gw_fail(error, GW_MEMORY, "out of memory for %d processes", context->world);
    for (int r = 0; r < context->world; r++) {
        context->watched[r].fd = -1;
        if (context->endpoints[r].pid != (uint32_t)getpid() && gw_context_same_host(context, r, context->rank))
            watch_rank(context, r);
    }
    return GW_OK;
}

void gw_watch_close(gw_context *context) {
    for (int r = 0; context->watched && r < context->world; r++) gw_fd_close(context->watched[r].fd);
    free(context->watched);
    context->watched = NULL;
}

void gw_watch_ended(gw_context *context, int rank, gw_time now) {
    gw_watched *process = &context->watched[rank];
    if (process->fd < 0) return;
    epoll_ctl(context->events, EPOLL_CTL_DEL, process->fd, NULL);
    gw_fd_close(process->fd);
    *process = (gw_watched){.fd = -1, .ended_at = now};
    context->ended++;
}

/* True when the end of this process has been handled. */
static bool settle_one(gw_context *context, int rank, gw_time now) {
    const gw_control *control = gw_core_control(context->core);
    gw_time patience = context->deadline / 4 < PATIENCE ? context->deadline / 4 : PATIENCE;
    if (gw_control_left(control, rank)) return true;
    bool due = now >= context->watched[rank].ended_at + patience;
    if (!due && !gw_control_is_neighbour(control, rank) && !gw_control_lost(control, rank)) return false;
    gw_core_died(context->core, rank, "its process ended", now);
    return true;
}

void gw_watch_settle(gw_context *context, gw_time now) {
    for (int r = 0; context->ended && r < context->world; r++) {
        gw_watched *process = &context->watched[r];
        if (!process->ended_at || !settle_one(context, r, now)) continue;
        process->ended_at = 0;
        context->ended--;
    }
}
