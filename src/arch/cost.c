/* cost.c - see cost.h. */
#include "arch/cost.h"

/* Links that were not measured. Within a host: loopback; between hosts: 1 Gbit/s, because a guess that is too low costs
 * less than one that is too high. */
static const gw_link_cost within_host = {.alpha = 12e-6, .beta = 0.25e-9},
                          between_hosts = {.alpha = 30e-6, .beta = 8e-9};
#define MESSAGE_SECONDS 8e-6 /* to send a message, to receive it, and to wake its receiver */
/* If ranks outnumber cores, every message needs a context switch, which dominates. So alpha is 0: a round takes no
 * longer than its messages. */
#define OVERSUBSCRIBED_MESSAGE_SECONDS 48e-6
#define REDUCE_SECONDS 0.2e-9 /* for each byte */

static double total_count(const gw_plan_request *request) {
    int world = request->topology.world;
    double count = 0;
    for (int r = 0; request->counts && r < world; r++) count += (double)request->counts[r];
    if (request->counts) return count;
    bool parts = request->collective == GW_COLL_REDUCE_SCATTER || request->collective == GW_COLL_ALLGATHER;
    return (double)request->count * (parts ? world : 1);
}

gw_cost_inputs gw_cost_inputs_of(const gw_plan_request *request, size_t element_bytes) {
    const gw_topology *t = &request->topology;
    gw_cost_inputs scene = {.collective = request->collective, .ranks = t->world, .hosts = gw_topology_hosts(t),
                      .per_host = 1, .bytes = total_count(request) * (double)element_bytes,
                      .message = MESSAGE_SECONDS, .wire = t->wire};
    int least;
    if (t->host_of) gw_topology_local_sizes(t, &least, &scene.per_host);
    if (!(scene.wire.beta > 0)) scene.wire = scene.hosts > 1 ? between_hosts : within_host;
    if (t->oversubscribed) {
        scene.message = OVERSUBSCRIBED_MESSAGE_SECONDS;
        scene.wire.alpha = 0;
    }
    return scene;
}

static bool reduces(const gw_cost_inputs *s) {
    return s->collective != GW_COLL_ALLGATHER && s->collective != GW_COLL_BROADCAST;
}

gw_cost_terms gw_cost_terms_of(const gw_plan_builder *builder, const gw_cost_inputs *scene) {
    return builder->work ? builder->work(scene) : (gw_cost_terms){.rounds = -1, .preference = -1};
}

double gw_cost_seconds(const gw_cost_terms *work, const gw_cost_inputs *scene) {
    return work->rounds * scene->wire.alpha + work->bytes * work->crowd * scene->wire.beta +
           work->messages * scene->message + (reduces(scene) ? work->reduced * REDUCE_SECONDS : 0);
}
