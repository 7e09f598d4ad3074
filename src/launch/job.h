/* job.h - a whole job: starts the ranks on their hosts, prints what they print, and ends them all when one fails. */
#ifndef GW_LAUNCH_JOB_H
#define GW_LAUNCH_JOB_H

#include "base/clock.h"
#include "launch/console.h"
#include "launch/elastic.h"
#include "launch/hosts.h"
#include "launch/outpost.h"

/* Exit codes of the launcher beside those of the ranks (128 + signal for a rank that was killed). */
#define GW_JOB_TIMEOUT 124      /* --timeout has passed */
#define GW_JOB_NOT_RUNNABLE 126 /* the program is there but cannot be run */
#define GW_JOB_NOT_FOUND 127    /* there is no such program */
#define GW_JOB_HOST_LOST 255    /* a host was not reached, or was lost */

typedef struct gw_job_options {
    const gw_hosts *hosts;      /* with their ranks */
    const char *directory;      /* where the ranks run, on every host */
    char *const *argv;          /* the program, NULL at the end */
    char *const *server_argv;   /* likewise of hosts that serve; NULL: none does */
    char *const *env;           /* "NAME=value" for every rank, NULL at the end */
    gw_outpost_options outpost; /* listen_fd is closed by gw_job_run once rank 0 has it */
    gw_console_options console;
    gw_elastic *elastic; /* what becomes of ranks that die; NULL: the job ends */
    gw_time grace;   /* from SIGTERM to SIGKILL */
    gw_time silence; /* of a host, after which it is lost; 0: only when its connection ends, and no heartbeats */
    gw_time timeout; /* of the whole job, 0: none */
} gw_job_options;

/* Returns the exit code of the launcher; everything was said on the console. While it runs it takes SIGINT, SIGTERM,
 * SIGHUP and SIGCHLD for itself, and at its end it kills every child this process has. One thread. */
int gw_job_run(const gw_job_options *options);

#endif
