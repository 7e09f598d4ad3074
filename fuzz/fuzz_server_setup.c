/* fuzz_server_setup.c - the message that describes a reducer to server processes: any bytes are refused with a
 * sentence, or give tensors that lie side by side in reserved addresses, with names that end within the message. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "reducer/server_setup_message.h"

static void demand(bool condition) {
    if (!condition) abort();
}

/* Makes magic and length right, so that the code behind them is reached. They are the first fields of the head. */
static void mend(uint8_t *bytes, size_t size) {
    const uint32_t magic = UINT32_C(0x31747767);
    const uint64_t length = size;
    if (size < 16) return;
    memcpy(bytes, &magic, sizeof magic);
    memcpy(bytes + 8, &length, sizeof length);
}

static void check(const gw_reducer_request *r, const gw_reducer_table *table) {
    const uint8_t *next = r->room, *end = next + r->room_bytes;
    demand(memchr(r->strategy, 0, sizeof r->strategy) != NULL);
    for (int i = 0; i < r->count; i++) {
        const gw_reducer_tensor *t = &r->tensors[i];
        const uint8_t *at = t->weights, *names = table->bytes;
        demand(at >= next && t->count <= (size_t)(end - at) / gw_dtype_bytes(t->dtype));
        next = at + t->count * gw_dtype_bytes(t->dtype);
        demand((const uint8_t *)t->name >= names && (const uint8_t *)t->name < names + table->count);
        demand(strlen(t->name) < table->count);
    }
}

static void read_any(const gw_reducer_table *table) {
    gw_reducer_request request = {0};
    gw_error error = {0};
    if (gw_reducer_request_read(&request, table, &error) == GW_OK) check(&request, table);
    else demand(error.text[0]);
    gw_reducer_request_free(&request);
}

/* Ten bytes each: where, and what is written there. */
static void alter(gw_reducer_table *table, const uint8_t *data, size_t size) {
    for (; size >= 10; data += 10, size -= 10) {
        size_t at = ((size_t)data[0] | (size_t)data[1] << 8) % (table->count - 8);
        memcpy((uint8_t *)table->bytes + at, data + 2, 8);
    }
}

/* What gradwire writes itself is read again, whole and altered. */
static void write_and_read(const uint8_t *data, size_t size) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_strategy strategy;
    gw_error error = {0};
    gw_reducer_table table = {0};
    gw_reducer_request request = {0};
    gw_reducer_tensor tensors[4] = {{0}};
    int count = (int)(size % 4);
    for (int i = 0; i < count && (size_t)i < size; i++)
        tensors[i] = (gw_reducer_tensor){.name = "tensor", .count = data[i], .dtype = (gw_dtype)(data[i] % GW_DTYPES)};
    demand(gw_strategy_parse("arch=ps", &strategy, &error) == GW_OK);
    demand(gw_reducer_table_write(&table, &strategy, &options, tensors, count, &error) == GW_OK);
    demand(gw_reducer_request_read(&request, &table, &error) == GW_OK && request.count == count);
    check(&request, &table);
    gw_reducer_request_free(&request);
    alter(&table, data, size);
    read_any(&table);
    gw_reducer_table_free(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_reducer_table table = {.bytes = malloc(size), .count = size}; /* of just this size: reading on is seen */
    if (size < 4 || !table.bytes) {
        gw_reducer_table_free(&table);
        return 0;
    }
    memcpy(table.bytes, data, size);
    if (size & 1) mend(table.bytes, size);
    read_any(&table);
    gw_reducer_table_free(&table);
    write_and_read(data, size);
    return 0;
}
