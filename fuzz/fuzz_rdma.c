/* fuzz_rdma.c - messages of a peer over the fabric, and its hello: an accepted message is exactly what gradwire would
 * write, nothing is read beyond its end, and a sum that was added is right. */
#include "transport/rdma/rdma_wire.h"

#include <stdlib.h>
#include <string.h>

static void hello(const uint8_t *data, size_t size) {
    uint8_t bytes[GW_RDMA_HELLO_BYTES] = {0};
    gw_rdma_hello read, again;
    gw_error error = {0};
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    memcpy(bytes, "GWA3", 4);
    if (gw_rdma_hello_read(&read, bytes, &error) != GW_OK) {
        if (error.text[0] == 0) abort();
        return;
    }
    gw_rdma_hello_write(&read, bytes);
    if (gw_rdma_hello_read(&again, bytes, &error) != GW_OK || strcmp(again.provider, read.provider) != 0 ||
        again.address_bytes != read.address_bytes || memcmp(again.address, read.address, read.address_bytes) != 0)
        abort();
}

static void message(const uint8_t *data, size_t size) {
    uint8_t again[GW_RDMA_MESSAGE_BYTES];
    uint8_t *bytes = malloc(size); /* of just this size, so that reading on is seen */
    gw_rdma_message read;
    gw_error error = {0};
    if (!bytes) return;
    memcpy(bytes, data, size);
    if (size & 1 && size > GW_RDMA_HEADER_BYTES) memcpy(bytes + 32, "GWF1", 4); /* past the magic at once */
    if (gw_rdma_message_from(bytes, size, 16) >= 0 && gw_rdma_message_read(&read, bytes, size, &error) == GW_OK) {
        size_t written = gw_rdma_message_write(&read, bytes, again);
        if (written > size || memcmp(bytes + 24, again + 24, written - 24) != 0) abort();
    }
    size_t length = size;
    gw_rdma_message_check_sum(bytes, &length);
    free(bytes);
}

static void sum(const uint8_t *data, size_t size) {
    uint8_t bytes[GW_RDMA_MESSAGE_BYTES];
    if (size < GW_RDMA_HEADER_BYTES || size > sizeof bytes - GW_RDMA_SUM_BYTES) return;
    memcpy(bytes, data, size);
    size_t length = gw_rdma_message_add_sum(bytes, size);
    if (!gw_rdma_message_check_sum(bytes, &length) || length != size) abort();
    bytes[data[0] % size] ^= 1;
    length += GW_RDMA_SUM_BYTES;
    if (gw_rdma_message_check_sum(bytes, &length)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > GW_RDMA_MESSAGE_BYTES) return 0;
    hello(data, size);
    message(data, size);
    sum(data, size);
    return 0;
}
