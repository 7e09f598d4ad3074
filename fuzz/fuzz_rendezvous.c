/* fuzz_rendezvous.c - rendezvous records and answers: an accepted one is exactly what gradwire would write, and its
 * text is printable. */
#include "bootstrap/endpoint.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD_MAX = 5 };

static void check_record(const uint8_t *bytes, int world) {
    uint8_t again[GW_ENDPOINT_BYTES];
    gw_endpoint endpoint;
    gw_error error = {0};
    if (gw_endpoint_read(&endpoint, bytes, world, &error) != GW_OK) {
        if (error.text[0] == 0) abort();
        return;
    }
    if (endpoint.rank < 0 || endpoint.rank >= world || strlen(endpoint.host) >= sizeof endpoint.host) abort();
    gw_endpoint_write(&endpoint, again);
    if (memcmp(bytes, again, sizeof again) != 0) abort();
}

static void check_answer(const uint8_t *data, size_t size, int world) {
    gw_endpoint all[WORLD_MAX];
    gw_reply reply;
    gw_error error = {0};
    if (size < GW_REPLY_BYTES || gw_reply_read(&reply, data, world, NULL) != GW_OK) return;
    if (reply.length > size - GW_REPLY_BYTES) return; /* it has not come yet */
    gw_status status = gw_reply_body_read(&reply, data + GW_REPLY_BYTES, world, all, &error);
    if (status != GW_OK && error.text[0] == 0) abort();
    if (reply.status != GW_OK && status == GW_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    int world = 1 + data[0] % WORLD_MAX;
    data++;
    size--;
    if (size >= GW_ENDPOINT_BYTES) check_record(data, world);
    check_answer(data, size, world);
    return 0;
}
