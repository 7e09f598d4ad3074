/* shm_task.h - a task that the ranks of a host do together on shared buffers. Plans and shm collectives share this
 * type. */
#ifndef GW_BASE_SHM_TASK_H
#define GW_BASE_SHM_TASK_H

/* Members are the ranks of the host in rank order; each element is combined in that order. */
typedef enum gw_shm_task {
    GW_SHM_TASK_ALLREDUCE,      /* `in` of all members, combined, into `out` of all */
    GW_SHM_TASK_REDUCE_SCATTER, /* part l (gw_part) of the combination, split over `lanes`, into `out` of member l */
    GW_SHM_TASK_ALLGATHER,      /* part l of `in` of member l, split over `lanes`, into `out` of all */
    GW_SHM_TASK_BROADCAST,      /* `in` of the root into `out` of all */
    GW_SHM_TASK_REDUCE,         /* `in` of all members, combined, into `out` of the root */
    GW_SHM_TASK_GATHER,         /* part l of `in` of member l, split over `lanes`, into `out` of the root */
    GW_SHM_TASK_SCATTER,        /* part l of `in` of the root, split over `lanes`, into `out` of member l */
    GW_SHM_TASK_ALLTOALL,       /* part l of `in` of member m, split evenly, into part m of `out` of member l */
    GW_SHM_TASK_BARRIER
} gw_shm_task;

#endif
