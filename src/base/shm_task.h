/* shm_task.h - a task that the ranks of a host do together on shared buffers. Plans and shm collectives share this
 * type. */
#ifndef GW_BASE_SHM_TASK_H
#define GW_BASE_SHM_TASK_H

/* Members are the ranks of the host in rank order; each element is combined in that order. */
typedef enum gw_shm_task {
    GW_SHM_TASK_ALLREDUCE,      /* `in` of all members, combined, into `out` of all */
    GW_SHM_TASK_REDUCE_SCATTER, /* part l (gw_part) of the combination, split over `lanes`, into `out` of member l */
    GW_SHM_TASK_ALLGATHER,      /* part l of `out` of member l, split over `lanes`, into `out` of all others */
    GW_SHM_TASK_BROADCAST,      /* `in` of the root into `out` of all */
    GW_SHM_TASK_BARRIER
} gw_shm_task;

#endif
