/* server_setup_message.c - see server_setup_message.h. Layout: a head with the strategy, the tensors, then their
 * zero-ended names. */
#include "reducer/server_setup_message.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/dtype.h"

#define MAGIC UINT32_C(0x31747767) /* "gwt1" */
#define ROOM_ALIGNMENT 64

typedef struct table_head {
    uint32_t magic, tensors;
    uint64_t bytes; /* of the whole message */
    uint64_t seed, first_step;
    uint32_t op, whole_tensors;
    char strategy[GW_STRATEGY_PRINT_BYTES];
} table_head;

typedef struct table_tensor {
    uint64_t count, rows, batch;
    uint32_t dtype, exact;
} table_tensor;

gw_status gw_reducer_table_write(gw_reducer_table *table, const gw_strategy *strategy,
                                 const gw_reducer_options *options, const gw_reducer_tensor *tensors, int count,
                                 gw_error *error) {
    table_head head = {.magic = MAGIC, .tensors = (uint32_t)count, .seed = options->seed,
                       .first_step = options->first_step, .op = (uint32_t)options->op,
                       .whole_tensors = options->whole_tensors,
                       .bytes = sizeof head + (size_t)count * sizeof(table_tensor)};
    for (int i = 0; i < count; i++) head.bytes += (tensors[i].name ? strlen(tensors[i].name) : 0) + 1;
    gw_strategy_print(strategy, head.strategy, sizeof head.strategy);
    uint8_t *at = table->bytes = malloc(head.bytes);
    if (!at) return gw_fail(error, GW_MEMORY, "out of memory for a list of %d tensors", count);
    table->count = head.bytes;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int i = 0; i < count; i++, at += sizeof(table_tensor)) {
        const gw_reducer_tensor *t = &tensors[i];
        table_tensor entry = {.count = t->count, .rows = t->rows, .batch = t->batch, .dtype = (uint32_t)t->dtype,
                              .exact = t->exact};
        memcpy(at, &entry, sizeof entry);
    }
    for (int i = 0; i < count; i++) {
        size_t length = tensors[i].name ? strlen(tensors[i].name) : 0;
        memcpy(at, tensors[i].name ? tensors[i].name : "", length + 1);
        at += length + 1;
    }
    return GW_OK;
}

void gw_reducer_table_free(gw_reducer_table *table) {
    free(table->bytes);
    *table = (gw_reducer_table){0};
}

bool gw_reducer_table_same(const gw_reducer_table *a, const gw_reducer_table *b) {
    const size_t strategy = offsetof(table_head, op); /* after what may differ */
    if (a->count != b->count || a->count < sizeof(table_head)) return false;
    return memcmp((const uint8_t *)a->bytes + strategy, (const uint8_t *)b->bytes + strategy, a->count - strategy) == 0;
}

static gw_status damaged(gw_error *error) {
    return gw_fail(error, GW_PROTOCOL,
                   "what the first worker sent of a reducer is damaged: are all processes of the same version?");
}

/* Gives each tensor an address. */
static gw_status reserve(gw_reducer_request *r, gw_error *error) {
    size_t at = 0;
    for (int i = 0; i < r->count; i++) {
        size_t bytes = r->tensors[i].count * gw_dtype_bytes(r->tensors[i].dtype);
        if (bytes > SIZE_MAX / 2 - at) return damaged(error);
        at += (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
    }
    r->room_bytes = at + ROOM_ALIGNMENT;
    r->room = mmap(NULL, r->room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->room == MAP_FAILED) {
        r->room = NULL;
        return gw_fail(error, GW_MEMORY, "there are no addresses for %zu bytes of tensors", r->room_bytes);
    }
    uint8_t *next = r->room;
    for (int i = 0; i < r->count; i++) {
        gw_reducer_tensor *t = &r->tensors[i];
        size_t bytes = t->count * gw_dtype_bytes(t->dtype);
        t->gradient = t->weights = next;
        next += (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
    }
    return GW_OK;
}

static bool read_tensors(gw_reducer_request *r, const uint8_t *at, const uint8_t *end) {
    const char *name = (const char *)at + (size_t)r->count * sizeof(table_tensor);
    for (int i = 0; i < r->count; i++, at += sizeof(table_tensor)) {
        table_tensor entry;
        memcpy(&entry, at, sizeof entry);
        const char *stop = name < (const char *)end ? memchr(name, 0, (size_t)((const char *)end - name)) : NULL;
        if (!stop || entry.dtype >= GW_DTYPES || entry.count > SIZE_MAX / 16) return false;
        r->tensors[i] = (gw_reducer_tensor){.name = name, .count = entry.count, .dtype = (gw_dtype)entry.dtype,
                                         .rows = entry.rows, .batch = entry.batch, .exact = entry.exact != 0};
        name = stop + 1;
    }
    return name == (const char *)end;
}

gw_status gw_reducer_request_read(gw_reducer_request *r, const gw_reducer_table *table, gw_error *error) {
    static const gw_reducer_options defaults = GW_REDUCER_OPTIONS_DEFAULT;
    table_head head;
    *r = (gw_reducer_request){.options = defaults};
    if (table->count < sizeof head) return damaged(error);
    memcpy(&head, table->bytes, sizeof head);
    size_t rest = table->count - sizeof head;
    if (head.magic != MAGIC || head.bytes != table->count || head.tensors > rest / sizeof(table_tensor) ||
        !memchr(head.strategy, 0, sizeof head.strategy))
        return damaged(error);
    memcpy(r->strategy, head.strategy, sizeof r->strategy);
    r->options.strategy = r->strategy;
    r->options.op = (gw_redop)head.op;
    r->options.whole_tensors = head.whole_tensors != 0;
    r->options.seed = head.seed;
    r->options.first_step = head.first_step;
    r->options.tune = "off";
    r->count = (int)head.tensors;
    r->tensors = calloc((size_t)r->count + 1, sizeof *r->tensors);
    if (!r->tensors) return gw_fail(error, GW_MEMORY, "out of memory for %d tensors", r->count);
    const uint8_t *bytes = table->bytes;
    if (!read_tensors(r, bytes + sizeof head, bytes + table->count)) return damaged(error);
    return reserve(r, error);
}

void gw_reducer_request_free(gw_reducer_request *r) {
    if (r->room) munmap(r->room, r->room_bytes);
    free(r->tensors);
    *r = (gw_reducer_request){0};
}
