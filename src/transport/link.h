/* link.h - one socket on its way through the handshake: what the gateway has of each. The gateway's thread only. */
#ifndef GW_TRANSPORT_LINK_H
#define GW_TRANSPORT_LINK_H

#include "base/clock.h"
#include "transport/address.h"
#include "transport/auth.h"

typedef struct gw_dial gw_dial;

typedef struct gw_link {
    int fd;           /* owned until gw_link_release */
    int epoll;        /* the gateway's, where the socket is watched */
    uint32_t watched; /* epoll events asked for */
    bool connecting;  /* a dial whose connection is not made yet */
    bool refused;     /* the host answered that nobody listens there */
    gw_auth auth;
    gw_address peer;
    gw_time deadline;              /* of the handshake */
    gw_dial *dial;                 /* whose attempt this is; NULL: it was accepted */
    struct gw_link *older, *newer; /* among the accepted */
} gw_link;

typedef enum gw_link_verdict { GW_LINK_WAITS, GW_LINK_DONE, GW_LINK_BROKEN } gw_link_verdict;

/* Takes fd (also on failure, which is NULL) and watches it. */
gw_link *gw_link_open(int epoll, int fd, const gw_address *peer, bool connecting);
/* Sends and takes what it can. BROKEN: *status says of what sort, why is a clause for a sentence. */
gw_link_verdict gw_link_pump(gw_link *link, gw_status *status, const char **why);
/* Ends the link: closes the socket, or gives it back where it is to live on. */
void gw_link_close(gw_link *link);
int gw_link_release(gw_link *link);

#endif
