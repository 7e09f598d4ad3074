/* test_channel.c - a stream of sealed records over a real socket: what is sent arrives, in pieces of any size; whatever
 * is changed, left out or repeated on the way is noticed, and nothing after it is given. */
#include "bootstrap/channel.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

enum { BYTES = 100000, HEAD = 4, BODY_MAX = 4096 };

static gw_traffic_keys keys_of(gw_security security, bool turned) {
    gw_traffic_keys keys = {.security = security, .send = {.key = {1}, .iv = {2}}, .receive = {.key = {3}, .iv = {4}}};
    if (turned) keys = (gw_traffic_keys){.security = security, .send = keys.receive, .receive = keys.send};
    return keys;
}

static void plain_pair(int fds[2]) {
    CHECK_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
}

static gw_channel *channel_over(int fd, gw_security security, bool turned) {
    gw_channel *channel = NULL;
    gw_traffic_keys keys = keys_of(security, turned);
    CHECK_EQ(GW_OK, gw_channel_open(&channel, fd, &keys, NULL));
    return channel;
}

static uint8_t pattern(size_t i) { return (uint8_t)(i * 7 + i / 251); }

static void everything_arrives(void) {
    for (int security = 0; security < GW_SECURITIES; security++) {
        int fds[2];
        plain_pair(fds);
        gw_channel *from = channel_over(fds[0], (gw_security)security, false);
        gw_channel *to = channel_over(fds[1], (gw_security)security, true);
        static uint8_t out[BYTES], in[BYTES];
        for (size_t i = 0; i < BYTES; i++) out[i] = pattern(i);
        size_t sent = 0, have = 0, piece = 1;
        for (int turn = 0; turn < 100000 && have < BYTES; turn++) {
            size_t left = BYTES - sent, room = BYTES - have;
            piece = piece * 5 % 9973;
            ssize_t n = left ? gw_channel_send(from, out + sent, piece < left ? piece : left) : 0;
            if (n < 0) CHECK_EQ(EAGAIN, errno);
            if (n > 0) sent += (size_t)n;
            gw_channel_flush(from);
            if (turn % 3) continue; /* so that the socket fills up now and then */
            while ((n = gw_channel_receive(to, in + have, piece < room ? piece : room)) > 0 && (room -= (size_t)n))
                have += (size_t)n;
            if (n > 0) have += (size_t)n;
        }
        CHECK_EQ(BYTES, have);
        CHECK(memcmp(in, out, BYTES) == 0);
        gw_channel_close(from);
        CHECK_EQ(0, gw_channel_receive(to, in, 1)); /* the end */
        gw_channel_close(to);
    }
}

/* What a sender puts on the wire for three messages of 8 bytes. */
static size_t record_three(gw_security security, uint8_t *bytes, size_t room) {
    int fds[2];
    plain_pair(fds);
    gw_channel *from = channel_over(fds[0], security, false);
    for (int i = 0; i < 3; i++) CHECK_EQ(8, gw_channel_send(from, "payload1", 8));
    ssize_t got = recv(fds[1], bytes, room, 0);
    gw_channel_close(from);
    close(fds[1]);
    return got < 0 ? 0 : (size_t)got;
}

/* How many bytes a receiver gives of these, and the errno that ends it; 0: the stream's end. */
static size_t play(gw_security security, const uint8_t *bytes, size_t count, int *code) {
    int fds[2];
    uint8_t in[8];
    size_t given = 0;
    ssize_t n;
    plain_pair(fds);
    gw_channel *to = channel_over(fds[1], security, true);
    CHECK_EQ(count, send(fds[0], bytes, count, MSG_NOSIGNAL));
    close(fds[0]);
    while ((n = gw_channel_receive(to, in, sizeof in)) > 0) {
        CHECK(memcmp(in, "payload1", (size_t)n) == 0);
        given += (size_t)n;
    }
    *code = n < 0 ? errno : 0;
    if (n < 0) CHECK_EQ(-1, gw_channel_receive(to, in, sizeof in)); /* and nothing later */
    gw_channel_close(to);
    return given;
}

static void changes_are_noticed(void) {
    for (gw_security security = GW_SECURITY_MAC; security <= GW_SECURITY_TLS; security++) {
        uint8_t said[256], bad[256];
        int code;
        size_t count = record_three(security, said, sizeof said), each = count / 3;
        CHECK_EQ(3 * (HEAD + 8 + GW_SEAL_TAG_BYTES), count);
        CHECK_EQ(security == GW_SECURITY_MAC, memmem(said, count, "payload1", 8) != NULL);
        CHECK_EQ(24, play(security, said, count, &code));
        CHECK_EQ(0, code);
        for (size_t at = 0; at < count; at++) { /* a changed byte: its record and those after it are not given */
            memcpy(bad, said, count);
            bad[at] ^= 1;
            CHECK(play(security, bad, count, &code) <= at / each * 8);
            if (at % each >= HEAD) CHECK_EQ(EBADMSG, code);
        }
        memcpy(bad, said + each, count - each); /* the first record left out */
        CHECK_EQ(0, play(security, bad, count - each, &code));
        CHECK_EQ(EBADMSG, code);
        memcpy(bad, said, each); /* the first one twice */
        memcpy(bad + each, said, each);
        CHECK_EQ(8, play(security, bad, 2 * each, &code));
        CHECK_EQ(EBADMSG, code);
        CHECK(strstr(gw_channel_why(EBADMSG), "changed on the way") != NULL);
    }
}

static void lengths_are_limited(void) {
    static const uint32_t lengths[] = {0, BODY_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t bytes[64] = {0};
        int code;
        memcpy(bytes, &lengths[i], HEAD); /* little-endian machines only, as all that run the tests are */
        CHECK_EQ(0, play(GW_SECURITY_TLS, bytes, sizeof bytes, &code));
        CHECK_EQ(EBADMSG, code);
    }
}

TEST_MAIN(CASE(everything_arrives), CASE(changes_are_noticed), CASE(lengths_are_limited))
