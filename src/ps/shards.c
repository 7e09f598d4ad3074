/* shards.c - see shards.h. */
#include "ps/shards.h"

#include <stdlib.h>

#define ALIGNMENT 64

static int least_loaded(const gw_shards *s, int from) {
    int least = from;
    for (int i = 1; i < s->servers; i++) {
        int server = (from + i) % s->servers;
        if (s->space_bytes[server] < s->space_bytes[least]) least = server;
    }
    return least;
}

static void give(gw_shards *s, int *used, int tensor, int server, size_t first, size_t count) {
    if (count) s->list[(*used)++] = (gw_shard){.tensor = tensor, .server = server, .first = first, .count = count};
}

/* One part for each server, equal to within a grain; the least loaded server gets the first. */
static void cut(gw_shards *s, int *used, int tensor, const gw_shard_tensor *t) {
    size_t grains = (t->count + t->grain - 1) / t->grain, n = (size_t)s->servers, first = 0;
    int begin = least_loaded(s, tensor % s->servers);
    for (size_t i = 0; i < n; i++) {
        size_t to = grains * (i + 1) / n * t->grain;
        if (to > t->count) to = t->count;
        int server = (begin + (int)i) % s->servers;
        give(s, used, tensor, server, first, to - first);
        s->space_bytes[server] += (to - first) * t->element;
        first = to;
    }
}

static void deal(gw_shards *s, const gw_shard_tensor *tensors) {
    int used = 0;
    for (int i = 0; i < s->tensors; i++) {
        const gw_shard_tensor *t = &tensors[i];
        s->first_of[i] = used;
        if (t->grain && t->count * t->element > GW_SHARD_WHOLE_BYTES) {
            cut(s, &used, i, t);
        } else {
            int server = least_loaded(s, i % s->servers);
            give(s, &used, i, server, 0, t->count);
            s->space_bytes[server] += t->count * t->element;
        }
    }
    s->first_of[s->tensors] = used;
}

/* Sets the offset of each shard in its server's space, and the size of the spaces. */
static void lay_out(gw_shards *s, const gw_shard_tensor *tensors, int *kind) {
    for (int server = 0; server < s->servers; server++) {
        s->space_bytes[server] = 0;
        kind[server] = -1;
    }
    for (int i = 0; i < s->first_of[s->tensors]; i++) {
        gw_shard *shard = &s->list[i];
        size_t *space = &s->space_bytes[shard->server];
        const gw_shard_tensor *t = &tensors[shard->tensor];
        if (kind[shard->server] != t->kind) *space = (*space + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        kind[shard->server] = t->kind;
        shard->at = *space;
        *space += shard->count * t->element;
    }
}

gw_status gw_shards_open(gw_shards *s, const gw_shard_tensor *tensors, int count, int servers, gw_error *error) {
    *s = (gw_shards){.servers = servers, .tensors = count};
    int *kind = calloc((size_t)servers, sizeof *kind);
    s->list = calloc((size_t)count * (size_t)servers + 1, sizeof *s->list);
    s->first_of = calloc((size_t)count + 1, sizeof *s->first_of);
    s->space_bytes = calloc((size_t)servers, sizeof *s->space_bytes);
    bool fits = kind && s->list && s->first_of && s->space_bytes;
    if (fits) {
        deal(s, tensors);
        lay_out(s, tensors, kind);
    } else {
        gw_shards_close(s);
    }
    free(kind);
    return fits ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for shards of %d tensors", count);
}

void gw_shards_close(gw_shards *s) {
    free(s->list);
    free(s->first_of);
    free(s->space_bytes);
    *s = (gw_shards){0};
}

int gw_server_rank(int server, int servers, int world) { return (int)((long)server * world / servers); }

int gw_server_of_rank(int rank, int servers, int world) {
    for (int server = 0; server < servers; server++)
        if (gw_server_rank(server, servers, world) == rank) return server;
    return -1;
}
