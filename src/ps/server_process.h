/* server_process.h - parameter servers as processes of their own (gradwire run --servers). They have the ranks after
 * all workers, know nothing of the program, and run commands from the first worker, one after the other. The collective
 * calls of a command, among servers and workers, follow it. */
#ifndef GW_PS_SERVER_PROCESS_H
#define GW_PS_SERVER_PROCESS_H

#include "reducer/server_setup_message.h"

typedef enum gw_server_command {
    GW_SERVER_COMMAND_REDUCER, /* commit a reducer, or resume it on other ranks; its table follows */
    GW_SERVER_COMMAND_TIMES,   /* share the waiting times of workers (gw_reducer_workers) */
    GW_SERVER_COMMAND_RECUT,   /* cut a reducer's buckets by the times that the first worker has measured */
    GW_SERVER_COMMAND_BYE      /* the job is over */
} gw_server_command;

/* Called by all workers; only the first sends. everyone: the communicator of all processes. */
gw_status gw_servers_call(gw_comm *everyone, gw_server_command command, uint32_t number, const gw_reducer_table *table,
                          gw_error *error);
/* This worker leaves the job: the first worker sends BYE, unless the job has failed: servers notice that themselves. */
void gw_servers_dismiss(gw_comm *everyone);

/* Joins the job by its environment and serves until the job is over. */
gw_status gw_serve(gw_error *error);

#endif
