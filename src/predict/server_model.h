/* server_model.h - parameter servers on the virtual clock: workers push partitions, the production clock tables
 * (ps/clock_table.h) decide by the synchronization's rule when each worker is answered. A partition is an announced
 * message each way, as in engine/active_message.c. */
#ifndef GW_PREDICT_SERVER_MODEL_H
#define GW_PREDICT_SERVER_MODEL_H

#include "predict/dispatch_model.h"
#include "sync/sync.h"

typedef struct gw_server_model gw_server_model;

typedef struct gw_server_model_config {
    gw_plan_sim *sim;
    const gw_dispatch *dispatches; /* of each bucket; outlive the model */
    int buckets, ranks, per_host;
    gw_sync_rule rule;
    void *ctx;
    void (*sent)(void *ctx, int worker, int bucket);     /* a worker's pushes have left it */
    void (*answered)(void *ctx, int worker, int bucket); /* it has all answers */
} gw_server_model_config;

gw_status gw_server_model_open(gw_server_model **model, const gw_server_model_config *config, gw_error *error);
void gw_server_model_close(gw_server_model *model); /* NULL is fine */

/* A worker pushes a bucket in its own step of that number, all earlier ones being answered. */
gw_status gw_server_model_push(gw_server_model *model, int worker, int bucket, uint64_t step, gw_error *error);
/* A rank has completed its part of a message: gw_plan_sim_config.done, for tags below 0. */
gw_status gw_server_model_done(gw_server_model *model, int rank, int tag, gw_error *error);

#endif
