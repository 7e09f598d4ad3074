/* test_frame.c - a frame's header survives the wire, and headers that gradwire never writes are refused. */
#include "base/dtype.h"
#include "transport/frame.h"

#include "test.h"

static gw_frame sample(void) {
    return (gw_frame){.kind = GW_FRAME_DATA,
                      .flags = GW_FRAME_EAGER,
                      .collective = 3,
                      .dtype = GW_I64,
                      .redop = GW_PROD,
                      .builder = 200,
                      .credits = 0xfedc,
                      .comm = 0x01020304,
                      .channel = 0xfffffffe,
                      .op = UINT64_C(0x1122334455667788),
                      .index = UINT64_MAX,
                      .count = UINT64_C(0x8000000000000001),
                      .root = 77,
                      .scale = UINT64_C(0x123456789abcdef0),
                      .length = GW_FRAME_PAYLOAD_MAX};
}

static gw_status through(gw_frame frame, gw_error *error) {
    uint8_t bytes[GW_FRAME_BYTES];
    gw_frame_write(&frame, bytes);
    gw_frame out;
    return gw_frame_read(&out, bytes, error);
}

static void survives_the_wire(void) {
    uint8_t bytes[GW_FRAME_BYTES];
    gw_frame in = sample(), out;
    memset(bytes, 0xaa, sizeof bytes);
    gw_frame_write(&in, bytes);
    CHECK_EQ(GW_OK, gw_frame_read(&out, bytes, NULL));
    CHECK(memcmp(&in, &out, sizeof in) == 0);
    CHECK_EQ(0x04, bytes[12]); /* little-endian, whatever the machine */
    CHECK_EQ(0x88, bytes[24]);
    CHECK_EQ(0xf0, bytes[56]);
}

static void refuses_what_is_out_of_range(void) {
    gw_error error = {0};
#define REFUSED(change, word)                                                                                          \
    do {                                                                                                               \
        gw_frame f = sample();                                                                                         \
        f.change;                                                                                                      \
        error = (gw_error){0};                                                                                         \
        CHECK_EQ(GW_PROTOCOL, through(f, &error));                                                                     \
        CHECK(strstr(error.text, word) != NULL);                                                                       \
    } while (0)
    REFUSED(kind = 0, "kind");
    REFUSED(kind = GW_FRAME_RTS + 1, "kind");
    REFUSED(flags = 2, "flags");
    REFUSED(kind = GW_FRAME_GRANT, "flags");
    REFUSED(collective = 16, "collective");
    REFUSED(dtype = GW_DTYPES, "type");
    REFUSED(redop = GW_REDOPS, "operation");
    REFUSED(root = -2, "root");
    REFUSED(length = GW_FRAME_PAYLOAD_MAX + 1, "length");
    gw_frame grant = {.kind = GW_FRAME_GRANT, .collective = GW_COLL_SEND, .length = 1, .root = -1};
    CHECK_EQ(GW_PROTOCOL, through(grant, NULL));
    grant.length = 0;
    CHECK_EQ(GW_OK, through(grant, NULL));
    grant.tag = 1;
    CHECK_EQ(GW_OK, through(grant, NULL));
    grant.tag = UINT32_C(1) << 31;
    CHECK_EQ(GW_PROTOCOL, through(grant, &error));
    grant.tag = 1;
    grant.kind = GW_FRAME_CREDIT;
    error = (gw_error){0};
    CHECK_EQ(GW_PROTOCOL, through(grant, &error));
    CHECK(strstr(error.text, "tag") != NULL);
}

static void a_ready_to_send_has_a_tag_and_no_payload(void) {
    gw_frame rts = {.kind = GW_FRAME_RTS, .collective = GW_COLL_SEND, .tag = 7, .root = -1};
    CHECK_EQ(GW_OK, through(rts, NULL));
    rts.length = 1;
    CHECK_EQ(GW_PROTOCOL, through(rts, NULL));
    rts.length = 0;
    rts.flags = GW_FRAME_EAGER;
    CHECK_EQ(GW_PROTOCOL, through(rts, NULL));
}

static void refuses_a_stream_out_of_step(void) {
    gw_frame in = sample(), out = {.kind = 99};
    uint8_t bytes[2 * GW_FRAME_BYTES];
    gw_frame_write(&in, bytes);
    gw_frame_write(&in, bytes + GW_FRAME_BYTES);
    for (int shift = 1; shift < GW_FRAME_BYTES; shift++)
        CHECK_EQ(GW_PROTOCOL, gw_frame_read(&out, bytes + shift, NULL));
    CHECK_EQ(99, out.kind);
}

TEST_MAIN(CASE(survives_the_wire), CASE(refuses_what_is_out_of_range), CASE(a_ready_to_send_has_a_tag_and_no_payload),
          CASE(refuses_a_stream_out_of_step))
