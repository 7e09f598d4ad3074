/* test_segment.c - shared segments, peer maps and their tables: allocation, lookup, refusals, replacement, freeing. */
#include "ranks.h"

#include <fcntl.h>
#include <sys/stat.h>

static void memory_is_zeroed_and_sealed(void) {
    gw_segment segment;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_OK, gw_segment_create(&segment, 10000, true, &error));
    CHECK_EQ(12288, segment.bytes);
    CHECK_EQ(0, (uintptr_t)segment.base % 4096);
    size_t set = 0;
    for (size_t i = 0; i < segment.bytes; i++) set += ((uint8_t *)segment.base)[i] != 0;
    CHECK_EQ(0, set);
    CHECK(ftruncate(segment.fd, 4096) != 0);
    CHECK(ftruncate(segment.fd, 1 << 20) != 0);
    gw_segment_close(&segment);
    CHECK(segment.base == NULL);
}

static void too_much_is_an_error(void) {
    gw_segment segment;
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)1 << 62, (size_t)1 << 50};
    for (int i = 0; i < 4; i++) {
        gw_error error = {.status = GW_OK};
        CHECK(gw_segment_create(&segment, sizes[i], false, &error) != GW_OK);
        CHECK(strstr(error.text, "bytes of shared memory could not be had"));
    }
}

/* An opened segment shows the owner's writes, until the owner renews it. */
static void renewed_memory_is_out_of_reach(void) {
    if (RANKS_ARE_THREADS) return;
    gw_segment own, other;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_OK, gw_segment_create(&own, 8192, true, &error));
    gw_segment_name name = {.pid = getpid(), .fd = own.fd, .inode = own.inode, .bytes = own.bytes};
    CHECK_EQ(GW_OK, gw_segment_open(&other, &name, true, &error));
    int *mine = own.base, *theirs = other.base;
    mine[5] = 1;
    CHECK_EQ(1, theirs[5]);
    CHECK_EQ(GW_OK, gw_segment_renew(&own, &error));
    CHECK(own.base == (void *)mine);
    CHECK_EQ(1, mine[5]);
    theirs[5] = 2;
    CHECK_EQ(1, mine[5]);
    gw_segment stale;
    CHECK_EQ(GW_UNSUPPORTED, gw_segment_open(&stale, &name, true, &error));
    gw_segment_close(&other);
    gw_segment_close(&own);
}

static void another_file_is_refused(void) {
    if (RANKS_ARE_THREADS) return;
    gw_segment own, other;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_OK, gw_segment_create(&own, 4096, true, &error));
    gw_segment_name good = {.pid = getpid(), .fd = own.fd, .inode = own.inode, .bytes = own.bytes};
    gw_segment_name bad[4] = {good, good, good, good};
    bad[0].inode++;
    bad[1].bytes *= 2;
    bad[2].fd = 9999;
    int plain = memfd_create("unsealed", MFD_CLOEXEC);
    struct stat about;
    CHECK(ftruncate(plain, 4096) == 0 && fstat(plain, &about) == 0);
    bad[3].fd = plain;
    bad[3].inode = (uint64_t)about.st_ino;
    for (int i = 0; i < 4; i++) {
        gw_error cause = {.status = GW_OK};
        CHECK_EQ(GW_UNSUPPORTED, gw_segment_open(&other, &bad[i], true, &cause));
        CHECK(strstr(cause.text, "shared memory of process"));
    }
    close(plain);
    gw_segment_close(&own);
}

static void endpoints_say_who_is_apart(void) {
    gw_peer_map *a, *b;
    gw_error error = {.status = GW_OK};
    uint8_t good[GW_SHM_ENDPOINT_BYTES], bad[GW_SHM_ENDPOINT_BYTES];
    CHECK_EQ(GW_OK, gw_peer_map_open(&a, 0, 2, 4096, &error));
    CHECK_EQ(GW_OK, gw_peer_map_open(&b, 1, 2, 4096, &error));
    gw_peer_map_endpoint(b, good);
    static const struct {
        int byte;
        const char *reason;
    } wrong[] = {{0, "offers no shared memory"},
                 {8, "/proc/"},
                 {12, "doorbell"},
                 {16, "cookie"},
                 {32, "another host"},
                 {48, "another network namespace"},
                 {52, "another pid namespace"},
                 {56, "another user"},
                 {60, "not its shared page"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_error cause = {.status = GW_OK};
        memcpy(bad, good, sizeof bad);
        bad[wrong[i].byte + (wrong[i].byte == 8 || wrong[i].byte == 12)] ^= 0x77; /* far from any open descriptor */
        CHECK_EQ(GW_UNSUPPORTED, gw_peer_map_attach(a, 1, bad, &cause));
        CHECK_EQ(1, cause.rank);
        if (!strstr(cause.text, wrong[i].reason)) CHECK_STR(wrong[i].reason, cause.text);
        CHECK(a->peers[1].page == NULL);
    }
    CHECK_EQ(GW_OK, gw_peer_map_attach(a, 1, good, &error));
    gw_peer_map_close(a);
    gw_peer_map_close(b);
}

static void memory_is_found_where_it_lies(void) {
    gw_peer_map *h;
    gw_shm_ref where;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_OK, gw_peer_map_open(&h, 0, 1, 4096, &error));
    uint8_t *a = gw_peer_map_share(h, 8192, 0, true, &error), *b = gw_peer_map_share(h, 5000, 0, true, &error);
    CHECK(gw_peer_map_find(h, a, 8192, &where) && where.id == 0 && where.offset == 0);
    CHECK(gw_peer_map_find(h, b + 4000, 1000, &where) && where.id == 1 && where.offset == 4000);
    CHECK(gw_peer_map_find(h, a + 8191, 1, &where) && where.offset == 8191);
    CHECK(!gw_peer_map_find(h, a, 8193, &where) && where.version == 0); /* nor where two allocations are neighbours */
    CHECK(!gw_peer_map_find(h, a - 1, 2, &where));
    CHECK(!gw_peer_map_find(h, a, SIZE_MAX, &where));
    CHECK(!gw_peer_map_find(h, &where, 4, &where));
    gw_peer_map_unshare(h, a);
    CHECK(!gw_peer_map_find(h, a, 1, &where));
    gw_peer_map_unshare(h, NULL);
    gw_peer_map_close(h);
}

static void the_table_has_an_end(void) {
    gw_peer_map *h;
    gw_error error = {.status = GW_OK};
    void *last = NULL;
    CHECK_EQ(GW_OK, gw_peer_map_open(&h, 3, 4, 4096, &error));
    for (int i = 0; i < GW_PEER_MAP_SEGMENTS; i++) {
        last = gw_peer_map_share(h, 1, 0, true, &error);
        if (last) continue;
        /* A low limit of open files is an error of its own. */
        CHECK(strstr(error.text, "Too many open files"));
        gw_peer_map_close(h);
        return;
    }
    CHECK(gw_peer_map_share(h, 1, 0, true, &error) == NULL);
    CHECK(strstr(error.text, "rank 3 already shares 1024 pieces"));
    gw_peer_map_unshare(h, last);
    CHECK(gw_peer_map_share(h, 1, 0, true, &error) != NULL);
    gw_peer_map_close(h);
}

/* A mapping of freed memory goes when it is no longer in use, and the entry's next memory is another one. */
static void freed_memory_is_unmapped(void) {
    if (RANKS_ARE_THREADS) return;
    gw_peer_map *a, *b;
    gw_error error = {.status = GW_OK};
    uint8_t endpoint[GW_SHM_ENDPOINT_BYTES];
    gw_shm_ref where, again;
    CHECK_EQ(GW_OK, gw_peer_map_open(&a, 0, 2, 4096, &error));
    CHECK_EQ(GW_OK, gw_peer_map_open(&b, 1, 2, 4096, &error));
    gw_peer_map_endpoint(b, endpoint);
    CHECK_EQ(GW_OK, gw_peer_map_attach(a, 1, endpoint, &error));
    int *theirs = gw_peer_map_share(b, 4096, 0, true, &error);
    CHECK(gw_peer_map_find(b, theirs, 4096, &where));
    gw_mapping *mapping = gw_peer_map_pin(a, 1, where, &error);
    *theirs = 42;
    CHECK_EQ(42, *(int *)mapping->segment.base);
    gw_peer_map_unshare(b, theirs);
    gw_peer_map_sweep(a);
    CHECK_EQ(42, *(int *)mapping->segment.base);
    theirs = gw_peer_map_share(b, 4096, 0, true, &error);
    CHECK(gw_peer_map_find(b, theirs, 4096, &again) && again.id == where.id && again.version != where.version);
    gw_mapping *fresh = gw_peer_map_pin(a, 1, again, &error);
    CHECK_EQ(0, *(int *)fresh->segment.base);
    gw_peer_map_unpin(mapping);
    gw_peer_map_sweep(a);
    CHECK(a->peers[1].mappings[where.id] == fresh && fresh->next == NULL);
    CHECK(gw_peer_map_pin(a, 1, where, &error) == NULL);
    CHECK(strstr(error.text, "rank 1 freed memory"));
    gw_peer_map_close(a);
    gw_peer_map_close(b);
}

TEST_MAIN(CASE(memory_is_zeroed_and_sealed), CASE(too_much_is_an_error), CASE(renewed_memory_is_out_of_reach),
          CASE(another_file_is_refused), CASE(endpoints_say_who_is_apart), CASE(memory_is_found_where_it_lies),
          CASE(the_table_has_an_end), CASE(freed_memory_is_unmapped))
