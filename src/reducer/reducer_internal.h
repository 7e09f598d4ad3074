/* reducer_internal.h - types and functions that these files share: reducer.c (the calls of a step), reducer_read.c
 * (counters and state), reducer_open.c (making a reducer), resume.c (moving it to another communicator), server_setup.c
 * (where servers run, and their state) and server_process.c (processes that only serve). */
#ifndef GW_REDUCER_REDUCER_INTERNAL_H
#define GW_REDUCER_REDUCER_INTERNAL_H

#include "decide/decider.h"
#include "reducer/server_setup_message.h"
#include "reducer/step_engine.h"
#include "reducer/step_timing.h"
#include "reducer/tuning.h"
#include "runtime/comm.h"
#include "strategy/combine.h"

struct gw_reducer {
    bool fresh;             /* just committed: it gets weights and step number from the other members */
    gw_comm *comm;          /* the reducer's own, split from the caller's; with server processes, of all processes */
    int workers;            /* ranks of comm that make steps: the lowest ones */
    bool serves_only;       /* this process makes no steps */
    gw_reducer_table table; /* message to server processes; no bytes: there are no such processes */
    uint32_t number;        /* server processes know it by this number; another one after a resume */
    uint32_t serial;        /* among the job's reducers with servers; the same on all ranks, and after a resume */
    gw_strategy asked;      /* as it was committed */
    gw_strategy strategy;   /* with tuned sizes */
    gw_reducer_facts facts; /* for checking which techniques combine */
    gw_tuned_model model;
    char snapshots[512]; /* the directory of servers' snapshots; "": none */
    gw_step_engine *step_engine;
    gw_host_sharing sharing;       /* for the step engine: memory and shm collectives of comm's context */
    gw_progress_callback callback; /* polls the step engine */
    bool attached;                 /* callback is attached to the core */
    float *flat;                   /* pack buffer, from gw_alloc of comm; NULL: tensors are contiguous */
    size_t flat_bytes;
    gw_step_timing timing; /* no values: the schedule needs no measurements */
    gw_tuning tuning;
    bool chooses;        /* strategy=auto, and something is left to choose */
    gw_decider *decider; /* NULL: it does not choose */
    char *optimizer;     /* of the options: what uses the results. Owned; NULL: not known */
    char *decisions;     /* of the options or the environment: its file. Owned; NULL: none */
    int count;           /* tensors */
    size_t buckets_most; /* of any cut */
    uint64_t wait_ns;
    gw_engine_counters before;  /* the engine's, when the reducer began to use it */
    gw_engine_counters earlier; /* sent over its earlier communicators */
    uint64_t dense_bytes;       /* of one step */
    uint64_t first_step;        /* number of this rank's first step */
    uint64_t next_step;         /* number of the step in progress, or of the next */
    char *tune;                 /* of the options, to tune again among other ranks. Owned; may be NULL */
    uint64_t job_first_step;    /* number of the job's first step: pushes are counted from there */
    uint32_t generation;        /* of the job, when it was committed */
    uint64_t steps;             /* ended */
    gw_step_mark recorded;      /* the step in progress in the recording */
};

/* reducer_open.c. Attaches the reducer to the core, which then polls it; detaches it. The context's lock (L) is held.
 * */
void gw_reducer_attach(gw_reducer *reducer);
void gw_reducer_detach(gw_reducer *reducer);
void gw_reducer_log_summary(const gw_reducer *reducer); /* to the log */
/* Collective: GW_OK if all ranks of comm succeeded. A rank that failed keeps its own error; the others get the rank and
 * the reason. */
gw_status gw_reducer_agree(gw_comm *comm, gw_status mine, gw_error *error);
/* A server process's part in a commit. everyone: the communicator of all processes. so_far: the status of reading the
 * table. */
gw_status gw_reducer_commit_as_server(gw_reducer **reducer, gw_comm *everyone, const gw_reducer_request *request,
                                      gw_status so_far, gw_error *error);

/* From the reducer's communicator: the pack buffer (flat_bytes), and ids for the step engine's teams. */
gw_status gw_reducer_alloc_pack_buffer(gw_reducer *reducer, gw_step_engine_config *config, gw_error *error);
void gw_reducer_reserve_team_ids(gw_reducer *reducer, gw_step_engine_config *config); /* (L) is held */
/* Collective. Tuning begins before the step engine is opened or moved, measuring of times after it. */
gw_status gw_reducer_begin_tuning(gw_reducer *reducer, gw_comm *comm, gw_error *error);
gw_status gw_reducer_begin_measuring(gw_reducer *reducer, gw_error *error);
bool gw_reducer_cuts_by_timing(const gw_reducer *reducer);
void gw_reducer_start_polling(gw_reducer *reducer); /* it is polled from now on */

/* deciding.c. Collective. Begins to choose a strategy among the ranks of a communicator; strategy is then the one to
 * begin with. After a step: takes the decider's next turn. */
gw_status gw_reducer_begin_deciding(gw_reducer *reducer, gw_comm *comm, gw_error *error);
gw_status gw_reducer_decide(gw_reducer *reducer);

/* change.c. The tensors as they are now; names and graph stay the step engine's. The caller frees the list. NULL:
 * *error says why. */
gw_reducer_tensor *gw_reducer_list_tensors(const gw_reducer *reducer, gw_error *error);
/* Collective, between two steps: flushes, and continues with another architecture, schedule or codec. */
gw_status gw_reducer_change(gw_reducer *reducer, const gw_strategy *strategy);

/* resume.c: moves the reducer to communicator `mine`, while restarted ranks commit theirs. */
gw_status gw_reducer_rejoin(gw_reducer *reducer, gw_comm *mine, gw_error *error);

/* catch_up.c. Collective, without servers: brings every tensor to the same step on all ranks, with the same weights and
 * optimiser's arrays if the reducer updates; the next step gets the same number. */
gw_status gw_reducer_catch_up(gw_reducer *reducer, gw_error *error);

/* server_setup.c. Fills error from this thread's last error, if a public call has failed with status. */
gw_status gw_reducer_copy_last_error(gw_status status, gw_error *error);
/* Collective: all-gathers a description of every rank, for the placement of servers. The caller frees *who. If there
 * are no servers, *who stays as it is. */
gw_status gw_reducer_gather_members(gw_reducer *reducer, const gw_step_engine_config *config, gw_ps_member **who,
                                    gw_error *error);
/* Collective, once the step engine is open: moves each server's state to the rank that runs it now. Without servers:
 * gw_reducer_catch_up. */
gw_status gw_reducer_transfer_state(gw_reducer *reducer, gw_error *error);
/* Collective: splits a communicator for the reducer, of all ranks that take part. Sends the command for it to server
 * processes. */
gw_status gw_reducer_split_comm(gw_reducer *reducer, gw_comm *comm, gw_comm **mine, gw_error *error);
/* A server process's part in gw_reducer_resume. */
gw_status gw_reducer_resume_as_server(gw_reducer *reducer, gw_comm *everyone, gw_error *error);

/* reducer.c. Flushed: makes a step in which all tensors are ready, and wakes no thread; the caller drives it by
 * gw_reducer_wait, or calls gw_context_notify. Schedules that are tuned or measured do not count it. */
gw_status gw_reducer_begin_step(gw_reducer *reducer);
/* Flushed, and its state restored: the next step gets this number, which may be one that it has made. */
void gw_reducer_continue_at(gw_reducer *reducer, uint64_t step);
/* It has not failed, and nothing of it is in flight; with servers, all ranks have left it. */
bool gw_reducer_quiet(const gw_reducer *reducer);
/* Gives rank 0's measurements to all ranks that take part, and cuts buckets by them. Collective among these. */
gw_status gw_reducer_recut_by_timing(gw_reducer *reducer);
/* Counts and times of all workers at the servers, one entry for each worker. Collective among all ranks that take
 * part. */
gw_status gw_reducer_share_times(gw_reducer *reducer, gw_reducer_worker_stats *workers, gw_error *error);

#endif
