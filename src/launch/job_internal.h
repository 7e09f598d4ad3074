/* job_internal.h - shared by the files of a job: job.c starts and ends it, job_reports.c handles the hosts' frames,
 * job_elastic.c continues without lost ranks and hosts, job_host_liveness.c detects lost hosts. One thread. */
#ifndef GW_LAUNCH_JOB_INTERNAL_H
#define GW_LAUNCH_JOB_INTERNAL_H

#include <poll.h>

#include "launch/job.h"
#include "launch/launch_protocol.h"
#include "launch/verdict.h"

#define GW_NEVER UINT64_MAX

typedef struct gw_job {
    const gw_job_options *options;
    gw_host_connection *connections; /* one per host */
    gw_console_line (*lines)[2];     /* of each rank */
    struct pollfd *polls;            /* FIXED_POLLS, and POLLS_PER_HOST_CONNECTION for each host */
    gw_console console;
    int world;
    int signals; /* signalfd */
    gw_verdict verdict;
    bool announced;                                              /* the verdict was printed */
    int workers, workers_left;                                   /* left: not yet exited with 0 */
    gw_time greet_until, settle_until, timeout_at, finish_until; /* GW_NEVER: not in force */
    gw_time servers_until;                                       /* all workers have ended: when servers are killed */
    int interrupts;                                              /* signals that asked the launcher to end */
    gw_time *restart_at;                                         /* by rank; GW_NEVER: no restart is due */
    gw_time check_at;                                            /* when the hosts are pinged next */
} gw_job;

static inline int gw_job_hosts(const gw_job *j) { return j->options->hosts->count; }
static inline bool gw_job_serves(const gw_job *j, int rank) { return rank >= j->workers; }
static inline bool gw_job_ending(const gw_job *j) { return j->finish_until != GW_NEVER; }

/* job.c: ends all ranks with that signal, and with SIGKILL after the grace. */
void gw_job_end(gw_job *j, int number, gw_time grace);
/* A rank has failed: the others have a second to report their own errors. */
void gw_job_settle(gw_job *j);

/* job_reports.c: reads the frames of a supervisor, and the standard error of its remote shell. */
void gw_job_read_frames(gw_job *j, gw_host_connection *connection);
void gw_job_read_errors(gw_job *j, gw_host_connection *connection);

/* job_elastic.c: a rank of an elastic job has ended. False: the job cannot go on. */
bool gw_job_replace(gw_job *j, gw_host_connection *connection, int rank, const gw_launch_frame *frame);
/* A rank has reported the address at which its peers reach it. */
void gw_job_take_address(gw_job *j, int rank, const gw_launch_frame *frame);
/* Every worker has ended. */
void gw_job_workers_over(gw_job *j);
/* A host of an elastic job was lost, with its ranks. False: the job cannot go on. */
bool gw_job_go_on_without(gw_job *j, const gw_host_connection *connection, const gw_verdict *why);
/* Ranks may wait in gw_regroup though no rank has died: starts the next generation for them, or removes the late rank
 * or the cut-off host that they wait for. */
void gw_job_answer_ranks(gw_job *j, gw_time now);
/* Restarts the ranks whose back-off has passed. gw_job_next_restart returns when the next restart is due. */
void gw_job_restart_ranks(gw_job *j, gw_time now);
gw_time gw_job_next_restart(const gw_job *j);
void gw_job_send_all(gw_job *j, gw_launch_kind kind, const char *text, size_t bytes);

/* job_host_liveness.c: bytes have arrived from this host. */
void gw_job_host_answered(gw_host_connection *connection);
/* Pings all hosts, and gives up those that have not answered. reads: the launcher reads their answers at present. */
void gw_job_check_hosts(gw_job *j, bool reads, gw_time now);
/* Closes the connection: the host counts as lost from now on. */
void gw_job_give_up(gw_host_connection *connection);
/* Stops this process on SIGTSTP; returns after SIGCONT. */
void gw_job_pause(gw_job *j);
void gw_job_rank_hung(gw_job *j, const gw_host_connection *connection, const gw_launch_frame *frame);

#endif
