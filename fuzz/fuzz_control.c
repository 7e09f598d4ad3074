/* fuzz_control.c - the control plane of a world of five against any messages: none crashes it, none makes it send
 * without end, and its texts are printable. */
#include "control/control.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD = 5, DEADLINE = 1000000 };

typedef struct state {
    int sent; /* messages since the last step */
    int aborted;
    gw_control *control;
} state;

static void on_send(void *ctx, int neighbour, const gw_control_message *message) {
    state *s = ctx;
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_message again;
    if (neighbour < 0 || neighbour >= WORLD) abort();
    gw_control_write(message, bytes);
    if (gw_control_read(&again, bytes, WORLD, NULL) != GW_OK) abort();
    s->sent++;
}

static void check_text(const char *text) {
    if (!*text || strlen(text) >= GW_ERROR_TEXT_BYTES) abort();
}

static void on_aborted(void *ctx, const gw_error *error) {
    state *s = ctx;
    s->aborted++;
    if (error->status == GW_OK || error->rank < -1 || error->rank >= WORLD) abort();
    if (strlen(error->text) >= sizeof error->text) abort();
}

static void on_gone(void *ctx, int rank, bool left, const char *detail) {
    (void)ctx, (void)left, (void)detail;
    if (rank < 0 || rank >= WORLD) abort();
}

static void on_rank(void *ctx, int rank) {
    (void)ctx;
    if (rank < 1 || rank >= WORLD) abort();
}

static void on_slow(void *ctx, const char *sentence) {
    (void)ctx;
    check_text(sentence);
}

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}

/* Besides messages: calls of the rank itself, and time. */
static void act(state *s, uint8_t what, gw_time now) {
    static const int all[] = {1, 2, 3, 4};
    gw_error error = {.status = GW_ABORTED, .rank = 0, .text = "enough"}, told = {.rank = -1};
    bool members[WORLD];
    switch (what % 10) {
    case 0: gw_control_waiting(s->control, all, what % 5, "something", DEADLINE, now); break;
    case 1: gw_control_waiting(s->control, NULL, 0, "", DEADLINE, now); break;
    case 2: gw_control_overdue(s->control, all, what % 5, "something", DEADLINE, now); break;
    case 3: gw_control_link_lost(s->control, 1 + what / 10 % 4, "connection reset", now); break;
    case 4: gw_control_abort(s->control, &error); break;
    case 5:
        if (gw_control_error(s->control)->status) gw_control_shrink(s->control, now + DEADLINE, now);
        break;
    case 6:
        if (gw_control_shrunk(s->control, members, &told) && told.status) check_text(told.text);
        break;
    case 7: gw_control_leave(s->control); break;
    case 8: gw_control_link_up(s->control, 1 + what / 10 % 4, now); break;
    case 9: gw_control_died(s->control, 1 + what / 10 % 4, "its port is closed", now); break;
    }
}

/* A byte says how far time goes on, one what happens besides; then a message without its fixed parts: kind, status,
 * origin, subject, generation, serial, ballot, accepted, first letters of the text. A ballot's lowest bits are its
 * proposer. The lineage is that of the first generation, or, if the serial is odd, any. */
enum { RECORD = 18 };

static void deliver(state *s, const uint8_t *data, gw_time now) {
    uint8_t bytes[GW_CONTROL_BYTES] = {'G', 'W', 'C', 'T', data[2], data[3]};
    gw_control_message message;
    gw_error error = {0};
    memset(bytes + 8, data[4] > 200 ? 0xff : 0, 8);
    bytes[8] = data[4];
    memset(bytes + 12, data[5] > 200 ? 0xff : 0, 4);
    bytes[12] = data[5];
    bytes[16] = data[6];
    bytes[20] = data[7] & 1 ? data[9] : 0;
    bytes[24] = data[7];
    bytes[32] = data[8] & 7;
    bytes[34] = data[8] >> 3;
    bytes[40] = data[9] & 7;
    bytes[42] = data[9] >> 3;
    memcpy(bytes + 48, data + 10, 8);
    if (gw_control_read(&message, bytes, WORLD, &error) != GW_OK) {
        check_text(error.text);
        return;
    }
    gw_control_receive(s->control, 1 + data[0] % 4, &message, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    state s = {0};
    gw_control_config config = {.rank = 0, .world = WORLD, .deadline = DEADLINE};
    gw_control_events events = {.ctx = &s, .send = on_send, .dial = on_rank, .aborted = on_aborted, .gone = on_gone,
                                .returned = on_rank, .slow = on_slow, .host_name = host_name};
    gw_error error = {0};
    gw_time now = 1;
    if (size >= GW_CONTROL_BYTES) { /* the reader alone, on raw bytes */
        gw_control_message message;
        if (gw_control_read(&message, data, WORLD, &error) != GW_OK) check_text(error.text);
    }
    if (gw_control_open(&s.control, &config, &events, 0, NULL) != GW_OK) return 0;
    for (; size >= RECORD; data += RECORD, size -= RECORD) {
        now += (gw_time)data[0] * DEADLINE / 256;
        s.sent = 0;
        deliver(&s, data, now);
        act(&s, data[1], now);
        gw_control_poll(s.control, now);
        if (s.sent > 200 || gw_control_next(s.control) == 0) abort();
    }
    if ((uint32_t)s.aborted > gw_control_generation(s.control) + 1) abort();
    gw_control_close(s.control);
    return 0;
}
