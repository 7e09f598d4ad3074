/* fuzz_checkpoint.c - any bytes as a checkpoint: refused with one printable sentence, or read within its bounds.
 * Digests are corrected first where the lengths allow it, so that the code behind them is reached too. */
#include <stdlib.h>
#include <string.h>

#include "store/checkpoint.h"
#include "store/checkpoint_format.h"

static void demand(bool condition) {
    if (!condition) abort();
}

/* Makes magic, size and every digest match the bytes. */
static void mend(uint8_t *bytes, size_t size) {
    if (size < GW_HEADER_BYTES) return;
    memcpy(bytes, GW_CHECKPOINT_MAGIC, 8);
    gw_put_u64(bytes + GW_AT_SIZE, size);
    uint64_t table = gw_get_u64(bytes + GW_AT_TABLE), at = GW_HEADER_BYTES;
    if (table < at || table > size) return;
    for (uint64_t entry = table; size - entry >= GW_ENTRY_BYTES; entry += GW_ENTRY_BYTES) {
        uint64_t length = gw_get_u64(bytes + entry + GW_AT_ENTRY_SIZE);
        if (at > table || length > table - at) break;
        demand(gw_digest(bytes + at, length, NULL, 0, bytes + entry + GW_AT_ENTRY_DIGEST));
        at = (at + length + GW_CHECKPOINT_ALIGN - 1) / GW_CHECKPOINT_ALIGN * GW_CHECKPOINT_ALIGN;
    }
    demand(gw_digest(bytes, GW_AT_DIGEST, bytes + table, size - table, bytes + GW_AT_DIGEST));
}

static void read_everything(const gw_checkpoint *checkpoint) {
    volatile uint8_t sum = 0;
    for (uint32_t i = 0; i < gw_checkpoint_sections(checkpoint); i++) {
        size_t bytes = 0;
        const uint8_t *section = gw_checkpoint_find(checkpoint, gw_checkpoint_section_name(checkpoint, i), &bytes);
        demand(section != NULL);
        for (size_t j = 0; j < bytes; j++) sum = (uint8_t)(sum + section[j]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_checkpoint *checkpoint;
    gw_error error = {.status = GW_OK};
    uint8_t *bytes = malloc(size + 1);
    demand(bytes != NULL);
    if (size) memcpy(bytes, data, size);
    if (size && data[size - 1] & 1) mend(bytes, size);
    if (gw_checkpoint_parse(bytes, size, "fuzz", &checkpoint, &error) == GW_OK) {
        read_everything(checkpoint);
        gw_checkpoint_close(checkpoint);
    } else {
        demand(error.text[0] != '\0');
    }
    free(bytes);
    return 0;
}
