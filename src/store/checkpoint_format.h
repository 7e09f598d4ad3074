/* checkpoint_format.h - offsets in a checkpoint file (see checkpoint.h), byte order, and digests. */
#ifndef GW_STORE_CHECKPOINT_FORMAT_H
#define GW_STORE_CHECKPOINT_FORMAT_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GW_CHECKPOINT_MAGIC "GWCHKPT1"
#define GW_CHECKPOINT_ALIGN 64
#define GW_DIGEST_BYTES 32

enum { /* offsets in the header */
       GW_AT_MAGIC = 0,
       GW_AT_SECTIONS = 8,
       GW_AT_TABLE = 16,
       GW_AT_SIZE = 24,
       GW_AT_DIGEST = 32,
       GW_HEADER_BYTES = 64
};

enum { /* offsets in an entry of the table */
       GW_AT_ENTRY_NAME = 0,
       GW_AT_ENTRY_SIZE = 64,
       GW_AT_ENTRY_DIGEST = 72,
       GW_ENTRY_BYTES = 104
};

static inline void gw_put_u32(uint8_t *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static inline void gw_put_u64(uint8_t *at, uint64_t value) {
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint32_t gw_get_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t gw_get_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

/* SHA-256 of two buffers; the second may be empty. False: libcrypto has no memory or no SHA-256. */
_Bool gw_digest(const void *first, size_t first_bytes, const void *second, size_t second_bytes,
                uint8_t digest[GW_DIGEST_BYTES]);

#endif
