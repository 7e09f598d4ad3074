/* step_table.h - what a server process has to know of a step: its strategy, options and tensors, as one block of bytes
 * that the first worker sends. Host order, as everything between processes of one job. */
#ifndef GW_ENGINE_STEP_TABLE_H
#define GW_ENGINE_STEP_TABLE_H

#include "strategy/strategy.h"

typedef struct gw_step_table {
    void *bytes; /* owned; NULL: none */
    size_t count;
} gw_step_table;

gw_status gw_step_table_write(gw_step_table *table, const gw_strategy *strategy, const gw_step_options *options,
                              const gw_step_tensor *tensors, int count, gw_error *error);
void gw_step_table_free(gw_step_table *table);

/* A step as a server process sees it. Tensors have addresses, side by side, and no memory: nobody reads or writes
 * there. */
typedef struct gw_step_request {
    char strategy[GW_STRATEGY_PRINT_BYTES];
    gw_step_options options;
    gw_step_tensor *tensors; /* owned; their names lie in the table */
    int count;
    void *room;              /* reserved addresses; NULL: none */
    size_t room_bytes;
} gw_step_request;

/* The table outlives the request. */
gw_status gw_step_request_read(gw_step_request *request, const gw_step_table *table, gw_error *error);
void gw_step_request_free(gw_step_request *request); /* of zeros is fine */

#endif
