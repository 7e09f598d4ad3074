/* rendezvous.h - every rank learns the endpoints of all others: all send theirs to rank 0, which sends the table to
 * all.
 *
 * A rank joins a job like this:
 *
 *     gw_job_env_find(options, &job_env, error);
 *     gw_token_find(options->token, &token, error);
 *     gw_connections_open(&connections, job_env.rank, job_env.world, &token, job_env.job, error);
 *     gw_rendezvous_address_find(&job_env, interfaces, &rendezvous, error);
 *     gw_rendezvous_address_listen(connections, &job_env, &rendezvous, interfaces, ports, &address, error);
 *     gw_endpoint_describe(job_env.rank, &address, &mine, error);
 *     gw_rendezvous(connections, &rendezvous, &mine, job_env.world, deadline, all, error);
 *
 * Cost: two messages for each rank; rank 0 sends world * world records in all. */
#ifndef GW_BOOTSTRAP_RENDEZVOUS_H
#define GW_BOOTSTRAP_RENDEZVOUS_H

#include "bootstrap/endpoint.h"
#include "bootstrap/rendezvous_address.h"

/* Blocks, at most until a little after `deadline` (on gw_clock_now's clock), and drives the connection manager
 * meanwhile. `all` gets world entries; on failure its contents are undefined. Every rank that has reached rank 0 learns
 * from the error which ranks are missing, which disagree about the world, or which came twice. */
gw_status gw_rendezvous(gw_connections *connections, const gw_rendezvous_address *rendezvous, const gw_endpoint *mine,
                        int world, gw_time deadline, gw_endpoint *all, gw_error *error);

#endif
