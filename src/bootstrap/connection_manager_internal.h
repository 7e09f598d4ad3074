/* connection_manager_internal.h - the connection manager's state, shared by connection_manager.c and dial.c only. */
#ifndef GW_BOOTSTRAP_CONNECTION_MANAGER_INTERNAL_H
#define GW_BOOTSTRAP_CONNECTION_MANAGER_INTERNAL_H

#include "bootstrap/connection_manager.h"
#include "bootstrap/handshake.h"

#include <pthread.h>

typedef struct listener {
    int fd;
    gw_address address; /* with its port */
} listener;

/* An authenticated connection that has no handler yet. */
typedef struct parked {
    gw_intro peer;
    gw_traffic_keys keys;
    int fd;
    bool dialled;
    struct parked *next;
} parked;

/* Owned by the polling thread, except `lock` and `asked`. */
struct gw_connections {
    int rank, world;
    gw_identity identity;
    gw_security_choice security;      /* what the strategy line asks for */
    uint8_t (*trusted)[GW_KEY_BYTES]; /* static keys by rank; NULL: not known yet */
    int trusted_count;
    int epoll, wake; /* wake: eventfd that wakes the poller */
    int listeners;
    listener listener[GW_CONNECTIONS_LISTENERS_MAX];
    gw_time resume; /* when accepting resumes after a pause; UINT64_MAX: it is not paused */

    /* accepted, not yet authenticated; all have the same timeout, so this is deadline order */
    gw_handshake *oldest, *newest;
    int half_open; /* length of that list */
    uint64_t strangers, strangers_logged;
    bool starved; /* descriptors were used up */
    gw_address last_stranger;
    const char *last_reason; /* static text */
    gw_time next_log;

    bool served[GW_PURPOSES], shut[GW_PURPOSES];
    gw_connection_handler handlers[GW_PURPOSES];
    parked *parked; /* in order of arrival */

    pthread_mutex_t lock;
    gw_dial *asked; /* under lock: new dials, newest first, that are to be moved to `dials` */
    gw_dial *dials;
    gw_time dial_wake; /* no dial needs attention before; UINT64_MAX: none at all */
};

void gw_connections_wake(gw_connections *connections); /* from any thread */
/* True if the peer has not proved the static key of the rank that it says it is. */
bool gw_connections_pose(const gw_connections *connections, const gw_intro *peer);
/* Gives the connection to the handler of its purpose, now or later; closes it where the peer poses as another rank. */
void gw_connections_deliver(gw_connections *connections, const gw_intro *peer, int fd, bool dialled,
                            const gw_traffic_keys *keys);

/* A connection could not be opened or accepted because descriptors are used up: warns once. */
void gw_connections_note_starved(gw_connections *connections);

/* dial.c: handles an event on a dial's handshake; does everything that is due; drops all dials. */
void gw_dial_pump(gw_connections *connections, gw_handshake *hs, gw_time now);
bool gw_dials_serve(gw_connections *connections, gw_time now);
void gw_dials_close(gw_connections *connections);

#endif
