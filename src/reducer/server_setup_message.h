/* server_setup_message.h - the message that describes a reducer to server processes: its strategy, options and tensors,
 * as one block of bytes. The first worker sends it. Host byte order, as all messages within a job. */
#ifndef GW_REDUCER_SERVER_SETUP_MESSAGE_H
#define GW_REDUCER_SERVER_SETUP_MESSAGE_H

#include "gradwire/reducer.h"
#include "strategy/strategy.h"

typedef struct gw_reducer_table {
    void *bytes; /* owned; NULL: none */
    size_t count;
} gw_reducer_table;

gw_status gw_reducer_table_write(gw_reducer_table *table, const gw_strategy *strategy,
                                 const gw_reducer_options *options, const gw_reducer_tensor *tensors, int count,
                                 gw_error *error);
void gw_reducer_table_free(gw_reducer_table *table);
/* Whether both describe the same strategy and tensors; their first steps may differ. */
bool gw_reducer_table_same(const gw_reducer_table *a, const gw_reducer_table *b);

/* A reducer as a server process sees it. Tensors have addresses, side by side, but no memory: nothing reads or writes
 * there. */
typedef struct gw_reducer_request {
    char strategy[GW_STRATEGY_PRINT_BYTES];
    gw_reducer_options options;
    gw_reducer_tensor *tensors; /* owned; their names are in the table */
    int count;
    void *room; /* reserved addresses of the tensors; NULL: none */
    size_t room_bytes;
} gw_reducer_request;

/* The table must outlive the request. */
gw_status gw_reducer_request_read(gw_reducer_request *request, const gw_reducer_table *table, gw_error *error);
void gw_reducer_request_free(gw_reducer_request *request); /* a request of all zeros is fine */

#endif
