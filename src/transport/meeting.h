/* meeting.h - where the ranks of a job meet, and which sockets this rank listens on. */
#ifndef GW_TRANSPORT_MEETING_H
#define GW_TRANSPORT_MEETING_H

#include "transport/gateway.h"
#include "transport/place.h"

typedef struct gw_meeting {
    int count;
    gw_address at[GW_DIAL_CANDIDATES_MAX]; /* rank 0 listens on one of these */
    char text[GW_HOST_TEXT + 16];          /* "node1:29500", "node1:29501-29516" */
    bool (*off)(void *ctx);                /* asked while waiting: it will not take place; NULL: it will */
    void *ctx;
} gw_meeting;

/* Resolves the address of rank 0. interfaces: the user's selection (interface.h) or NULL. */
gw_status gw_meeting_find(const gw_place *place, const char *interfaces, gw_meeting *meeting, gw_error *error);

/* Opens this rank's listeners. Rank 0: at the meeting point (the launcher's socket if there is one), and where the
 * selection leads elsewhere there too. Others: on the selected interface, else the one that routes to rank 0, at a port
 * of the range `ports` ("29500-29599"; NULL: any). *advertised is what the others are to be told. */
gw_status gw_meeting_listen(gw_gateway *gateway, const gw_place *place, const gw_meeting *meeting,
                            const char *interfaces, const char *ports, gw_address *advertised, gw_error *error);

#endif
