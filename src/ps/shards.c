/* shards.c - see shards.h. */
#include "ps/shards.h"

#include <stdlib.h>

#include "arch/owners.h"

#define ALIGNMENT 64

static int least_loaded(const gw_shards *s, int from) {
    int least = from;
    for (int i = 1; i < s->servers; i++) {
        int server = (from + i) % s->servers;
        if (s->space_bytes[server] < s->space_bytes[least]) least = server;
    }
    return least;
}

/* The turn begins at the least loaded server. */
static gw_owners owners_of(const gw_shards *s, int tensor, const gw_shard_tensor *t) {
    gw_lanes servers = {.lanes = 1, .hosts = s->servers};
    bool cut = s->servers > 1 && t->count * t->element > GW_SHARD_WHOLE_BYTES;
    uint64_t begin = (uint64_t)least_loaded(s, tensor % s->servers);
    return gw_owners_of(&servers, begin, t->count, cut ? (uint32_t)t->grain : 0);
}

static void deal(gw_shards *s, const gw_shard_tensor *tensors) {
    int used = 0;
    for (int i = 0; i < s->tensors; i++) {
        gw_owners owners = owners_of(s, i, &tensors[i]);
        s->first_of[i] = used;
        for (int server = 0; server < s->servers; server++) {
            gw_stripes covers = gw_owners_at_host(&owners, 0, 1, server);
            size_t count = gw_stripes_count(&covers);
            s->space_bytes[server] += count * tensors[i].element;
            if (count) s->list[used++] = (gw_shard){.tensor = i, .server = server, .covers = covers};
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
        *space += gw_stripes_count(&shard->covers) * t->element;
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
