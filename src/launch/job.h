/* job.h - a whole job: starts the ranks on their hosts, prints their output, and ends all ranks when one fails. */
#ifndef GW_LAUNCH_JOB_H
#define GW_LAUNCH_JOB_H

#include "base/clock.h"
#include "launch/console.h"
#include "launch/elastic_policy.h"
#include "launch/host_connection.h"
#include "launch/hosts.h"

/* Exit codes of the launcher itself; otherwise it exits with that of a rank (128 + signal if the rank was killed). */
#define GW_JOB_TIMEOUT 124      /* --timeout has passed */
#define GW_JOB_NOT_RUNNABLE 126 /* the program exists but cannot be executed */
#define GW_JOB_NOT_FOUND 127    /* there is no such program */
#define GW_JOB_HOST_LOST 255    /* a host could not be reached, or was lost */

/* Exit code of a rank that failed only because another rank did: the launcher waits for that one, and blames it.
 * python/gradwire/torch/world.py has the same number. */
#define GW_JOB_FOLLOWED 122

typedef struct gw_job_options {
    const gw_hosts *hosts;                      /* with their ranks */
    const char *directory;                      /* working directory of the ranks, the same on every host */
    char *const *argv;                          /* the program, NULL at the end */
    char *const *server_argv;                   /* the program of servers; NULL: there are no servers */
    char *const *env;                           /* "NAME=value" for every rank, NULL at the end */
    gw_host_connection_options host_connection; /* gw_job_run closes listen_fd once rank 0 has it */
    gw_console_options console;
    gw_elastic *elastic; /* decides about ranks that die; NULL: the job ends */
    gw_time grace;       /* from SIGTERM to SIGKILL */
    /* A host that is silent for this long is lost. 0: a host is lost only when its connection ends, and there are no
     * heartbeats. */
    gw_time silence;
    gw_time timeout; /* of the whole job; 0: none */
} gw_job_options;

/* Returns the exit code of the launcher; all messages were printed. Handles SIGINT, SIGTERM, SIGHUP, SIGTSTP and
 * SIGCHLD while it runs. Kills every child of this process before it returns. One thread. */
int gw_job_run(const gw_job_options *options);

#endif
