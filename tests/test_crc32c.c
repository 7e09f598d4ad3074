/* test_crc32c.c - CRC-32C: known values, and every kernel against the table at every length and alignment. */
#include "base/crc32c.h"
#include "test.h"

#include <stdlib.h>

static const gw_crc32c_kernel *table(void) {
    const gw_crc32c_kernel *kernel = gw_crc32c_kernels;
    while (kernel[1].name) kernel++;
    return kernel;
}

/* RFC 3720, appendix B.4, and the usual check value. */
static void known_values(void) {
    uint8_t zeros[32] = {0}, ones[32], up[32];
    for (int i = 0; i < 32; i++) ones[i] = 0xff, up[i] = (uint8_t)i;
    for (const gw_crc32c_kernel *k = gw_crc32c_kernels; k->name; k++) {
        if (!k->supported()) continue;
        CHECK_EQ(0x8a9136aa, k->update(0, zeros, 32));
        CHECK_EQ(0x62a8ab43, k->update(0, ones, 32));
        CHECK_EQ(0x46dd794e, k->update(0, up, 32));
        CHECK_EQ(0xe3069283, k->update(0, "123456789", 9));
        CHECK_EQ(0, k->update(0, NULL, 0));
    }
    CHECK_EQ(0xe3069283, gw_crc32c(gw_crc32c(0, "1234", 4), "56789", 5));
}

static uint8_t *random_bytes(size_t bytes) {
    uint8_t *data = malloc(bytes);
    uint32_t state = 5;
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    return data;
}

static void every_length_and_alignment(void) {
    uint8_t *data = random_bytes((1 << 19) + 3);
    for (const gw_crc32c_kernel *k = gw_crc32c_kernels; k->name; k++) {
        if (!k->supported()) continue;
        uint64_t wrong = 0;
        for (size_t bytes = 0; bytes < 1100; bytes++) {
            for (size_t at = 0; at < (bytes < 300 ? 64 : 3); at++)
                wrong +=
                    k->update((uint32_t)bytes, data + at, bytes) != table()->update((uint32_t)bytes, data + at, bytes);
        }
        for (size_t bytes = 2900; bytes < 7000; bytes += 7)
            wrong += k->update(77, data + bytes % 64, bytes) != table()->update(77, data + bytes % 64, bytes);
        for (size_t bytes = 11900; bytes <= 1 << 19; bytes += bytes / 3 - 1)
            wrong += k->update(1, data + 3, bytes) != table()->update(1, data + 3, bytes);
        printf("    %s: %llu wrong\n", k->name, (unsigned long long)wrong);
        CHECK_EQ(0, wrong);
    }
    free(data);
}

static void every_bit_matters(void) {
    uint8_t *data = random_bytes(1000);
    uint32_t right = gw_crc32c(9, data, 1000);
    for (size_t bit = 0; bit < 8000; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(gw_crc32c(9, data, 1000) != right);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(data);
}

TEST_MAIN(CASE(known_values), CASE(every_length_and_alignment), CASE(every_bit_matters))
