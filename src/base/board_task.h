/* board_task.h - what the ranks of a host do together on shared buffers: the word that plans and boards share. */
#ifndef GW_BASE_BOARD_TASK_H
#define GW_BASE_BOARD_TASK_H

/* Members are the ranks of the host in rank order; each element is combined in that order. */
typedef enum gw_board_task {
    GW_BOARD_ALLREDUCE,      /* in of all members, combined, into out of all */
    GW_BOARD_REDUCE_SCATTER, /* part l (gw_part) of the combination, split over `lanes`, into out of member l */
    GW_BOARD_ALLGATHER,      /* part l of out of member l, split over `lanes`, into out of all others */
    GW_BOARD_BROADCAST,      /* in of the root into out of all */
    GW_BOARD_BARRIER
} gw_board_task;

#endif
