/* train_advice.c - what to do next after a training, from what it measured itself: predict/advice.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/train/train_request.h"
#include "reducer/deciding.h"
#include "runtime/comm.h"

static double seconds(uint64_t ns) { return (double)ns / (double)GW_SECOND; }

/* ---- layers ---- */

static gw_profile_layer *add_layer(gw_profile *profile, const char *name, int number) {
    gw_profile_layer *layer = &profile->layers[profile->count++];
    if (number) snprintf(layer->name, sizeof layer->name, "%.40s.%d", name, number);
    else snprintf(layer->name, sizeof layer->name, "%.46s", name);
    strcpy(layer->kind, "layer");
    return layer;
}

/* A layer of a profile has a tensor and a bias. What has more tensors becomes several; the first takes the time. */
static void add_node(const gw_trainer *t, int node, gw_profile *profile) {
    const gw_graph_node *n = &t->spec->nodes[node];
    double steps = (double)(t->layers.steps - 1);
    gw_profile_layer *layer = add_layer(profile, n->kind->name, n->ordinal);
    layer->forward_us = (double)t->layers.forward[node] / steps / 1e3;
    layer->backward_us = (double)t->layers.backward[node] / steps / 1e3;
    for (int p = 0; p < n->parameters; p++) {
        const gw_parameter *tensor = &t->model->table[n->first_parameter + p];
        uint64_t bytes = tensor->count * sizeof(float);
        bool bias = p % 2 && tensor->ndims == 1;
        if (p && !bias) layer = add_layer(profile, tensor->name, 0);
        layer->parameter_bytes += bytes;
        if (bias) layer->bias_bytes = bytes;
        else layer->rows = tensor->ndims > 1 ? (uint64_t)tensor->dims[0] : 0;
    }
}

/* False: no layers were measured, or no memory. */
static bool make_profile(const gw_trainer *t, gw_profile *profile) {
    *profile = (gw_profile){.name = "measured", .batch = (int)(t->settings.batch / t->world)};
    if (t->layers.steps < 2) return false;
    profile->layers = calloc((size_t)(t->spec->node_count + t->model->parameters), sizeof *profile->layers);
    for (int i = 0; profile->layers && i < t->spec->node_count; i++) add_node(t, i, profile);
    return profile->layers != NULL;
}

/* ---- the job ---- */

static int hosts_of(const gw_comm *comm) {
    int hosts = 0;
    for (int r = 0; r < comm->size; r++)
        if (comm->context->host_of[r] >= hosts) hosts = comm->context->host_of[r] + 1;
    return hosts;
}

/* Exposed communication is what the worker waited that waited least: the others also waited for it. */
static void set_workers(const gw_trainer *t, double updates, gw_advice_rank *rank, gw_advice_facts *facts) {
    int waiters = t->over_servers ? t->world - 1 : 1; /* servers add up what they held back */
    for (int r = 0; r < t->world; r++) {
        const gw_train_worker *w = &t->workers[r];
        double waiting = seconds(w->waiting) / updates;
        rank[r] = (gw_advice_rank){.compute = seconds(w->compute) / updates,
                                   .awaited = seconds(w->awaited) / updates / waiters};
        facts->step += (rank[r].compute + waiting) / t->world;
        if (r == 0 || waiting < facts->exposed) facts->exposed = waiting;
    }
    facts->rank = rank;
    facts->ranks = t->world;
}

void gw_train_advice(const gw_train_report *r, gw_time exchange, gw_advice *advice) {
    const gw_trainer *t = r->trainer;
    double updates = (double)(t->updates - r->updates_from);
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_profile profile = {.count = 0};
    *advice = (gw_advice){.count = 0};
    if (t->world < 2 || t->pipeline || updates < 1) return; /* stages of a pipeline wait for each other */
    if (t->world != t->comm->context->world) return;        /* times are of another number of workers, too */
    gw_advice_rank *rank = calloc((size_t)t->world, sizeof *rank);
    if (!rank) return;
    gw_advice_facts facts = {.busy = -1,
                             .hosts = hosts_of(t->comm),
                             .exchange = seconds(exchange),
                             .local_ranks = t->comm->local_size,
                             .cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
                             .strategy = line,
                             .chosen = gw_reducer_chose_freely(t->reducer),
                             .seconds = GW_ADVICE_SECONDS,
                             .machine = gw_machine_default(),
                             .optimizer = t->settings.optimiser->name};
    gw_reducer_links(t->reducer, &facts.machine);
    set_workers(t, updates, rank, &facts);
    gw_reducer_strategy(t->reducer, line, sizeof line);
    if (make_profile(t, &profile)) facts.profile = &profile;
    gw_advice_make(&facts, advice);
    free(profile.layers);
    free(rank);
}
