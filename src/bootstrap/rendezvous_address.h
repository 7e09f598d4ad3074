/* rendezvous_address.h - the address of a job's rendezvous, and the sockets on which this rank listens. */
#ifndef GW_BOOTSTRAP_RENDEZVOUS_ADDRESS_H
#define GW_BOOTSTRAP_RENDEZVOUS_ADDRESS_H

#include "bootstrap/connection_manager.h"
#include "bootstrap/job_environment.h"

typedef struct gw_rendezvous_address {
    int count;
    gw_address at[GW_DIAL_CANDIDATES_MAX]; /* rank 0 listens on one of these */
    char text[GW_HOST_TEXT + 16];          /* "node1:29500", "node1:29501-29516" */
    bool (*off)(void *ctx);                /* polled while waiting: true cancels the rendezvous; NULL: nothing does */
    void *ctx;
} gw_rendezvous_address;

/* Resolves the address of rank 0. interfaces: the user's selection (interface.h) or NULL. */
gw_status gw_rendezvous_address_find(const gw_job_env *job_env, const char *interfaces,
                                     gw_rendezvous_address *rendezvous, gw_error *error);

/* Opens this rank's listeners. Rank 0: at the rendezvous address (with the launcher's socket if there is one), and also
 * on the selected interface if that is another. Others: on the selected interface, else the one that routes to rank 0,
 * at a port of the range `ports` ("29500-29599"; NULL: any). *advertised is the address for the other ranks. */
gw_status gw_rendezvous_address_listen(gw_connections *connections, const gw_job_env *job_env,
                                       const gw_rendezvous_address *rendezvous, const char *interfaces,
                                       const char *ports, gw_address *advertised, gw_error *error);

#endif
