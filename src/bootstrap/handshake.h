/* handshake.h - one socket during its handshake. Only the connection manager's polling thread uses it. */
#ifndef GW_BOOTSTRAP_HANDSHAKE_H
#define GW_BOOTSTRAP_HANDSHAKE_H

#include "base/clock.h"
#include "bootstrap/address.h"
#include "bootstrap/auth.h"

typedef struct gw_dial gw_dial;

typedef struct gw_handshake {
    int fd;           /* owned until gw_handshake_release */
    int epoll;        /* the connection manager's, where the socket is watched */
    uint32_t watched; /* epoll events asked for */
    bool connecting;  /* a dial that is not connected yet */
    bool refused;     /* the host answered that nobody listens there */
    gw_auth auth;
    gw_address peer;
    gw_time deadline;                   /* of the handshake */
    gw_dial *dial;                      /* whose attempt this is; NULL: it was accepted */
    struct gw_handshake *older, *newer; /* among the accepted */
} gw_handshake;

typedef enum gw_handshake_verdict { GW_HANDSHAKE_WAITS, GW_HANDSHAKE_DONE, GW_HANDSHAKE_BROKEN } gw_handshake_verdict;

/* Takes fd (also on failure, which is NULL) and watches it. */
gw_handshake *gw_handshake_open(int epoll, int fd, const gw_address *peer, bool connecting);
/* Sends and receives what it can. BROKEN: *status is the kind of failure, *why a clause for an error. */
gw_handshake_verdict gw_handshake_pump(gw_handshake *hs, gw_status *status, const char **why);
/* Ends the handshake: closes the socket, or returns it open. */
void gw_handshake_close(gw_handshake *hs);
int gw_handshake_release(gw_handshake *hs);

#endif
