/* context.h - one process's membership of a job: the core, its transports, the connection manager and the progress
 * thread. Communicators (comm.h) are built on it.
 *
 * Threads. `lock` guards the core, the transports and everything marked (L). One thread at a time is the driver: it
 * polls the core until its operation is done, and releases the lock while it sleeps. A blocking call drives in the
 * caller's own thread. The progress thread drives asynchronous operations that no caller waits for; it also runs
 * heartbeats, control links and handshakes. Fields marked (P) belong to the progress thread (to the joining thread
 * before it is started). */
#ifndef GW_RUNTIME_CONTEXT_H
#define GW_RUNTIME_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/heartbeat.h"
#include "bootstrap/channel.h"
#include "bootstrap/connection_manager.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/job_environment.h"
#include "engine/flight_recorder.h"
#include "engine/rank_core.h"
#include "strategy/strategy.h"
#include "trace/step_mark.h"
#include "transport/transport.h"

#define GW_LINK_QUEUE 128 /* control messages queued for a slow neighbour */

/* A control connection to another rank. (L) */
typedef struct gw_control_link {
    int rank;
    gw_channel *channel; /* NULL: not connected */
    bool by_lower;       /* the lower rank of the two dialled it */
    bool dialling;       /* this rank is dialling the other */
    bool waiting;        /* something is left to send, once the socket takes it */
    uint8_t in[GW_CONTROL_BYTES];
    size_t in_have;
    uint8_t *out; /* GW_LINK_QUEUE messages, a ring of bytes */
    size_t out_first, out_used;
} gw_control_link;

/* The process of a rank on this host. (P) */
typedef struct gw_watched {
    int fd;           /* pidfd, -1: not watched, or no longer */
    gw_time ended_at; /* when its end was seen, until gw_watch_settle has handled it; 0: alive, or handled */
} gw_watched;

typedef struct gw_context {
    int rank, world;
    unsigned fork_depth;    /* of the process that joined (base/fork_descriptors.h); constant */
    gw_job_env job_env;     /* the job it joined; constant */
    gw_options options;     /* of the join; its strings are copies. Constant */
    gw_time deadline;       /* ns */
    bool any_side;          /* quorum=off */
    gw_heartbeat heartbeat; /* read by the launcher of an elastic job. Constant after joining; any thread may beat */
    gw_strategy strategy;
    gw_endpoint *endpoints;      /* world entries; constant after joining */
    int *host_of;                /* world entries; constant after joining */
    gw_connections *connections; /* (P), except gw_connections_dial */

    pthread_mutex_t lock;
    _Atomic int lock_wanted;   /* threads that wait for the lock: the driver releases it for them between polls */
    pthread_cond_t turn;       /* (L) signalled when operations end and when the driver stops driving */
    bool driven;               /* (L) a thread is the driver */
    bool background;           /* (L) the driver is the progress thread: a caller may take over while it sleeps */
    bool report_due;           /* (L) the job has failed, and nobody has reported it yet */
    _Atomic int takers;        /* callers that want to drive: the progress thread stops driving */
    gw_core *core;             /* (L) */
    gw_transport *net, *shm;   /* (L) between hosts, within a host; NULL: not in the strategy, or a world of one */
    gw_transport *refused_shm; /* open, so that peers read in it why it is not used; NULL: none */
    gw_control_link *links;    /* (L) by rank; link_count: world, or 0 in a world of one and after retiring */
    int link_count;
    uint32_t next_comm;             /* (L) id of the next communicator */
    gw_comm *comms;                 /* (L) */
    gw_comm *everyone;              /* (L) workers and server processes; one of comms. NULL: no server processes */
    uint32_t next_reducer;          /* (L) number of the next reducer that server processes join */
    uint32_t next_serial;           /* (L) serial number of the next reducer with servers */
    gw_request *spare_requests;     /* (L) */
    gw_flight flight;               /* (L) the last operations */
    gw_error report;                /* (L) the job's last error */
    int reports;                    /* (L) threads that write a report of it now */
    struct gw_trace *trace;         /* (L) the current recording; NULL: none. Callers' threads read it too */
    gw_step_mark step;              /* the caller's step in it (gw_trace_step_begin); of the caller's thread */
    _Atomic pthread_t step_thread;  /* that thread; 0: the caller marks no steps */
    int *rack_of;                   /* world entries, any numbers; NULL: none are known. Constant after gw_init */
    struct gw_job_links *job_links; /* measured link costs; NULL: none. Constant after gw_init */
    bool shm_everywhere;            /* shared memory works with all ranks of this host; constant after joining */
    bool oversubscribed;            /* on some machine ranks outnumber cores; constant after gw_init */
    bool use_shm_coll;              /* shm_everywhere on all ranks: use shm collectives; constant after gw_init */
    gw_error join_error;            /* (L) while joining */

    pthread_t thread;
    bool threaded;
    int wake;                     /* eventfd: wakes the sleeping driver */
    int kick;                     /* eventfd: wakes the progress thread */
    int events;                   /* epoll: connection manager, kick, control links, processes. (P) */
    gw_watched *watched;          /* world entries. (P) */
    int ended;                    /* processes whose end gw_watch_settle has to handle. (P) */
    _Atomic bool driver_sleeps;   /* until wake is signalled */
    _Atomic bool progress_sleeps; /* until kick is signalled */
    _Atomic bool stop;
    int spin_yield; /* more local ranks than cores: yield while spinning */
    int wait_cpu;   /* the CPU to wait on (wait_cpu.c); -1: any. Constant after joining */
    int spin_shift; /* (L) after long waits the driver spins 2^spin_shift times shorter */
} gw_context;

/* context.c: joins the job by `until` and starts the progress thread; leaves the job. */
gw_status gw_context_open(gw_context **context, const gw_options *options, const gw_job_env *job_env, gw_time until,
                          gw_error *error);
void gw_context_leave(gw_context *context);
/* Stops taking part in the job; communicators can only be finalised. */
void gw_context_retire(gw_context *context);
gw_status gw_context_deadline(const gw_options *options, gw_time *deadline, gw_error *error);
/* Whether the words in the environment are valid; gw_context_open checks them, too. */
gw_status gw_context_check_environment(gw_error *error);

/* fork_guard.c: true in a forked child of the process that joined; it must not touch the context. */
bool gw_context_forked(const gw_context *context);

/* failure_report.c: writes the flight record and the warning that is due. Without the lock: the file may be slow. */
void gw_context_report(gw_context *context);

/* rejoin.c */
gw_status gw_options_copy(gw_options *copy, const gw_options *options, gw_error *error);
void gw_options_free(gw_options *copy);
bool gw_context_same_host(const gw_context *context, int a, int b);

/* open_transports.c: the transports. listen is called before the rendezvous; it fills in own, the transport's data for
 * peers. connect is called after the rendezvous, when all endpoints are known; it opens the other transports and sets
 * the route to each peer. */
gw_status gw_net_listen(gw_context *context, const gw_address *address, const char *ports,
                        uint8_t own[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error);
gw_status gw_net_connect(gw_context *context, gw_error *error);

/* How a data connection to that rank is protected. */
gw_security gw_context_data_security(const gw_context *context, int rank);

/* wait_cpu.c: counts the ranks less than `below` on this machine (this host, and other namespaces or containers there);
 * chooses this rank's wait CPU (-1: any); moves the calling thread to it. */
int gw_context_ranks_of_machine(const gw_context *context, int below);
int gw_context_wait_cpu(const gw_context *context);
void gw_context_go_to_wait_cpu(const gw_context *context);

/* progress.c. Unlocking also writes the report that is due. */
void gw_context_lock(gw_context *context);
void gw_context_unlock(gw_context *context);
/* Drives until the operation is done; _until: until holds() is true. (L) held, released while sleeping. */
void gw_context_drive(gw_context *context, const gw_op *op);
/* Tries the fast path (gw_fast_path_start). False: not possible or not done yet; call gw_op_start next. (L) held. */
bool gw_context_fast_path(gw_context *context, gw_team *team, const gw_op_spec *spec);
void gw_context_drive_until(gw_context *context, bool (*holds)(void *ctx), void *ctx);
/* Takes the lock in order to drive: the progress thread stops driving. */
void gw_context_lock_to_drive(gw_context *context);
/* A progress callback has new work: wakes the driver and the progress thread. Any thread, without the lock. */
void gw_context_notify(gw_context *context);
/* An operation was started that no caller waits for yet. (L) held. */
void gw_context_started(gw_context *context);
void gw_context_wake(gw_context *context);
void *gw_context_progress(void *context);

/* process_watch.c: watches the processes of this host. Called by the joining thread, later by the progress thread.
 * ended: epoll has reported the end of that process. settle: handles the processes that have ended; (L) is held, and
 * the control links have been polled since epoll reported them. */
gw_status gw_watch_open(gw_context *context, gw_error *error);
void gw_watch_ended(gw_context *context, int rank, gw_time now);
void gw_watch_settle(gw_context *context, gw_time now);
void gw_watch_close(gw_context *context);

/* control_links.c: control connections, (L) held. */
void gw_control_links_send(gw_context *context, int neighbour, const gw_control_message *message);
gw_status gw_control_links_open(gw_context *context, gw_error *error);
/* Takes over a connection to that rank, unless a preferred one exists. */
void gw_control_links_adopt(gw_context *context, int rank, int fd, bool dialled, const gw_traffic_keys *keys);
/* Dials a rank, replacing an existing connection; failed: the dial did not succeed. */
void gw_control_links_dial(gw_context *context, int rank);
void gw_control_links_failed(gw_context *context, int rank, gw_status status, const char *detail);
void gw_control_links_poll(gw_context *context, gw_time now);
void gw_control_links_flush(gw_context *context, int link);
void gw_control_links_close(gw_context *context);

#endif
