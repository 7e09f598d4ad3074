/* gateway_inside.h - the gateway's state, shared by gateway.c and dial.c only. */
#ifndef GW_TRANSPORT_GATEWAY_INSIDE_H
#define GW_TRANSPORT_GATEWAY_INSIDE_H

#include "transport/gateway.h"
#include "transport/link.h"

#include <pthread.h>

typedef struct listener {
    int fd;
    gw_address address; /* with its port */
} listener;

/* An authenticated connection that no room serves yet. */
typedef struct parked {
    gw_intro peer;
    int fd;
    bool dialled;
    struct parked *next;
} parked;

/* The polling thread's, but for `lock` and `asked`. */
struct gw_gateway {
    int rank, world;
    uint8_t key[GW_AUTH_KEY_BYTES];
    int epoll, kick; /* kick: eventfd that wakes the poller */
    int listeners;
    listener listener[GW_GATEWAY_LISTENERS_MAX];
    gw_time resume; /* when accepting goes on after a pause; UINT64_MAX: it is not paused */

    gw_link *oldest, *newest; /* accepted and not yet proved; all have the same patience, so this is deadline order */
    int half_open;            /* length of that list */
    uint64_t strangers, strangers_logged;
    gw_address last_stranger;
    const char *last_reason; /* static text */
    gw_time next_log;

    bool served[GW_PURPOSES], shut[GW_PURPOSES];
    gw_gateway_room room[GW_PURPOSES];
    parked *parked; /* in order of arrival */

    pthread_mutex_t lock;
    gw_dial *asked; /* under lock: newest first, on its way to `dials` */
    gw_dial *dials;
    gw_time dial_wake; /* no dial needs service before; UINT64_MAX: none at all */
};

void gw_gateway_kick(gw_gateway *gateway); /* from any thread */
/* To the room that serves the purpose, now or later. */
void gw_gateway_deliver(gw_gateway *gateway, const gw_intro *peer, int fd, bool dialled);

/* dial.c: an event on the link of a dial; everything that is due; the end. */
void gw_dial_pump(gw_gateway *gateway, gw_link *link, gw_time now);
bool gw_dials_serve(gw_gateway *gateway, gw_time now);
void gw_dials_close(gw_gateway *gateway);

#endif
