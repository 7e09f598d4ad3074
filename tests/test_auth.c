/* test_auth.c - the handshake accepts only peers that know the token and their own static key: wrong tokens, every
 * truncation, every flipped bit, reflections, replays and other versions are refused. */
#include "bootstrap/auth.h"

#include "test.h"

enum { CLIENT_SAYS = GW_AUTH_HELLO_BYTES + GW_AUTH_CLIENT_BYTES + GW_AUTH_PROOF_BYTES };
enum { SERVER_SAYS = GW_AUTH_HELLO_BYTES + GW_AUTH_SERVER_BYTES, ALL = 512 };

static const gw_intro client_intro = {.purpose = GW_PURPOSE_DATA,
                                      .from = 2,
                                      .to = 5,
                                      .world = 8,
                                      .generation = 7,
                                      .stream = 3,
                                      .asked = GW_SECURITY_CHOICE_TLS,
                                      .security = GW_SECURITY_TLS};
static const gw_intro server_intro = {.from = 5, .world = 8, .asked = GW_SECURITY_CHOICE_MAC};

/* The first is the client's, the second the server's; both know the token. */
static gw_identity identities[2];

static void make_identity(gw_identity *identity, const char *secret, const char *job) {
    gw_token token = {0};
    snprintf(token.text, sizeof token.text, "%s", secret);
    CHECK_EQ(GW_OK, gw_auth_key(&token, job, identity->key, NULL));
    CHECK(gw_key_pair_make(&identity->pair));
}

static const gw_identity *identity_of(int side) {
    static bool made;
    for (int i = 0; i < 2 && !made; i++) make_identity(&identities[i], "a token of the job", "job");
    made = true;
    return &identities[side];
}

static void begin(gw_auth *auth, bool server, const gw_identity *identity, const gw_intro *intro) {
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    CHECK(gw_auth_nonce(nonce));
    gw_auth_begin(auth, server, identity, nonce, intro);
}

static void pair(gw_auth *client, gw_auth *server) {
    begin(client, false, identity_of(0), &client_intro);
    begin(server, true, identity_of(1), &server_intro);
}

/* What one side says to the other, with byte `flip` (counted over the whole direction) damaged by `mask`. */
typedef struct wire {
    uint8_t said[ALL];
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

static gw_status run_whole(gw_auth *client, gw_auth *server) {
    wire up = {.flip = -1}, down = {.flip = -1};
    return run(client, server, &up, &down, ALL);
}

static bool both_done(const gw_auth *client, const gw_auth *server) {
    return gw_auth_done(client) && gw_auth_done(server);
}

static void ranks_with_the_token_connect(void) {
    for (size_t piece = 1; piece <= 160; piece += piece < 8 ? 1 : 19) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        pair(&client, &server);
        CHECK_EQ(GW_OK, run(&client, &server, &up, &down, piece));
        CHECK(both_done(&client, &server));
        CHECK_EQ(CLIENT_SAYS, up.count);
        CHECK_EQ(SERVER_SAYS, down.count);
        gw_intro expected = client_intro;
        memcpy(expected.public_key, identities[0].pair.public_key, GW_KEY_BYTES);
        CHECK(memcmp(&server.peer, &expected, sizeof expected) == 0);
        CHECK_EQ(5, client.peer.from);
        CHECK_EQ(2, client.peer.to);
        CHECK_EQ(7, client.peer.generation);
        CHECK_EQ(3, client.peer.stream);
        CHECK_EQ(GW_SECURITY_CHOICE_MAC, client.peer.asked); /* who compares them is the caller */
        CHECK_EQ(GW_SECURITY_TLS, client.peer.security);
        CHECK(memcmp(client.peer.public_key, identities[1].pair.public_key, GW_KEY_BYTES) == 0);
        CHECK_EQ(0, gw_auth_wants(&client));
    }
}

/* Both sides have the same traffic keys; each direction and each connection has its own. */
static void traffic_keys(void) {
    gw_auth client[2], server[2];
    for (int i = 0; i < 2; i++) {
        pair(&client[i], &server[i]);
        CHECK_EQ(GW_OK, run_whole(&client[i], &server[i]));
        CHECK_EQ(GW_SECURITY_TLS, client[i].keys.security);
        CHECK_EQ(GW_SECURITY_TLS, server[i].keys.security);
        CHECK(memcmp(&client[i].keys.send, &server[i].keys.receive, sizeof(gw_seal_key)) == 0);
        CHECK(memcmp(&client[i].keys.receive, &server[i].keys.send, sizeof(gw_seal_key)) == 0);
        CHECK(memcmp(&client[i].keys.receive, &client[i].keys.send, sizeof(gw_seal_key)) != 0);
    }
    CHECK(memcmp(&client[0].keys.send, &client[1].keys.send, sizeof(gw_seal_key)) != 0);
}

/* What a stranger who only connects is told, and one who says what he likes: a nonce, and no. */
static void strangers_learn_nothing(void) {
    gw_auth server;
    size_t count;
    uint8_t hello[GW_AUTH_HELLO_BYTES] = "GRADWIRE\2", guess[GW_AUTH_CLIENT_BYTES] = {1};
    begin(&server, true, identity_of(1), &server_intro);
    gw_auth_output(&server, &count);
    CHECK_EQ(0, count);
    CHECK_EQ(GW_OK, gw_auth_take(&server, hello, sizeof hello));
    const uint8_t *said = gw_auth_output(&server, &count);
    CHECK_EQ(GW_AUTH_HELLO_BYTES, count);
    CHECK(memcmp(said + 12, server.nonce, GW_AUTH_NONCE_BYTES) == 0);
    gw_auth_sent(&server, count);
    CHECK_EQ(GW_DENIED, gw_auth_take(&server, guess, sizeof guess));
    said = gw_auth_output(&server, &count);
    CHECK_EQ(1, count);
    CHECK_EQ(0, said[0]);
    CHECK_EQ(0, gw_auth_wants(&server));
}

static void wrong_token_or_job(void) {
    static const char *const others[][2] = {{"a token of the jo_", "job"}, {"a token of the job", "another"}};
    for (int i = 0; i < 2; i++) {
        gw_auth client, server;
        gw_identity other;
        wire up = {.flip = -1}, down = {.flip = -1};
        make_identity(&other, others[i][0], others[i][1]);
        begin(&client, false, &other, &client_intro);
        begin(&server, true, identity_of(1), &server_intro);
        CHECK_EQ(GW_DENIED, run(&client, &server, &up, &down, ALL));
        CHECK_EQ(GW_AUTH_FAILED, server.state); /* the server notices, and says no */
        CHECK_EQ(GW_DENIED, move(&server, &client, &down, ALL));
        CHECK_EQ(GW_AUTH_FAILED, client.state);
        CHECK_EQ(0, gw_auth_wants(&server));
        CHECK_EQ(0, gw_auth_wants(&client));
    }
}

/* It knows the token, but not the secret half of the key that it shows: in either role. */
static void a_rank_without_its_key(void) {
    for (int side = 0; side < 2; side++) {
        gw_auth client, server;
        gw_identity false_one = *identity_of(side), other;
        make_identity(&other, "a token of the job", "job");
        memcpy(false_one.pair.secret, other.pair.secret, GW_KEY_BYTES);
        begin(&client, false, side ? identity_of(0) : &false_one, &client_intro);
        begin(&server, true, side ? &false_one : identity_of(1), &server_intro);
        CHECK_EQ(GW_DENIED, run_whole(&client, &server));
        CHECK(!gw_auth_done(&client));
        CHECK(!gw_auth_done(&server));
    }
}

/* Keys of small order would give a secret that everybody knows. */
static void keys_of_small_order(void) {
    gw_identity zero = *identity_of(0);
    memset(zero.pair.public_key, 0, GW_KEY_BYTES);
    gw_auth client, server;
    begin(&client, false, &zero, &client_intro);
    begin(&server, true, identity_of(1), &server_intro);
    CHECK_EQ(GW_DENIED, run_whole(&client, &server));
    CHECK_EQ(GW_AUTH_FAILED, server.state);
}

static void other_versions(void) {
    gw_auth server, client;
    size_t count;
    uint8_t old[GW_AUTH_HELLO_BYTES] = "GRADWIRE\1";
    begin(&server, true, identity_of(1), &server_intro);
    CHECK_EQ(GW_MISMATCH, gw_auth_take(&server, old, sizeof old));
    const uint8_t *said = gw_auth_output(&server, &count);
    CHECK_EQ(12, count);
    CHECK(memcmp("GRADWIRE\2\0\0", said, 12) == 0);
    begin(&client, false, identity_of(0), &client_intro);
    CHECK_EQ(GW_MISMATCH, gw_auth_take(&client, old, 12));
}

static void truncation_never_finishes(void) {
    for (size_t keep = 0; keep < CLIENT_SAYS; keep++) {
        gw_auth client, server;
        wire up = {.flip = -1}, down = {.flip = -1};
        pair(&client, &server);
        while (up.count < keep) { /* byte by byte, then silence */
            CHECK_EQ(GW_OK, move(&server, &client, &down, ALL));
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
        CHECK(!both_done(&client, &server));
    }
}

static void every_flipped_bit_is_noticed(void) {
    for (int direction = 0; direction < 2; direction++)
        for (long at = 0; at < (direction ? SERVER_SAYS : CLIENT_SAYS); at++)
            for (int bit = (int)at % 2; bit < 8; bit += 2) {
                gw_auth client, server;
                wire up = {.flip = direction ? -1 : at, .mask = (uint8_t)(1 << bit)};
                wire down = {.flip = direction ? at : -1, .mask = (uint8_t)(1 << bit)};
                pair(&client, &server);
                bool version = at >= 8 && at < 12;
                CHECK_EQ(version ? GW_MISMATCH : GW_DENIED, run(&client, &server, &up, &down, ALL));
                CHECK(!both_done(&client, &server));
                if (!direction) CHECK(!gw_auth_done(&server));
                else CHECK(!gw_auth_done(&client));
            }
}

/* A stranger gives a side its own words back, or those of another connection. */
static void reflection_and_replay(void) {
    gw_auth client, server, again;
    wire up = {.flip = -1}, down = {.flip = -1};
    size_t count;
    pair(&client, &server);
    CHECK_EQ(GW_OK, run(&client, &server, &up, &down, ALL));
    CHECK(both_done(&client, &server));
    begin(&again, true, identity_of(1), &server_intro);
    CHECK_EQ(GW_OK, gw_auth_take(&again, up.said, GW_AUTH_HELLO_BYTES));
    CHECK_EQ(GW_DENIED, gw_auth_take(&again, up.said + GW_AUTH_HELLO_BYTES, GW_AUTH_CLIENT_BYTES));
    begin(&again, false, identity_of(0), &client_intro);
    CHECK_EQ(GW_OK, gw_auth_take(&again, down.said, GW_AUTH_HELLO_BYTES));
    CHECK_EQ(GW_DENIED, gw_auth_take(&again, down.said + GW_AUTH_HELLO_BYTES, GW_AUTH_SERVER_BYTES));

    gw_auth alone; /* a client to which its own words are given back */
    uint8_t echo[GW_AUTH_OUT_MAX], reply[GW_AUTH_SERVER_BYTES] = {1};
    begin(&alone, false, identity_of(0), &client_intro);
    memcpy(echo, gw_auth_output(&alone, &count), GW_AUTH_HELLO_BYTES);
    gw_auth_sent(&alone, count);
    CHECK_EQ(GW_OK, gw_auth_take(&alone, echo, GW_AUTH_HELLO_BYTES));
    memcpy(reply + 1, gw_auth_output(&alone, &count), GW_AUTH_CLIENT_BYTES);
    CHECK_EQ(GW_DENIED, gw_auth_take(&alone, reply, sizeof reply));
}

/* A member of the job that talks nonsense is not a stranger, but is refused too. */
static void introductions_are_checked(void) {
    static const gw_intro nonsense[] = {
        {.purpose = 0, .from = 1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSES, .from = 1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 2, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = -1, .to = 0, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 1, .to = -1, .world = 2},
        {.purpose = GW_PURPOSE_JOIN, .from = 0, .to = 0, .world = 0},
        {.purpose = GW_PURPOSE_JOIN, .from = 0, .to = 0, .world = GW_WORLD_MAX + 1},
        {.purpose = GW_PURPOSE_DATA, .from = 1, .to = 0, .world = 2, .stream = GW_STREAM_MAX},
        {.purpose = GW_PURPOSE_DATA, .from = 1, .to = 0, .world = 2, .security = GW_SECURITIES},
        {.purpose = GW_PURPOSE_DATA, .from = 1, .to = 0, .world = 2, .asked = GW_SECURITY_CHOICES},
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        gw_auth client, server;
        begin(&client, false, identity_of(0), &nonsense[i]);
        begin(&server, true, identity_of(1), &server_intro);
        CHECK_EQ(GW_PROTOCOL, run_whole(&client, &server));
        CHECK_EQ(GW_AUTH_FAILED, server.state);
    }
}

static void agreements(void) {
    gw_key_pair a, b;
    uint8_t zero[GW_KEY_BYTES] = {0}, at_a[GW_KEY_BYTES], at_b[GW_KEY_BYTES];
    CHECK(gw_key_pair_make(&a) && gw_key_pair_make(&b));
    CHECK(gw_key_agree(&a, b.public_key, at_a) && gw_key_agree(&b, a.public_key, at_b));
    CHECK(memcmp(at_a, at_b, sizeof at_a) == 0);
    CHECK(!gw_key_agree(&a, zero, at_a));
}

TEST_MAIN(CASE(ranks_with_the_token_connect), CASE(traffic_keys), CASE(strangers_learn_nothing),
          CASE(wrong_token_or_job), CASE(a_rank_without_its_key), CASE(keys_of_small_order), CASE(other_versions),
          CASE(truncation_never_finishes), CASE(every_flipped_bit_is_noticed), CASE(reflection_and_replay),
          CASE(introductions_are_checked), CASE(agreements))
