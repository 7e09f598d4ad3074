/* job_environment.h - the job environment of this process: its rank, world and rendezvous, from the options and the
 * environment.
 *
 * Rank and world: RANK and WORLD_SIZE (gradwire run, torchrun), else those of Open MPI, PMI (MPICH, Intel MPI), PMIx,
 * Slurm and an indexed Job of Kubernetes; with none of them the process is alone. Rank 0 listens at
 * MASTER_ADDR:MASTER_PORT, or at the port that GRADWIRE_MASTER_PORT names, so that the program itself may listen at
 * MASTER_PORT. The default address is loopback; under srun on several nodes it is the step's first node, and under Open
 * MPI's mpirun on several nodes the host where mpirun runs. The default port is one in 20000-29999, derived from the
 * job's name. A derived port may be in use, and torchrun itself uses the MASTER_PORT that it sets: in both cases rank 0
 * listens at one of sixteen ports.
 *
 * GRADWIRE_SERVERS is the number of processes that only serve (ps/server_process.h). WORLD_SIZE does not count them,
 * and their ranks follow those of the workers. */
#ifndef GW_BOOTSTRAP_JOB_ENVIRONMENT_H
#define GW_BOOTSTRAP_JOB_ENVIRONMENT_H

#include "base/roster.h"
#include "bootstrap/address.h"

#define GW_JOB_TEXT 256

typedef struct gw_job_env {
    int rank, world;             /* of all processes */
    int servers;                 /* how many of them, the last ones, only serve */
    int local_rank, local_world; /* -1 if the environment does not say */
    char master[GW_HOST_TEXT];   /* name or literal address of rank 0's host, without brackets */
    int port_low, port_high;     /* rank 0 listens on one of these */
    int listen_fd;               /* GRADWIRE_LISTEN_FD: the launcher's socket for rank 0; -1: none */
    int member;                  /* GRADWIRE_MEMBER: its member id in an elastic job; else its rank */
    int generation;              /* GRADWIRE_GENERATION: of the roster when this process was started */
    char roster[GW_HOST_TEXT];   /* GRADWIRE_ROSTER: the roster's file; "": the job is not elastic */
    char job[GW_JOB_TEXT];       /* the same on all ranks; jobs with other names are strangers (auth.h) */
} gw_job_env;

/* options NULL: everything from the environment. A malformed value gets a sentence that names its variable. */
gw_status gw_job_env_find(const gw_options *options, gw_job_env *job_env, gw_error *error);
/* Updates the environment of the same process for another roster, which lists its member id. */
void gw_job_env_apply_roster(gw_job_env *job_env, const gw_roster *roster);

#endif
