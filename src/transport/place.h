/* place.h - this process's place in its job, from the options and the environment.
 *
 * Rank and world: RANK and WORLD_SIZE (gradwire run, torchrun), else those of Open MPI, PMI (MPICH, Intel MPI), PMIx,
 * Slurm and an indexed Job of Kubernetes; with none of them the process is alone. Rank 0 is met at
 * MASTER_ADDR:MASTER_PORT, or at the port that GRADWIRE_MASTER_PORT names, so that the program may listen at the other
 * itself. Without an address that is loopback; under srun on several nodes it is the step's first node, and under Open
 * MPI's mpirun on several the host where mpirun runs. Without a port one in 20000-29999 is derived from the job's name.
 * A derived port may be taken, and that of torchrun is, by torchrun itself: there the meeting point is
 * one of sixteen ports.
 *
 * GRADWIRE_SERVERS processes that only serve (engine/serve.h) come after the workers: their ranks follow those that
 * WORLD_SIZE counts. */
#ifndef GW_TRANSPORT_PLACE_H
#define GW_TRANSPORT_PLACE_H

#include "base/roll.h"
#include "transport/address.h"

#define GW_JOB_TEXT 256

typedef struct gw_place {
    int rank, world;             /* of all processes */
    int servers;                 /* the last so many of them only serve */
    int local_rank, local_world; /* -1 where the environment does not say */
    char master[GW_HOST_TEXT];   /* name or literal address of rank 0's host, without brackets */
    int port_low, port_high;     /* rank 0 listens on one of these */
    int listen_fd;               /* GRADWIRE_LISTEN_FD: a socket of the launcher's for rank 0; -1: none */
    int seat;                    /* GRADWIRE_SEAT: its number in an elastic job, which it keeps; else its rank */
    int round;                   /* GRADWIRE_ROUND: how often the roll had been called when this process was started */
    char roll[GW_HOST_TEXT];     /* GRADWIRE_ROLL: the file to read it from; "": the job is not elastic */
    char job[GW_JOB_TEXT];       /* the same on all ranks; jobs with other names are strangers (auth.h) */
} gw_place;

/* options NULL: everything from the environment. A malformed value gets a sentence that names its variable. */
gw_status gw_place_find(const gw_options *options, gw_place *place, gw_error *error);
/* The same process's place under another roll, which calls its seat. */
void gw_place_recall(gw_place *place, const gw_roll *roll);

#endif
