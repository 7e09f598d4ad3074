/* connection_manager.c - see connection_manager.h: listeners, half-open connections, handlers, and connections that
 * wait for a handler. dial.c dials. */
#include "bootstrap/connection_manager.h"

#include "base/fork_descriptors.h"
#include "base/log.h"
#include "bootstrap/connection_manager_internal.h"
#include "bootstrap/listen.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define EVENTS_PER_POLL 64
#define ACCEPTS_PER_POLL 64                 /* then connections already accepted get their turn */
#define ACCEPT_PAUSE (100 * GW_MILLISECOND) /* when the process has no descriptors left */

gw_status gw_connections_open(gw_connections **connections, int rank, int world, const gw_token *token, const char *job,
                              gw_error *error) {
    gw_connections *cm = calloc(1, sizeof *cm);
    if (!cm) return gw_fail(error, GW_MEMORY, "out of memory for the connection manager");
    *cm = (gw_connections){.rank = rank, .world = world, .epoll = -1, .wake = -1, .resume = UINT64_MAX};
    cm->dial_wake = UINT64_MAX;
    pthread_mutex_init(&cm->lock, NULL);
    gw_status status = gw_auth_key(token, job, cm->identity.key, error);
    if (status == GW_OK && !gw_key_pair_make(&cm->identity.pair))
        status = gw_fail(error, GW_SYSTEM, "libcrypto cannot make an X25519 key: check its installation");
    if (status != GW_OK) goto fail;
    cm->epoll = gw_fd_register(epoll_create1(EPOLL_CLOEXEC));
    cm->wake = gw_fd_register(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &cm->wake};
    if (cm->epoll < 0 || cm->wake < 0 || epoll_ctl(cm->epoll, EPOLL_CTL_ADD, cm->wake, &event) != 0) {
        status =
            gw_fail(error, GW_SYSTEM, "cannot make the connection manager's epoll and eventfd: %s", strerror(errno));
        goto fail;
    }
    *connections = cm;
    return GW_OK;
fail:
    gw_connections_close(cm);
    return status;
}

static void free_parked(parked *waits) {
    OPENSSL_cleanse(waits, sizeof *waits);
    free(waits);
}

static void forget_half_open(gw_connections *cm, gw_handshake *hs) {
    if (hs->older) hs->older->newer = hs->newer;
    else cm->oldest = hs->newer;
    if (hs->newer) hs->newer->older = hs->older;
    else cm->newest = hs->older;
    cm->half_open--;
}

void gw_connections_close(gw_connections *cm) {
    if (!cm) return;
    gw_dials_close(cm);
    while (cm->oldest) {
        gw_handshake *hs = cm->oldest;
        forget_half_open(cm, hs);
        gw_handshake_close(hs);
    }
    while (cm->parked) {
        parked *next = cm->parked->next;
        gw_fd_close(cm->parked->fd);
        free_parked(cm->parked);
        cm->parked = next;
    }
    free(cm->trusted);
    for (int i = 0; i < cm->listeners; i++) gw_fd_close(cm->listener[i].fd);
    gw_fd_close(cm->wake);
    gw_fd_close(cm->epoll);
    pthread_mutex_destroy(&cm->lock);
    OPENSSL_cleanse(cm, sizeof *cm);
    free(cm);
}

/* On failure fd stays the caller's. */
static gw_status add_listener(gw_connections *cm, int fd, const gw_address *bound, gw_error *error) {
    if (cm->listeners == GW_CONNECTIONS_LISTENERS_MAX)
        return gw_fail(error, GW_INVALID, "a connection manager has at most %d listeners",
                       GW_CONNECTIONS_LISTENERS_MAX);
    listener *slot = &cm->listener[cm->listeners];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot};
    if (epoll_ctl(cm->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return gw_fail(error, GW_SYSTEM, "cannot watch a listening socket: %s", strerror(errno));
    *slot = (listener){.fd = gw_fd_register(fd), .address = *bound};
    cm->listeners++;
    return GW_OK;
}

gw_status gw_connections_listen(gw_connections *cm, const gw_address *address, int low, int high, gw_error *error) {
    int fd;
    gw_address bound;
    gw_status status = gw_listen_open(address, low, high, &fd, &bound, error);
    if (status != GW_OK) return status;
    status = add_listener(cm, fd, &bound, error);
    if (status != GW_OK) gw_fd_close(fd);
    return status;
}

gw_status gw_connections_adopt(gw_connections *cm, int fd, int low, int high, gw_error *error) {
    gw_address bound;
    gw_status status = gw_listen_adopt(fd, low, high, &bound, error);
    return status == GW_OK ? add_listener(cm, fd, &bound, error) : status;
}

const gw_address *gw_connections_address(const gw_connections *cm, int n) {
    return n < cm->listeners ? &cm->listener[n].address : NULL;
}

void gw_connections_ask(gw_connections *cm, gw_security_choice asked) { cm->security = asked; }
gw_security_choice gw_connections_asked(const gw_connections *cm) { return cm->security; }
const uint8_t *gw_connections_public_key(const gw_connections *cm) { return cm->identity.pair.public_key; }

gw_status gw_connections_trust(gw_connections *cm, const uint8_t (*public_keys)[GW_KEY_BYTES], int world,
                               gw_error *error) {
    uint8_t(*copy)[GW_KEY_BYTES] = malloc((size_t)world * sizeof *copy);
    if (!copy) return gw_fail(error, GW_MEMORY, "out of memory for the keys of %d ranks", world);
    memcpy(copy, public_keys, (size_t)world * sizeof *copy);
    free(cm->trusted);
    cm->trusted = copy;
    cm->trusted_count = world;
    return GW_OK;
}

void gw_connections_wake(gw_connections *cm) {
    uint64_t one = 1;
    ssize_t written = write(cm->wake, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the poller wakes anyway */
}

void gw_connections_serve(gw_connections *cm, gw_purpose purpose, const gw_connection_handler *handler) {
    cm->served[purpose] = handler != NULL;
    cm->shut[purpose] = false;
    if (handler) cm->handlers[purpose] = *handler;
    if (cm->parked) gw_connections_wake(cm);
}

void gw_connections_refuse(gw_connections *cm, gw_purpose purpose) {
    cm->served[purpose] = false;
    cm->shut[purpose] = true;
    if (cm->parked) gw_connections_wake(cm);
}

/* A rendezvous is how ranks tell their keys, so it cannot be checked by them. */
bool gw_connections_pose(const gw_connections *cm, const gw_intro *peer) {
    if (peer->purpose == GW_PURPOSE_JOIN || !cm->trusted) return false;
    return peer->from >= cm->trusted_count || memcmp(cm->trusted[peer->from], peer->public_key, GW_KEY_BYTES) != 0;
}

void gw_connections_deliver(gw_connections *cm, const gw_intro *peer, int fd, bool dialled,
                            const gw_traffic_keys *keys) {
    if (gw_connections_pose(cm, peer)) {
        gw_log(GW_LOG_WARN, cm->rank, "a process that knows the job's token, but not rank %d's own key, posed as it",
               peer->from);
        gw_fd_close(fd);
        return;
    }
    if (cm->served[peer->purpose]) {
        const gw_connection_handler *handler = &cm->handlers[peer->purpose];
        handler->established(handler->ctx, peer, fd, dialled, keys);
        return;
    }
    parked *waits = cm->shut[peer->purpose] ? NULL : calloc(1, sizeof *waits);
    if (!waits) {
        gw_fd_close(fd);
        return;
    }
    *waits = (parked){.peer = *peer, .keys = *keys, .fd = fd, .dialled = dialled};
    parked **end = &cm->parked;
    while (*end) end = &(*end)->next;
    *end = waits;
}

static void deliver_parked(gw_connections *cm) {
    parked *list = cm->parked;
    cm->parked = NULL;
    while (list) {
        parked *next = list->next;
        gw_connections_deliver(cm, &list->peer, list->fd, list->dialled, &list->keys);
        free_parked(list);
        list = next;
    }
}

static void refuse(gw_connections *cm, gw_handshake *hs, const char *why) {
    cm->strangers++;
    cm->last_stranger = hs->peer;
    cm->last_reason = why;
    forget_half_open(cm, hs);
    gw_handshake_close(hs);
}

static void log_strangers(gw_connections *cm, gw_time now) {
    if (cm->strangers == cm->strangers_logged || now < cm->next_log) return;
    char where[GW_ADDRESS_TEXT];
    gw_log(GW_LOG_INFO, cm->rank, "refused %llu connections of strangers, the last from %s: %s",
           (unsigned long long)(cm->strangers - cm->strangers_logged), gw_address_text(&cm->last_stranger, where),
           cm->last_reason);
    cm->strangers_logged = cm->strangers;
    cm->next_log = now + GW_SECOND;
}

static void pump_accepted(gw_connections *cm, gw_handshake *hs) {
    gw_status status;
    const char *why;
    gw_handshake_verdict verdict = gw_handshake_pump(hs, &status, &why);
    if (verdict == GW_HANDSHAKE_WAITS) return;
    if (verdict == GW_HANDSHAKE_BROKEN) {
        refuse(cm, hs, why);
        return;
    }
    gw_intro peer = hs->auth.peer;
    gw_traffic_keys keys = hs->auth.keys;
    forget_half_open(cm, hs);
    int fd = gw_handshake_release(hs);
    if (peer.to == cm->rank) gw_connections_deliver(cm, &peer, fd, false, &keys);
    else gw_fd_close(fd); /* the peer knows from our introduction which rank this is */
    OPENSSL_cleanse(&keys, sizeof keys);
}

/* Strangers get a quarter of the descriptors, so that files, peers and libraries find some. */
static int half_open_max(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= 4 * GW_CONNECTIONS_HALF_OPEN_MAX)
        return GW_CONNECTIONS_HALF_OPEN_MAX;
    return files.rlim_cur >= 8 ? (int)files.rlim_cur / 4 : 1;
}

static void admit(gw_connections *cm, int fd, const gw_address *from, gw_time now) {
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    gw_intro mine = {.from = cm->rank, .world = cm->world, .asked = cm->security};
    if (cm->half_open >= half_open_max()) refuse(cm, cm->oldest, "too many had not proved themselves");
    gw_handshake *hs = gw_handshake_open(cm->epoll, fd, from, false);
    if (!hs) return;
    if (!gw_auth_nonce(nonce)) {
        gw_handshake_close(hs);
        return;
    }
    gw_auth_begin(&hs->auth, true, &cm->identity, nonce, &mine);
    hs->deadline = now + GW_CONNECTIONS_AUTH_TIMEOUT;
    hs->older = cm->newest;
    if (cm->newest) cm->newest->newer = hs;
    else cm->oldest = hs;
    cm->newest = hs;
    cm->half_open++;
}

static void watch_listeners(gw_connections *cm, uint32_t events) {
    for (int i = 0; i < cm->listeners; i++) {
        struct epoll_event event = {.events = events, .data.ptr = &cm->listener[i]};
        epoll_ctl(cm->epoll, EPOLL_CTL_MOD, cm->listener[i].fd, &event);
    }
}

void gw_connections_note_starved(gw_connections *cm) {
    if (!cm->starved)
        gw_log(GW_LOG_WARN, cm->rank, "no descriptor is left for connections with other ranks: raise ulimit -n");
    cm->starved = true;
}

/* Out of descriptors: drops the oldest half-open connection; if there is none, accepting pauses for a moment. */
static void free_descriptor(gw_connections *cm, gw_time now) {
    gw_connections_note_starved(cm);
    if (cm->oldest) {
        refuse(cm, cm->oldest, "no file descriptors are left");
        return;
    }
    watch_listeners(cm, 0);
    cm->resume = now + ACCEPT_PAUSE;
}

static void accept_some(gw_connections *cm, listener *from, gw_time now) {
    for (int i = 0; i < ACCEPTS_PER_POLL; i++) {
        gw_address peer;
        socklen_t length = sizeof peer;
        memset(&peer, 0, sizeof peer);
        bool blocked = gw_fork_block();
        int fd = gw_fd_register(accept4(from->fd, &peer.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK)), why = errno;
        gw_fork_unblock(blocked);
        if (fd >= 0) {
            admit(cm, fd, &peer, now);
        } else if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
            free_descriptor(cm, now);
            return;
        } else if (why == EAGAIN || why == EWOULDBLOCK) {
            return;
        }
    }
}

static bool is_listener(const gw_connections *cm, const void *tag) {
    return tag >= (const void *)cm->listener && tag < (const void *)(cm->listener + GW_CONNECTIONS_LISTENERS_MAX);
}

/* Handshakes first: each touches only itself, so no event can be stale. Accepting may drop others, so it comes last. */
static bool handle_events(gw_connections *cm, gw_time now) {
    struct epoll_event events[EVENTS_PER_POLL];
    int count = epoll_wait(cm->epoll, events, EVENTS_PER_POLL, 0);
    for (int i = 0; i < count; i++) {
        void *tag = events[i].data.ptr;
        if (is_listener(cm, tag)) continue;
        if (tag == &cm->wake) {
            uint64_t wakes;
            ssize_t got = read(cm->wake, &wakes, sizeof wakes);
            (void)got; /* the queues are checked anyway */
        } else {
            gw_handshake *hs = tag;
            if (hs->dial) gw_dial_pump(cm, hs, now);
            else pump_accepted(cm, hs);
        }
    }
    for (int i = 0; i < count; i++)
        if (is_listener(cm, events[i].data.ptr)) accept_some(cm, events[i].data.ptr, now);
    return count > 0;
}

bool gw_connections_poll(gw_connections *cm, gw_time now) {
    bool moved = handle_events(cm, now);
    while (cm->oldest && now >= cm->oldest->deadline) {
        refuse(cm, cm->oldest, "it did not prove itself in time");
        moved = true;
    }
    if (now >= cm->resume) {
        cm->resume = UINT64_MAX;
        watch_listeners(cm, EPOLLIN);
    }
    if (cm->parked) deliver_parked(cm);
    moved |= gw_dials_serve(cm, now);
    log_strangers(cm, now);
    return moved;
}

int gw_connections_fd(const gw_connections *cm) { return cm->epoll; }

gw_time gw_connections_next_deadline(const gw_connections *cm) {
    gw_time next = cm->dial_wake < cm->resume ? cm->dial_wake : cm->resume;
    return cm->oldest && cm->oldest->deadline < next ? cm->oldest->deadline : next;
}

gw_status gw_connections_derive_key(const gw_connections *connections, const char *label,
                                    uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error) {
    return gw_auth_derive(connections->identity.key, label, key, error);
}

int gw_connections_rank(const gw_connections *cm) { return cm->rank; }
bool gw_connections_starved(const gw_connections *cm) { return cm->starved; }
uint64_t gw_connections_strangers(const gw_connections *cm) { return cm->strangers; }
