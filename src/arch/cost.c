/* cost.c - see cost.h. */
#include "arch/cost.h"

/* Links that nobody measured. Within a host: loopback; between hosts: 1 Gbit/s, as too low a guess costs less than too
 * high a one. */
static const gw_wire within_host = {.alpha = 12e-6, .beta = 0.25e-9}, between_hosts = {.alpha = 30e-6, .beta = 8e-9};
#define MESSAGE_SECONDS 8e-6 /* to send one, to receive one, and to be woken for it */
/* Where ranks outnumber cores every message needs somebody to make way for somebody else, and that is all that counts:
 * a round takes no longer than its messages. */
#define CROWDED_MESSAGE_SECONDS 48e-6
#define REDUCE_SECONDS 0.2e-9 /* for each byte */
#define CHUNK_BYTES (256.0 * 1024)
/* Many senders at one receiver, and partners far apart, meet others on their way, those of the same host first; a
 * ring's neighbours do not, nor do two ranks that are all there are. */
#define CROWD_EXCHANGE 1.2
#define CROWD_HALVING 1.05

static double crowd(const gw_scene *s, double meets) { return s->ranks > 2 ? meets * s->per_host : 1; }

static double total_count(const gw_plan_request *request) {
    int world = request->topology.world;
    double count = 0;
    for (int r = 0; request->counts && r < world; r++) count += (double)request->counts[r];
    if (request->counts) return count;
    bool parts = request->collective == GW_COLL_REDUCE_SCATTER || request->collective == GW_COLL_ALLGATHER;
    return (double)request->count * (parts ? world : 1);
}

gw_scene gw_scene_of(const gw_plan_request *request, size_t element_bytes) {
    const gw_topology *t = &request->topology;
    gw_scene scene = {.collective = request->collective, .ranks = t->world, .hosts = gw_topology_hosts(t),
                      .per_host = 1, .bytes = total_count(request) * (double)element_bytes,
                      .message = MESSAGE_SECONDS, .wire = t->wire};
    int least;
    if (t->host_of) gw_topology_local_sizes(t, &least, &scene.per_host);
    if (!(scene.wire.beta > 0)) scene.wire = scene.hosts > 1 ? between_hosts : within_host;
    if (t->crowded) {
        scene.message = CROWDED_MESSAGE_SECONDS;
        scene.wire.alpha = 0;
    }
    return scene;
}

static bool reduces(const gw_scene *s) {
    return s->collective != GW_COLL_ALLGATHER && s->collective != GW_COLL_BROADCAST;
}
static bool is_allreduce(const gw_scene *s) { return s->collective == GW_COLL_ALLREDUCE; }
/* An all-reduce goes there and back, the others one way. */
static double ways(const gw_scene *s) { return is_allreduce(s) ? 2 : 1; }

static int floor_log2(int n) { return 31 - __builtin_clz((unsigned)n); }

static gw_work ring(const gw_scene *s) {
    double others = s->ranks - 1, rounds = ways(s) * others;
    return (gw_work){.rounds = rounds, .bytes = rounds * s->bytes / s->ranks, .messages = rounds, .crowd = 1,
                     .reduced = others * s->bytes / s->ranks};
}

static gw_work exchange(const gw_scene *s) {
    double others = s->ranks - 1, rounds = ways(s);
    bool rooted = s->collective == GW_COLL_BROADCAST || s->collective == GW_COLL_REDUCE;
    double part = rooted ? s->bytes : s->bytes / s->ranks;
    return (gw_work){.rounds = rounds, .bytes = rounds * others * part, .messages = rounds * others,
                     .reduced = others * part, .crowd = crowd(s, CROWD_EXCHANGE)};
}

static gw_work oneshot(const gw_scene *s) {
    double others = s->ranks - 1;
    return (gw_work){.rounds = 1, .bytes = others * s->bytes, .messages = others, .reduced = others * s->bytes,
                     .crowd = crowd(s, CROWD_EXCHANGE)};
}

/* Where ranks fold into others first, those others take all of the data once more. Little data: the round in the middle
 * goes both ways at once. */
static gw_work halving(const gw_scene *s) {
    int levels = floor_log2(s->ranks), cores = 1 << levels, folded = s->ranks - cores;
    bool merged = is_allreduce(s) && levels > 1 && 2 * s->bytes / cores <= CHUNK_BYTES;
    double rounds = ways(s) * levels - merged, folds = 0;
    if (folded) folds = merged ? (folded > 1 ? 2 : 1) : is_allreduce(s) || 2 * folded > cores ? 2 : 1;
    return (gw_work){.rounds = rounds + folds,
                     .bytes = ways(s) * (cores - 1) * s->bytes / cores + (folded ? s->bytes : 0),
                     .messages = rounds + (folded ? ways(s) : 0),
                     .reduced = (cores - !merged) * s->bytes / cores + (folded ? s->bytes : 0),
                     .crowd = crowd(s, CROWD_HALVING)};
}

/* Two ranks send no more than in a ring, and neither waits for the other half way: while some of it is added up the
 * rest is coming. */
static gw_work doubling(const gw_scene *s) {
    int levels = floor_log2(s->ranks), cores = 1 << levels, folded = s->ranks - cores;
    double summed = s->ranks > 2 ? levels + (folded ? 1 : 0) : 0.5;
    return (gw_work){.rounds = levels + (2 * folded > cores ? 2 : folded ? 1 : 0),
                     .bytes = (levels + (folded ? 1 : 0)) * s->bytes, .messages = levels + (folded ? 1 : 0),
                     .reduced = summed * s->bytes, .crowd = crowd(s, CROWD_HALVING)};
}

/* A chunk goes down the tree in as many rounds as it has levels, each with all its bytes; the next follow behind. Few
 * messages for a rank, on the average; but between hosts the next waits for the one before. */
static gw_work tree(const gw_scene *s) {
    double edges = s->ranks - 1, depth = 1 + floor_log2(s->ranks - 1);
    double chunk = s->bytes < CHUNK_BYTES ? s->bytes : CHUNK_BYTES;
    return (gw_work){.rounds = ways(s) * depth, .bytes = ways(s) * (depth * chunk + s->bytes - chunk),
                     .messages = ways(s) * (s->hosts > 1 ? 1 : edges / s->ranks), .reduced = 2 * s->bytes,
                     .crowd = s->per_host};
}

static gw_work hierarchical(const gw_scene *s) {
    double others = s->hosts - 1;
    return (gw_work){.rounds = 2 * others + (s->per_host > 1 ? 2 : 0), .bytes = 2 * others * s->bytes / s->hosts,
                     .messages = 2 * others + (s->per_host > 1 ? 2 : 0), .crowd = 1, .reduced = s->bytes};
}

gw_work gw_work_of(const gw_plan_builder *builder, const gw_scene *scene) {
    if (builder == &gw_plan_ring) return ring(scene);
    if (builder == &gw_plan_exchange) return exchange(scene);
    if (builder == &gw_plan_oneshot) return oneshot(scene);
    if (builder == &gw_plan_halving) return halving(scene);
    if (builder == &gw_plan_doubling) return doubling(scene);
    if (builder == &gw_plan_tree) return tree(scene);
    if (builder == &gw_plan_hierarchical) return hierarchical(scene);
    return (gw_work){.rounds = -1};
}

double gw_work_seconds(const gw_work *work, const gw_scene *scene) {
    return work->rounds * scene->wire.alpha + work->bytes * work->crowd * scene->wire.beta +
           work->messages * scene->message + (reduces(scene) ? work->reduced * REDUCE_SECONDS : 0);
}
