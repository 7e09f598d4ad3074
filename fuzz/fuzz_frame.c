/* fuzz_frame.c - an accepted header is exactly what gradwire would write. */
#include "transport/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t bytes[GW_FRAME_BYTES] = {0}, again[GW_FRAME_BYTES];
    gw_frame frame;
    gw_error error = {0};
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (size & 1) memcpy(bytes, "GWF1", 4); /* half of the inputs get past the magic at once */
    if (gw_frame_read(&frame, bytes, &error) != GW_OK) {
        if (error.text[0] == 0) abort();
        return 0;
    }
    gw_frame_write(&frame, again);
    if (memcmp(bytes, again, sizeof bytes) != 0) abort();
    if (frame.length > GW_FRAME_PAYLOAD_MAX || frame.tag > INT32_MAX) abort();
    return 0;
}
