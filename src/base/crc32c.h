/* crc32c.h - CRC-32C (Castagnoli; iSCSI, RFC 3720), which finds every error of up to 32 bits in a row. By the CPU's
 * instructions where it has them; the table is the reference that tests compare with, and the fallback. */
#ifndef GW_BASE_CRC32C_H
#define GW_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sum of what `crc` is the sum of (0: nothing) and of these bytes after it. */
uint32_t gw_crc32c(uint32_t crc, const void *data, size_t bytes);

typedef struct gw_crc32c_kernel {
    const char *name;
    bool (*supported)(void); /* by this CPU; GRADWIRE_CPU lowers it */
    uint32_t (*update)(uint32_t crc, const void *data, size_t bytes);
} gw_crc32c_kernel;

/* The fastest first, the table last; name NULL at the end. */
extern const gw_crc32c_kernel gw_crc32c_kernels[];

#endif
