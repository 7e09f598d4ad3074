/* test_auth.c - the handshake accepts only peers that know the token: wrong tokens, every truncation, every flipped
 * bit, reflections and replays are refused. */
#include "bootstrap/auth.h"

#include "test.h"

static const gw_intro client_intro = {
    .purpose = GW_PURPOSE_DATA, .from = 2, .to = 5, .world = 8, .generation = 7, .stream = 3};
static const gw_intro server_intro = {.from = 5, .world = 8};

static void begin(gw_auth *auth, bool server, const char *secret, const char *job, const gw_intro *intro) {
    gw_token token = {0};
    uint8_t key[GW_AUTH_KEY_BYTES], nonce[GW_AUTH_NONCE_BYTES];
    snprintf(token.text, sizeof token.text, "%s", secret);
    CHECK_EQ(GW_OK, gw_auth_key(&token, job, key, NULL));
    CHECK(gw_auth_nonce(nonce));
    gw_auth_begin(auth, server, key, nonce, intro);
}

static void pair(gw_auth *client, gw_auth *server) {
    begin(client, false, "a token of the job", "job", &client_intro);
    begin(server, true, "a token of the job", "job", &server_intro);
}

/* What one side says to the other, with byte `flip` (counted over the whole direction) damaged by `mask`. */
typedef struct wire {
    uint8_t said[256];
    size_t count;
    long flip;
    uint8_t mask;
} wire;

/* Moves the output of `from` to `to`, in parts of at most `piece` bytes. */
static gw_status move(gw_auth *from, gw_auth *to, wire *w, size_t piece) {
    size_t count;
    for (const uint8_t *bytes = gw_auth_output(from, &count); count; bytes = gw_auth_output(from, &count)) {
        if (count > piece) count = piece;
        if (count > gw_auth_wants(to)) count = gw_auth_wants(to);
        if (count == 0) return GW_OK;
        uint8_t copy[GW_AUTH_OUT_MAX];
        memcpy(copy, bytes, count);
        if (w->flip >= (long)w->count && w->flip < (long)(w->count + count)) copy[w->flip - (long)w->count] ^= w->mask;
        memcpy(w->said + w->count, bytes, count);
        w->count += count;
        gw_auth_sent(from, count);
        gw_status status = gw_auth_take(to, copy, count);
        if (status != GW_OK) return status;
    }
    return GW_OK;
}

static gw_status run(gw_auth *client, gw_auth *server, wire *up, wire *down, size_t piece) {
    for (int i = 0; i < 8; i++) {
        gw_status status = move(client, server, up, piece);
        if (status == GW_OK) status = move(server, client, down, piece);
        if (status != GW_OK) return status;
    }
    return GW_OK;
}

static bool both_done(const gw_auth *client, const gw_auth *server) {
    return gw_auth_done(client) && gw_auth_done(server);
}

static void ranks_with_the_token_connect(void) {
    for (size_t piece = 1; piece <= 160; piece++) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        pair(&client, &server);
        CHECK_EQ(GW_OK, run(&client, &server, &up, &down, piece));
        CHECK(both_done(&client, &server));
        CHECK_EQ(44 + 32 + 56, up.count);
        CHECK_EQ(64 + 56, down.count);
        CHECK(memcmp(&server.peer, &client_intro, sizeof client_intro) == 0);
        CHECK_EQ(5, client.peer.from);
        CHECK_EQ(2, client.peer.to);
        CHECK_EQ(7, client.peer.generation);
        CHECK_EQ(3, client.peer.stream);
        CHECK_EQ(0, gw_auth_wants(&client));
    }
}

static void wrong_token_or_job(void) {
    static const char *const others[][2] = {{"a token of the jo_", "job"}, {"a token of the job", "another"}};
    for (int i = 0; i < 2; i++) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        begin(&client, false, others[i][0], others[i][1], &client_intro);
        begin(&server, true, "a token of the job", "job", &server_intro);
        CHECK_EQ(GW_DENIED, run(&client, &server, &up, &down, 160));
        CHECK_EQ(GW_AUTH_FAILED, client.state); /* it notices first, and says nothing more */
        CHECK_EQ(44, up.count);
        /* A client that ignores the error cannot prove itself either. */
        uint8_t guess[32] = {1};
        CHECK_EQ(GW_DENIED, gw_auth_take(&server, guess, sizeof guess));
        CHECK_EQ(GW_AUTH_FAILED, server.state);
        CHECK_EQ(0, gw_auth_wants(&server));
    }
}

static void truncation_never_finishes(void) {
    for (size_t keep = 0; keep < 44 + 32 + 56; keep++) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        pair(&client, &server);
        while (up.count < keep) { /* byte by byte, then silence */
            CHECK_EQ(GW_OK, move(&server, &client, &down, 160));
            size_t count, before = up.count;
            const uint8_t *bytes = gw_auth_output(&client, &count);
            if (count) {
                CHECK_EQ(GW_OK, gw_auth_take(&server, bytes, 1));
                gw_auth_sent(&client, 1);
                up.count++;
            }
            if (up.count == before) break;
        }
        CHECK_EQ(keep, up.count);
        CHECK(!gw_auth_done(&server));
        CHECK(!gw_auth_done(&client));
    }
}

static void every_flipped_bit_is_noticed(void) {
    for (int direction = 0; direction < 2; direction++)
        for (long at = 0; at < (direction ? 120 : 132); at++)
            for (int bit = 0; bit < 8; bit++) {
                gw_auth client, server;
                wire up = {.flip = direction ? -1 : at, .mask = (uint8_t)(1 << bit)};
                wire down = {.flip = direction ? at : -1, .mask = (uint8_t)(1 << bit)};
                pair(&client, &server);
                CHECK_EQ(GW_DENIED, run(&client, &server, &up, &down, 160));
                CHECK(!both_done(&client, &server));
                if (!direction) CHECK(!gw_auth_done(&server));
                else CHECK(!gw_auth_done(&client));
            }
}

/* A stranger gives the server its own words back: the proof it has just got, on the same connection and on another. */
static void reflection(void) {
    gw_auth client, first, second;
    wire up = {.flip = -1};
    pair(&client, &first);
    begin(&second, true, "a token of the job", "job", &server_intro);
    CHECK_EQ(GW_OK, move(&client, &first, &up, 160));
    size_t count;
    uint8_t challenge[64];
    memcpy(challenge, gw_auth_output(&first, &count), 64);
    CHECK_EQ(64, count);
    uint8_t hello[44];
    memcpy(hello, up.said, 12);
    memcpy(hello + 12, challenge, 32); /* its nonce comes back as ours */
    CHECK_EQ(GW_OK, gw_auth_take(&second, hello, sizeof hello));
    gw_auth copy = first;
    CHECK_EQ(GW_DENIED, gw_auth_take(&copy, gw_auth_output(&second, &count) + 32, 32));
    CHECK_EQ(GW_DENIED, gw_auth_take(&first, challenge + 32, 32));

    /* A client to which its own hello is given back. */
    gw_auth alone;
    begin(&alone, false, "a token of the job", "job", &client_intro);
    uint8_t echo[64] = {0};
    memcpy(echo, gw_auth_output(&alone, &count), 44);
    CHECK_EQ(GW_DENIED, gw_auth_take(&alone, echo, 64));
}

static void replay(void) {
    gw_auth client, server, again;
    wire up = {.flip = -1}, down = {.flip = -1};
    pair(&client, &server);
    CHECK_EQ(GW_OK, run(&client, &server, &up, &down, 160));
    CHECK(both_done(&client, &server));
    begin(&again, true, "a token of the job", "job", &server_intro);
    CHECK_EQ(GW_OK, gw_auth_take(&again, up.said, 44));
    CHECK_EQ(GW_DENIED, gw_auth_take(&again, up.said + 44, 32));
    gw_auth fresh;
    begin(&fresh, false, "a token of the job", "job", &client_intro);
    CHECK_EQ(GW_DENIED, gw_auth_take(&fresh, down.said, 64));
}

/* A member of the job that talks nonsense is not a stranger, but is refused too. */
static void hello_messages_are_checked(void) {
    static const gw_intro nonsense[] = {
        {.purpose = 0, .from = 1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSES, .from = 1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 2, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = -1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 1, .to = -1, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 0, .to = 0, .world = 0},
        {.purpose = GW_PURPOSE_JOIN, .from = 0, .to = 0, .world = GW_WORLD_MAX + 1},
        {.purpose = GW_PURPOSE_DATA, .from = 1, .to = 0, .world = 2, .stream = GW_STREAM_MAX},
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        begin(&client, false, "a token of the job", "job", &nonsense[i]);
        begin(&server, true, "a token of the job", "job", &server_intro);
        CHECK_EQ(GW_PROTOCOL, run(&client, &server, &up, &down, 160));
        CHECK_EQ(GW_AUTH_FAILED, server.state);
    }
}

TEST_MAIN(CASE(ranks_with_the_token_connect), CASE(wrong_token_or_job), CASE(truncation_never_finishes),
          CASE(every_flipped_bit_is_noticed), CASE(reflection), CASE(replay), CASE(hello_messages_are_checked))
