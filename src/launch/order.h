/* order.h - what one host is to start: its ranks, their directory, arguments and environment, as one block of bytes. */
#ifndef GW_LAUNCH_ORDER_H
#define GW_LAUNCH_ORDER_H

#include "base/status.h"
#include "base/roll.h"
#include "launch/buffer.h"

typedef struct gw_order {
    int first_rank;        /* of this host's ranks, which are consecutive */
    int local_ranks;       /* how many */
    int world;             /* ranks of the job that work; those after them serve */
    int group;             /* number of this host */
    int listen_fd;         /* inherited listening socket for rank 0, -1: none */
    int elastic;           /* 1: ranks may be started again, and have a roll to read */
    int heartbeat_ms;      /* ranks without a heartbeat for about that long are ended (liveness.h); 0: none is */
    int silence_ms;        /* the launcher is lost when it is silent for that long; 0: only when its pipe closes */
    int grace_ms;          /* from SIGTERM to SIGKILL if the launcher disappears */
    const char *directory; /* where the ranks run */
    char *const *argv;     /* NULL at the end, at least one */
    char *const *env;      /* "NAME=value" for every rank, NULL at the end */
    const char *roll_path; /* the supervisor's own: where the ranks find the roll; NULL: there is none */
    const gw_roll *roll;   /* likewise: as it was last called, NULL: not since the job began */
} gw_order;

void gw_order_pack(const gw_order *order, gw_buffer *out);

/* The strings of *order are borrowed from bytes; argv and env are owned by it: gw_order_free. */
gw_status gw_order_unpack(gw_order *order, const char *bytes, size_t size, gw_error *error);
void gw_order_free(gw_order *order);

#endif
