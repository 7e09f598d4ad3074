/* dial.c - outgoing connections: tries each address in turn, pauses after each pass over the list, until the
 * deadline. */
#include "base/fork_descriptors.h"
#include "base/log.h"
#include "bootstrap/connection_manager_internal.h"
#include "bootstrap/listen.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN (5 * GW_MILLISECOND)
#define PAUSE_MAX (250 * GW_MILLISECOND)
#define REFUSALS 4 /* in a row are a proof, after 35 ms: one may be forged, or of a firewall that starts */

/* Failures, the least informative first; the dial reports the most informative one that occurred. */
typedef enum failure { FAILED_UNREACHED, FAILED_BROKEN, FAILED_OTHER_RANK, FAILED_DENIED, FAILED_REFUSED } failure;

struct gw_dial {
    gw_intro mine;
    gw_time deadline, wake;  /* wake: when it must be looked at again */
    gw_time pause;           /* before the next pass */
    gw_handshake *handshake; /* of the attempt under way, NULL between attempts */
    bool over;               /* its callback was called; to be freed */
    bool again;              /* gw_connections_dial_again: refusals are a proof */
    int refusals;            /* in a row */
    gw_status status;        /* of the failure that explains most, and its text: */
    failure kind;
    char detail[192];
    gw_dial *next;
    int count, at; /* of candidates; at: the one that is tried now or next */
    gw_address candidates[];
};

static gw_status dial(gw_connections *cm, const gw_address *addresses, int count, const gw_intro *mine,
                      gw_time deadline, bool again, gw_error *error) {
    if (count < 1 || count > GW_DIAL_CANDIDATES_MAX)
        return gw_fail(error, GW_INVALID, "a dial takes 1 to %d addresses, not %d", GW_DIAL_CANDIDATES_MAX, count);
    gw_dial *dial = calloc(1, sizeof *dial + (size_t)count * sizeof addresses[0]);
    if (!dial) return gw_fail(error, GW_MEMORY, "out of memory for a connection to rank %d", mine->to);
    *dial = (gw_dial){.mine = *mine, .deadline = deadline, .pause = PAUSE_MIN, .count = count, .status = GW_TIMEOUT,
                      .again = again};
    dial->mine.asked = cm->security;
    memcpy(dial->candidates, addresses, (size_t)count * sizeof addresses[0]);
    snprintf(dial->detail, sizeof dial->detail, "there was no time to try");
    pthread_mutex_lock(&cm->lock);
    dial->next = cm->asked;
    cm->asked = dial;
    pthread_mutex_unlock(&cm->lock);
    gw_connections_wake(cm);
    return GW_OK;
}

gw_status gw_connections_dial(gw_connections *cm, const gw_address *addresses, int count, const gw_intro *mine,
                              gw_time deadline, gw_error *error) {
    return dial(cm, addresses, count, mine, deadline, false, error);
}

gw_status gw_connections_dial_again(gw_connections *cm, const gw_address *address, const gw_intro *mine,
                                    gw_time deadline, gw_error *error) {
    return dial(cm, address, 1, mine, deadline, true, error);
}

static void wake_at(gw_connections *cm, gw_dial *dial, gw_time when) {
    dial->wake = when < dial->deadline ? when : dial->deadline;
    if (dial->wake < cm->dial_wake) cm->dial_wake = dial->wake;
}

static void end_dial(gw_connections *cm, gw_dial *dial) {
    dial->over = true;
    cm->dial_wake = 0; /* to be freed soon */
}

static void give_up(gw_connections *cm, gw_dial *dial) {
    const gw_connection_handler *handler = &cm->handlers[dial->mine.purpose];
    end_dial(cm, dial);
    if (cm->served[dial->mine.purpose] && handler->failed)
        handler->failed(handler->ctx, &dial->mine, dial->status, dial->detail);
    else gw_log(GW_LOG_INFO, cm->rank, "cannot reach rank %d: %s", dial->mine.to, dial->detail);
}

static void note(gw_dial *dial, failure kind, gw_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void note(gw_dial *dial, failure kind, gw_status status, const char *format, ...) {
    if (kind < dial->kind) return;
    dial->kind = kind;
    dial->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(dial->detail, sizeof dial->detail, format, args);
    va_end(args);
}

static void next_attempt(gw_connections *cm, gw_dial *dial, gw_time now) {
    dial->at = (dial->at + 1) % dial->count;
    if (dial->at != 0) {
        wake_at(cm, dial, now);
        return;
    }
    wake_at(cm, dial, now + dial->pause);
    dial->pause = dial->pause * 2 < PAUSE_MAX ? dial->pause * 2 : PAUSE_MAX;
}

/* The handshake is closed already. */
static void attempt_failed(gw_connections *cm, gw_dial *dial, gw_time now) {
    if (dial->kind >= FAILED_DENIED && dial->count == 1) give_up(cm, dial);
    else next_attempt(cm, dial, now);
}

static gw_handshake *connect_to(gw_connections *cm, gw_dial *dial, bool *refused, const char **why) {
    int fd;
    const gw_address *to = &dial->candidates[dial->at];
    bool blocked = gw_fork_block();
    int code = gw_connect_begin(to, &fd);
    *refused = code == ECONNREFUSED;
    if (code == EMFILE || code == ENFILE) gw_connections_note_starved(cm);
    gw_fd_register(fd);
    gw_fork_unblock(blocked);
    *why = code == EMFILE   ? "this process has no descriptors left: raise ulimit -n"
           : code == ENFILE ? "this host has no descriptors left: raise fs.file-max"
           : code           ? strerrordesc_np(code)
                            : "out of memory";
    return code ? NULL : gw_handshake_open(cm->epoll, fd, to, true);
}

static void note_unreached(gw_dial *dial, bool refused, const char *where, const char *why) {
    dial->refusals = refused ? dial->refusals + 1 : 0;
    if (dial->again && dial->refusals >= REFUSALS) note(dial, FAILED_REFUSED, GW_PEER_LOST, "%s: %s", where, why);
    else note(dial, FAILED_UNREACHED, GW_TIMEOUT, "%s: %s", where, why);
}

static void attempt(gw_connections *cm, gw_dial *dial, gw_time now) {
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    char where[GW_ADDRESS_TEXT];
    const char *why = "libcrypto has no random bytes";
    bool refused = false;
    gw_handshake *hs = gw_auth_nonce(nonce) ? connect_to(cm, dial, &refused, &why) : NULL;
    if (!hs) {
        note_unreached(dial, refused, gw_address_text(&dial->candidates[dial->at], where), why);
        attempt_failed(cm, dial, now);
        return;
    }
    gw_auth_begin(&hs->auth, false, &cm->identity, nonce, &dial->mine);
    hs->dial = dial;
    dial->handshake = hs;
    /* With several addresses, a silent one must not keep us from the others. */
    wake_at(cm, dial, dial->count == 1 ? dial->deadline : now + GW_CONNECTIONS_AUTH_TIMEOUT);
}

static void attempt_took_too_long(gw_connections *cm, gw_dial *dial, gw_time now) {
    char where[GW_ADDRESS_TEXT];
    gw_address_text(&dial->handshake->peer, where);
    if (dial->handshake->connecting) note(dial, FAILED_UNREACHED, GW_TIMEOUT, "%s does not answer", where);
    else note(dial, FAILED_BROKEN, GW_TIMEOUT, "%s accepted the connection but did not answer the handshake", where);
    gw_handshake_close(dial->handshake);
    dial->handshake = NULL;
    attempt_failed(cm, dial, now);
}

static void established(gw_connections *cm, gw_dial *dial, gw_handshake *hs, gw_time now) {
    gw_intro peer = hs->auth.peer;
    if (peer.from != dial->mine.to) {
        char where[GW_ADDRESS_TEXT];
        note(dial, FAILED_OTHER_RANK, GW_PROTOCOL, "%s is rank %d of %d, not rank %d",
             gw_address_text(&hs->peer, where), peer.from, peer.world, dial->mine.to);
        gw_handshake_close(hs);
        attempt_failed(cm, dial, now);
        return;
    }
    if (gw_connections_pose(cm, &peer)) {
        char where[GW_ADDRESS_TEXT];
        note(dial, FAILED_DENIED, GW_DENIED, "%s knows the job's token, but poses as rank %d without that rank's key",
             gw_address_text(&hs->peer, where), peer.from);
        gw_handshake_close(hs);
        attempt_failed(cm, dial, now);
        return;
    }
    gw_traffic_keys keys = hs->auth.keys;
    end_dial(cm, dial);
    gw_connections_deliver(cm, &peer, gw_handshake_release(hs), true, &keys);
    OPENSSL_cleanse(&keys, sizeof keys);
}

void gw_dial_pump(gw_connections *cm, gw_handshake *hs, gw_time now) {
    gw_dial *dial = hs->dial;
    gw_status status;
    const char *why;
    gw_handshake_verdict verdict = gw_handshake_pump(hs, &status, &why);
    if (verdict == GW_HANDSHAKE_WAITS) return;
    dial->handshake = NULL;
    if (verdict == GW_HANDSHAKE_DONE) {
        established(cm, dial, hs, now);
        return;
    }
    char where[GW_ADDRESS_TEXT];
    gw_address_text(&hs->peer, where);
    if (!hs->connecting) dial->refusals = 0;
    if (status == GW_DENIED || status == GW_MISMATCH) note(dial, FAILED_DENIED, status, "%s: %s", where, why);
    else if (hs->connecting) note_unreached(dial, hs->refused, where, why);
    else note(dial, FAILED_BROKEN, GW_TIMEOUT, "%s: %s", where, why);
    gw_handshake_close(hs);
    attempt_failed(cm, dial, now);
}

static void take_asked(gw_connections *cm) {
    pthread_mutex_lock(&cm->lock);
    gw_dial *asked = cm->asked;
    cm->asked = NULL;
    pthread_mutex_unlock(&cm->lock);
    while (asked) {
        gw_dial *next = asked->next;
        asked->next = cm->dials;
        cm->dials = asked;
        cm->dial_wake = 0;
        asked = next;
    }
}

static void serve(gw_connections *cm, gw_dial *dial, gw_time now) {
    if (dial->wake > now) {
        if (dial->wake < cm->dial_wake) cm->dial_wake = dial->wake;
        return;
    }
    if (dial->handshake) attempt_took_too_long(cm, dial, now);
    if (dial->over) return;
    if (now >= dial->deadline) give_up(cm, dial);
    else if (!dial->handshake && dial->wake <= now) attempt(cm, dial, now);
    else if (dial->wake < cm->dial_wake) cm->dial_wake = dial->wake;
}

static void sweep(gw_connections *cm) {
    for (gw_dial **at = &cm->dials; *at;) {
        gw_dial *dial = *at;
        if (dial->over) {
            *at = dial->next;
            free(dial);
        } else {
            at = &dial->next;
        }
    }
}

bool gw_dials_serve(gw_connections *cm, gw_time now) {
    take_asked(cm);
    if (now < cm->dial_wake) return false;
    cm->dial_wake = UINT64_MAX;
    for (gw_dial *dial = cm->dials; dial; dial = dial->next)
        if (!dial->over) serve(cm, dial, now);
    sweep(cm);
    return true;
}

void gw_dials_close(gw_connections *cm) {
    take_asked(cm);
    for (gw_dial *dial = cm->dials; dial; dial = dial->next) {
        if (dial->handshake) gw_handshake_close(dial->handshake);
        dial->over = true;
    }
    sweep(cm);
}
