/* node.h - one process's membership of a job: the core, its transports, the gateway, and the thread that keeps them
 * going. Communicators (comm.h) stand on it.
 *
 * Threads. `lock` guards the core, the transports and everything marked (L). One thread at a time is the driver: it
 * polls the core until what it waits for is done, giving the lock away while it sleeps. A blocking call drives in the
 * caller's own thread; the progress thread drives what was started asynchronously and is not waited for, and besides
 * keeps heartbeats, control links and handshakes going. Fields marked (P) belong to the progress thread (to the
 * joining thread before it is started). */
#ifndef GW_ENGINE_NODE_H
#define GW_ENGINE_NODE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/pulse.h"
#include "engine/core.h"
#include "engine/flight.h"
#include "strategy/strategy.h"
#include "transport/endpoint.h"
#include "transport/gateway.h"
#include "transport/place.h"
#include "transport/transport.h"

#define GW_LINK_QUEUE 128 /* control messages waiting for a slow neighbour */

/* A control connection to another rank. (L) */
typedef struct gw_control_link {
    int rank;
    int fd;          /* -1: not yet, or no longer */
    bool by_lower;   /* the lower rank of the two dialled it */
    bool dialling;   /* this rank is dialling the other */
    uint8_t in[GW_CONTROL_BYTES];
    size_t in_have;
    uint8_t *out; /* GW_LINK_QUEUE messages, a ring of bytes */
    size_t out_first, out_used;
} gw_control_link;

/* The process of a rank on this host. (P) */
typedef struct gw_watched {
    int fd;           /* pidfd, -1: not watched, or no longer */
    gw_time ended_at; /* when its end was seen, until that is settled; 0: it lives, for all that is known */
} gw_watched;

typedef struct gw_node {
    int rank, world;
    unsigned fork_depth;  /* of the process that joined (base/descriptor.h); constant */
    gw_place place;       /* where it joined; constant */
    gw_options options;   /* as it was joined with; its strings are copies. Constant */
    gw_time deadline; /* ns */
    bool any_side;    /* quorum=off */
    gw_pulse pulse;   /* what the launcher of an elastic job sees of it. Constant after joining; any thread may beat */
    gw_strategy strategy;
    gw_endpoint *endpoints; /* world entries; constant after joining */
    int *host_of;           /* world entries; constant after joining */
    gw_gateway *gateway;    /* (P), but for gw_gateway_dial */

    pthread_mutex_t lock;
    _Atomic int lock_wanted;  /* threads that wait for the lock: the driver lets them in between polls */
    pthread_cond_t turn;      /* (L) signalled when operations end and when the driver stops driving */
    bool driven;              /* (L) a thread is the driver */
    bool unwatched;           /* (L) it is the progress thread, which a caller may relieve while it sleeps */
    _Atomic int takers;       /* callers that want to drive themselves: the progress thread makes way */
    gw_core *core;            /* (L) */
    gw_transport *net, *shm;  /* (L) across hosts, and within; NULL: the strategy has none, or the world is one rank */
    gw_control_link *links;   /* (L) link_count entries, by rank: world, or 0 for one that is alone or has retired */
    int link_count;
    uint32_t next_comm;       /* (L) id of the next communicator */
    gw_comm *comms;           /* (L) */
    gw_comm *everyone;        /* (L) of all processes, where some only serve; one of comms. NULL: all work */
    uint32_t next_step;       /* (L) number of the next step that server processes are told of */
    gw_request *spare_requests; /* (L) */
    gw_flight flight;         /* (L) the last operations */
    struct gw_trace *trace;   /* (L) the recording under way; NULL: none. Callers' own threads read it too */
    struct gw_job_links *job_links; /* what was measured of the links; NULL: nothing. Constant after gw_init */
    bool shm_everywhere;      /* this rank reaches all others of its host by shared memory; constant after joining */
    bool crowded;             /* some ranks outnumber the cores of their machine; constant after gw_init */
    bool boards;              /* all ranks do, everywhere: boards are used; constant after gw_init */
    gw_error join_error;      /* (L) while joining */

    pthread_t thread;
    bool threaded;
    int wake;      /* eventfd: the sleeping driver is to look again */
    int kick;      /* eventfd: the progress thread is to look again */
    int events;    /* epoll: gateway, kick, control links, processes. (P) */
    gw_watched *watched; /* world entries. (P) */
    int ended;           /* processes whose end is to be settled. (P) */
    _Atomic bool driver_sleeps;   /* until wake is rung */
    _Atomic bool progress_sleeps; /* until kick is rung */
    _Atomic bool stop;
    int spin_yield; /* more local ranks than cores: give the core away while spinning */
    int home;       /* the CPU at which it waits (home.c); -1: any. Constant after joining */
    int spin_shift; /* (L) waits have been long lately: the driver spins 2^this times shorter */
} gw_node;

/* node.c: joins the job at that place, until then at the latest, and starts the progress thread; leaves it. */
gw_status gw_node_open(gw_node **node, const gw_options *options, const gw_place *place, gw_time until,
                       gw_error *error);
void gw_node_leave(gw_node *node);
/* Takes no part any more; communicators can only be finalised. */
void gw_node_retire(gw_node *node);
gw_status gw_node_deadline(const gw_options *options, gw_time *deadline, gw_error *error);

/* forked.c: this is a child of the process that joined, and must not touch anything of the node. */
bool gw_node_forked(const gw_node *node);

/* rejoin.c */
gw_status gw_options_copy(gw_options *copy, const gw_options *options, gw_error *error);
void gw_options_free(gw_options *copy);
bool gw_node_same_host(const gw_node *node, int a, int b);

/* net.c: the transport between hosts where that is not tcp. Before the rendezvous: what the others are to be told goes
 * into own; afterwards: the endpoints of all are known. threads: of the transport's own. */
bool gw_net_is_tcp(const gw_node *node);
gw_status gw_net_listen(gw_node *node, const gw_address *address, const char *ports, uint8_t own[GW_ENDPOINT_SHM],
                        gw_error *error);
gw_status gw_net_connect(gw_node *node, gw_error *error);
int gw_net_threads(const gw_node *node);

/* home.c: ranks below one that share this rank's cores: those of its host, and of other namespaces or containers of its
 * machine; where this one waits (-1: anywhere); moves the calling thread there. */
int gw_node_ranks_of_machine(const gw_node *node, int below);
int gw_node_home(const gw_node *node);
void gw_node_go_home(const gw_node *node);

/* progress.c */
void gw_node_lock(gw_node *node);
void gw_node_unlock(gw_node *node);
/* Drives until the operation is done, or what is asked holds; (L) held, and given away while sleeping. */
void gw_node_drive(gw_node *node, const gw_op *op);
/* Tries to have it done at once (gw_quick_start); false: not, or not yet, and gw_op_start is next. (L) held. */
bool gw_node_quick(gw_node *node, gw_team *team, const gw_op_spec *spec);
void gw_node_drive_until(gw_node *node, bool (*holds)(void *ctx), void *ctx);
/* Takes the lock in order to drive: a progress thread at work makes way. */
void gw_node_lock_to_drive(gw_node *node);
/* A rider was given something to do: whoever sleeps is to look. Any thread, without the lock. */
void gw_node_nudge(gw_node *node);
/* Something was started that nobody waits for yet: (L) held. */
void gw_node_started(gw_node *node);
void gw_node_wake(gw_node *node);
void *gw_node_progress(void *node);

/* watch.c: processes of this host; by the joining thread, then by the progress thread. ended: epoll says so. settle:
 * (L) is held, and the control links have been polled since. */
gw_status gw_watch_open(gw_node *node, gw_error *error);
void gw_watch_ended(gw_node *node, int rank, gw_time now);
void gw_watch_settle(gw_node *node, gw_time now);
void gw_watch_close(gw_node *node);

/* links.c: control connections, (L) held. */
void gw_links_send(gw_node *node, int neighbour, const gw_control_message *message);
gw_status gw_links_open(gw_node *node, gw_error *error);
/* Takes a connection to that rank, unless a better one stands. */
void gw_links_adopt(gw_node *node, int rank, int fd, bool dialled);
/* Dials a rank, in place of a connection that stands; what came to nothing, and how. */
void gw_links_dial(gw_node *node, int rank);
void gw_links_failed(gw_node *node, int rank, gw_status status, const char *detail);
void gw_links_poll(gw_node *node, gw_time now);
void gw_links_flush(gw_node *node, int link);
void gw_links_close(gw_node *node);

#endif
