/* dial.c - the gateway's way out: attempts at each address in turn, a pause after each round, until the deadline. */
#include "base/descriptor.h"
#include "base/log.h"
#include "transport/gateway_inside.h"
#include "transport/listen.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN (5 * GW_MILLISECOND)
#define PAUSE_MAX (250 * GW_MILLISECOND)

/* How much a failure tells; the most telling is what is reported in the end. */
typedef enum telling { SAYS_UNREACHED, SAYS_BROKEN, SAYS_OTHER_RANK, SAYS_DENIED, SAYS_REFUSED } telling;

struct gw_dial {
    gw_intro mine;
    gw_time deadline, wake; /* wake: when it must be looked at again */
    gw_time pause;          /* before the next round */
    gw_link *link;          /* of the attempt under way, NULL between attempts */
    bool over;              /* its callback was called; to be swept */
    bool again;             /* gw_gateway_dial_again: a refusal is final */
    gw_status status;       /* of the most telling failure, and in words: */
    telling told;
    char detail[192];
    gw_dial *next;
    int count, at; /* of candidates; at: the one to be tried next or now */
    gw_address candidates[];
};

static gw_status dial(gw_gateway *g, const gw_address *addresses, int count, const gw_intro *mine, gw_time deadline,
                      bool again, gw_error *error) {
    if (count < 1 || count > GW_DIAL_CANDIDATES_MAX)
        return gw_fail(error, GW_INVALID, "a dial takes 1 to %d addresses, not %d", GW_DIAL_CANDIDATES_MAX, count);
    gw_dial *dial = calloc(1, sizeof *dial + (size_t)count * sizeof addresses[0]);
    if (!dial) return gw_fail(error, GW_MEMORY, "out of memory for a connection to rank %d", mine->to);
    *dial = (gw_dial){.mine = *mine, .deadline = deadline, .pause = PAUSE_MIN, .count = count, .status = GW_TIMEOUT,
                      .again = again};
    memcpy(dial->candidates, addresses, (size_t)count * sizeof addresses[0]);
    snprintf(dial->detail, sizeof dial->detail, "there was no time to try");
    pthread_mutex_lock(&g->lock);
    dial->next = g->asked;
    g->asked = dial;
    pthread_mutex_unlock(&g->lock);
    gw_gateway_kick(g);
    return GW_OK;
}

gw_status gw_gateway_dial(gw_gateway *g, const gw_address *addresses, int count, const gw_intro *mine, gw_time deadline,
                          gw_error *error) {
    return dial(g, addresses, count, mine, deadline, false, error);
}

gw_status gw_gateway_dial_again(gw_gateway *g, const gw_address *address, const gw_intro *mine, gw_time deadline,
                                gw_error *error) {
    return dial(g, address, 1, mine, deadline, true, error);
}

static void wake_at(gw_gateway *g, gw_dial *dial, gw_time when) {
    dial->wake = when < dial->deadline ? when : dial->deadline;
    if (dial->wake < g->dial_wake) g->dial_wake = dial->wake;
}

static void end_dial(gw_gateway *g, gw_dial *dial) {
    dial->over = true;
    g->dial_wake = 0; /* to be swept soon */
}

static void give_up(gw_gateway *g, gw_dial *dial) {
    const gw_gateway_room *room = &g->room[dial->mine.purpose];
    end_dial(g, dial);
    if (g->served[dial->mine.purpose] && room->failed)
        room->failed(room->ctx, &dial->mine, dial->status, dial->detail);
    else
        gw_log(GW_LOG_INFO, g->rank, "cannot reach rank %d: %s", dial->mine.to, dial->detail);
}

static void note(gw_dial *dial, telling told, gw_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void note(gw_dial *dial, telling told, gw_status status, const char *format, ...) {
    if (told < dial->told) return;
    dial->told = told;
    dial->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(dial->detail, sizeof dial->detail, format, args);
    va_end(args);
}

static void next_attempt(gw_gateway *g, gw_dial *dial, gw_time now) {
    dial->at = (dial->at + 1) % dial->count;
    if (dial->at != 0) {
        wake_at(g, dial, now);
        return;
    }
    wake_at(g, dial, now + dial->pause);
    dial->pause = dial->pause * 2 < PAUSE_MAX ? dial->pause * 2 : PAUSE_MAX;
}

/* The link is gone already. */
static void attempt_failed(gw_gateway *g, gw_dial *dial, gw_time now) {
    if (dial->told >= SAYS_DENIED && dial->count == 1)
        give_up(g, dial);
    else
        next_attempt(g, dial, now);
}

static gw_link *connect_to(gw_gateway *g, gw_dial *dial, bool *refused, const char **why) {
    int fd;
    const gw_address *to = &dial->candidates[dial->at];
    bool held = gw_fd_hold();
    int code = gw_connect_begin(to, &fd);
    *refused = code == ECONNREFUSED;
    gw_fd_keep(fd);
    gw_fd_let_go(held);
    *why = code ? strerrordesc_np(code) : "out of memory or descriptors";
    return code ? NULL : gw_link_open(g->epoll, fd, to, true);
}

static void note_unreached(gw_dial *dial, bool refused, const char *where, const char *why) {
    if (refused && dial->again) note(dial, SAYS_REFUSED, GW_PEER_LOST, "%s: %s", where, why);
    else note(dial, SAYS_UNREACHED, GW_TIMEOUT, "%s: %s", where, why);
}

static void attempt(gw_gateway *g, gw_dial *dial, gw_time now) {
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    char where[GW_ADDRESS_TEXT];
    const char *why = "libcrypto has no random bytes";
    bool refused = false;
    gw_link *link = gw_auth_nonce(nonce) ? connect_to(g, dial, &refused, &why) : NULL;
    if (!link) {
        note_unreached(dial, refused, gw_address_text(&dial->candidates[dial->at], where), why);
        attempt_failed(g, dial, now);
        return;
    }
    gw_auth_begin(&link->auth, false, g->key, nonce, &dial->mine);
    link->dial = dial;
    dial->link = link;
    /* Where there are several addresses one that is silent must not keep us from the others. */
    wake_at(g, dial, dial->count == 1 ? dial->deadline : now + GW_GATEWAY_PATIENCE);
}

static void attempt_took_too_long(gw_gateway *g, gw_dial *dial, gw_time now) {
    char where[GW_ADDRESS_TEXT];
    gw_address_text(&dial->link->peer, where);
    if (dial->link->connecting)
        note(dial, SAYS_UNREACHED, GW_TIMEOUT, "%s does not answer", where);
    else
        note(dial, SAYS_BROKEN, GW_TIMEOUT, "%s accepted the connection but did not answer the handshake", where);
    gw_link_close(dial->link);
    dial->link = NULL;
    attempt_failed(g, dial, now);
}

static void established(gw_gateway *g, gw_dial *dial, gw_link *link, gw_time now) {
    gw_intro peer = link->auth.peer;
    if (peer.from != dial->mine.to) {
        char where[GW_ADDRESS_TEXT];
        note(dial, SAYS_OTHER_RANK, GW_PROTOCOL, "%s is rank %d of %d, not rank %d",
             gw_address_text(&link->peer, where), peer.from, peer.world, dial->mine.to);
        gw_link_close(link);
        attempt_failed(g, dial, now);
        return;
    }
    end_dial(g, dial);
    gw_gateway_deliver(g, &peer, gw_link_release(link), true);
}

void gw_dial_pump(gw_gateway *g, gw_link *link, gw_time now) {
    gw_dial *dial = link->dial;
    gw_status status;
    const char *why;
    gw_link_verdict verdict = gw_link_pump(link, &status, &why);
    if (verdict == GW_LINK_WAITS) { /* one that has proved itself is worth waiting for */
        if (link->auth.state == GW_AUTH_INTRO) dial->wake = dial->deadline;
        return;
    }
    dial->link = NULL;
    if (verdict == GW_LINK_DONE) {
        established(g, dial, link, now);
        return;
    }
    char where[GW_ADDRESS_TEXT];
    gw_address_text(&link->peer, where);
    if (status == GW_DENIED)
        note(dial, SAYS_DENIED, status, "%s: %s", where, why);
    else if (link->connecting)
        note_unreached(dial, link->refused, where, why);
    else
        note(dial, SAYS_BROKEN, GW_TIMEOUT, "%s: %s", where, why);
    gw_link_close(link);
    attempt_failed(g, dial, now);
}

static void take_asked(gw_gateway *g) {
    pthread_mutex_lock(&g->lock);
    gw_dial *asked = g->asked;
    g->asked = NULL;
    pthread_mutex_unlock(&g->lock);
    while (asked) {
        gw_dial *next = asked->next;
        asked->next = g->dials;
        g->dials = asked;
        g->dial_wake = 0;
        asked = next;
    }
}

static void serve(gw_gateway *g, gw_dial *dial, gw_time now) {
    if (dial->wake > now) {
        if (dial->wake < g->dial_wake) g->dial_wake = dial->wake;
        return;
    }
    if (dial->link) attempt_took_too_long(g, dial, now);
    if (dial->over) return;
    if (now >= dial->deadline)
        give_up(g, dial);
    else if (!dial->link && dial->wake <= now)
        attempt(g, dial, now);
    else if (dial->wake < g->dial_wake)
        g->dial_wake = dial->wake;
}

static void sweep(gw_gateway *g) {
    for (gw_dial **at = &g->dials; *at;) {
        gw_dial *dial = *at;
        if (dial->over) {
            *at = dial->next;
            free(dial);
        } else {
            at = &dial->next;
        }
    }
}

bool gw_dials_serve(gw_gateway *g, gw_time now) {
    take_asked(g);
    if (now < g->dial_wake) return false;
    g->dial_wake = UINT64_MAX;
    for (gw_dial *dial = g->dials; dial; dial = dial->next)
        if (!dial->over) serve(g, dial, now);
    sweep(g);
    return true;
}

void gw_dials_close(gw_gateway *g) {
    take_asked(g);
    for (gw_dial *dial = g->dials; dial; dial = dial->next) {
        if (dial->link) gw_link_close(dial->link);
        dial->over = true;
    }
    sweep(g);
}
