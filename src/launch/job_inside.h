/* job_inside.h - what the files of a job share: job.c starts and ends it, job_news.c takes what the hosts report,
 * job_elastic.c goes on without ranks and hosts that were lost. One thread. */
#ifndef GW_LAUNCH_JOB_INSIDE_H
#define GW_LAUNCH_JOB_INSIDE_H

#include <poll.h>

#include "launch/job.h"
#include "launch/verdict.h"
#include "launch/wire.h"

#define GW_NEVER UINT64_MAX

typedef struct gw_job {
    const gw_job_options *options;
    gw_outpost *outposts; /* one a host */
    gw_line (*lines)[2];  /* of each rank */
    struct pollfd *polls; /* FIXED_POLLS and POLLS_PER_OUTPOST for each outpost */
    gw_console console;
    int world;
    int signals; /* signalfd */
    gw_verdict verdict;
    bool announced;                                              /* the verdict was printed */
    int workers, workers_left;                                   /* left: have not ended well */
    gw_time greet_until, settle_until, timeout_at, finish_until; /* GW_NEVER where not in force */
    gw_time servers_until;                                       /* all workers have ended: when servers are made to */
    int interrupts;                                              /* signals that asked us to end */
    gw_time *again_at;                                           /* by rank: when it is started again; GW_NEVER */
    gw_time look_at;                                             /* when the hosts are asked next */
} gw_job;

static inline int gw_job_hosts(const gw_job *j) { return j->options->hosts->count; }
static inline bool gw_job_serves(const gw_job *j, int rank) { return rank >= j->workers; }
static inline bool gw_job_ending(const gw_job *j) { return j->finish_until != GW_NEVER; }

/* job.c: ends all ranks by that signal, and by SIGKILL after the grace. */
void gw_job_end(gw_job *j, int number, gw_time grace);
/* One rank has failed: the others have a second to say what they saw of it. */
void gw_job_settle(gw_job *j);

/* job_news.c: reads what a host sends, and what its remote shell says. */
void gw_job_hear(gw_job *j, gw_outpost *outpost);
void gw_job_hear_errors(gw_job *j, gw_outpost *outpost);

/* job_elastic.c: a rank of an elastic job has ended. False: the job cannot go on. */
bool gw_job_replace(gw_job *j, gw_outpost *outpost, int rank, const gw_wire_frame *frame);
/* Every worker has ended. */
/* A rank says where it is met. */
void gw_job_met(gw_job *j, int rank, const gw_wire_frame *frame);
void gw_job_workers_over(gw_job *j);
/* A host of an elastic job was lost: that is the end of its ranks, no more. False: the job cannot go on. */
bool gw_job_go_on_without(gw_job *j, const gw_outpost *outpost, const gw_verdict *why);
/* Calls together those who wait for it though nobody has died, without a rank or a host that keeps them from it. */
void gw_job_answer_ranks(gw_job *j, gw_time now);
/* Starts the ranks whose back-off has passed; when the next has. */
void gw_job_start_again(gw_job *j, gw_time now);
gw_time gw_job_next_start(const gw_job *j);
void gw_job_tell_all(gw_job *j, gw_wire_kind kind, const char *text, size_t bytes);

/* job_alive.c: something came from this host. */
void gw_job_heard(gw_outpost *outpost);
/* Asks all hosts whether they are there, and gives up those that have not answered. reads: their answers are read. */
void gw_job_look_at_hosts(gw_job *j, bool reads, gw_time now);
/* The host counts as lost from now on. */
void gw_job_give_up(gw_outpost *outpost);
/* Stops this process, as SIGTSTP asks it to; returns when it is continued. */
void gw_job_pause(gw_job *j);
void gw_job_rank_hung(gw_job *j, const gw_outpost *outpost, const gw_wire_frame *frame);

#endif
