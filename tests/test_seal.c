/* test_seal.c - records of a protected connection: what was sealed opens once, in its place, and nothing else does. */
#include <string.h>

#include "bootstrap/seal.h"
#include "test.h"

static const gw_seal_key key = {.key = {1, 2, 3}, .iv = {4, 5, 6}};

typedef struct pair {
    gw_seal *sender, *receiver;
} pair;

static pair make(gw_security security) {
    pair p = {NULL, NULL};
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_seal_make(&p.sender, security, &key, &error));
    CHECK_EQ(GW_OK, gw_seal_make(&p.receiver, security, &key, &error));
    return p;
}

static void drop(pair p) {
    gw_seal_free(p.sender);
    gw_seal_free(p.receiver);
}

static void records_open_in_order(void) {
    for (gw_security security = GW_SECURITY_MAC; security < GW_SECURITIES; security++) {
        pair p = make(security);
        for (size_t bytes = 0; bytes < 5000; bytes = 2 * bytes + 1) {
            uint8_t in[5000], wire[5000], tag[GW_SEAL_TAG_BYTES];
            for (size_t i = 0; i < bytes; i++) wire[i] = in[i] = (uint8_t)(i * 7 + bytes);
            CHECK(gw_seal_protect(p.sender, in, wire, bytes, tag));
            CHECK(bytes < 16 || (memcmp(in, wire, bytes) == 0) == (security == GW_SECURITY_MAC));
            CHECK(gw_seal_verify(p.receiver, wire, wire, bytes, tag));
            CHECK(memcmp(in, wire, bytes) == 0);
        }
        drop(p);
    }
}

/* Every bit of a record and of its tag. */
static void a_changed_bit_is_seen(void) {
    for (gw_security security = GW_SECURITY_MAC; security < GW_SECURITIES; security++)
        for (size_t bit = 0; bit < 8 * (64 + GW_SEAL_TAG_BYTES); bit++) {
            pair p = make(security);
            uint8_t wire[64 + GW_SEAL_TAG_BYTES] = {9};
            CHECK(gw_seal_protect(p.sender, wire, wire, 64, wire + 64));
            wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK(!gw_seal_verify(p.receiver, wire, wire, 64, wire + 64));
            drop(p);
        }
}

static void a_repeated_or_moved_record_is_seen(void) {
    for (gw_security security = GW_SECURITY_MAC; security < GW_SECURITIES; security++) {
        pair p = make(security);
        uint8_t first[32] = {1}, second[32] = {2}, tags[2][GW_SEAL_TAG_BYTES], out[32];
        CHECK(gw_seal_protect(p.sender, first, first, 32, tags[0]));
        CHECK(gw_seal_protect(p.sender, second, second, 32, tags[1]));
        CHECK(!gw_seal_verify(p.receiver, second, out, 32, tags[1])); /* one was left out */
        drop(p);
        p = make(security);
        CHECK(gw_seal_protect(p.sender, first, first, 32, tags[0]));
        CHECK(gw_seal_verify(p.receiver, first, out, 32, tags[0]));
        CHECK(!gw_seal_verify(p.receiver, first, out, 32, tags[0]));
        drop(p);
    }
}

static void another_key_opens_nothing(void) {
    gw_seal_key other = key;
    gw_error error = {.rank = -1};
    pair p = make(GW_SECURITY_TLS);
    uint8_t wire[32] = {1}, tag[GW_SEAL_TAG_BYTES];
    other.key[15] ^= 1;
    gw_seal_free(p.receiver);
    CHECK_EQ(GW_OK, gw_seal_make(&p.receiver, GW_SECURITY_TLS, &other, &error));
    CHECK(gw_seal_protect(p.sender, wire, wire, sizeof wire, tag));
    CHECK(!gw_seal_verify(p.receiver, wire, wire, sizeof wire, tag));
    drop(p);
}

TEST_MAIN(CASE(records_open_in_order), CASE(a_changed_bit_is_seen), CASE(a_repeated_or_moved_record_is_seen),
          CASE(another_key_opens_nothing))
