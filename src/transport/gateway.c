/* gateway.c - see gateway.h: listeners, the accepted half-open, rooms and those who wait for one. dial.c dials. */
#include "transport/gateway.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "transport/gateway_inside.h"
#include "transport/listen.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_PER_POLL 64
#define ACCEPTS_PER_POLL 64                 /* then those already inside get their turn */
#define ACCEPT_PAUSE (100 * GW_MILLISECOND) /* when the process has no descriptors left */

gw_status gw_gateway_open(gw_gateway **gateway, int rank, int world, const gw_token *token, const char *job,
                          gw_error *error) {
    gw_gateway *g = calloc(1, sizeof *g);
    if (!g) return gw_fail(error, GW_MEMORY, "out of memory for the gateway");
    *g = (gw_gateway){.rank = rank, .world = world, .epoll = -1, .kick = -1, .resume = UINT64_MAX};
    g->dial_wake = UINT64_MAX;
    pthread_mutex_init(&g->lock, NULL);
    gw_status status = gw_auth_key(token, job, g->key, error);
    if (status != GW_OK) goto fail;
    g->epoll = gw_fd_keep(epoll_create1(EPOLL_CLOEXEC));
    g->kick = gw_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &g->kick};
    if (g->epoll < 0 || g->kick < 0 || epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->kick, &event) != 0) {
        status = gw_fail(error, GW_SYSTEM, "cannot make the gateway's epoll and eventfd: %s", strerror(errno));
        goto fail;
    }
    *gateway = g;
    return GW_OK;
fail:
    gw_gateway_close(g);
    return status;
}

static void forget_half_open(gw_gateway *g, gw_link *link) {
    if (link->older)
        link->older->newer = link->newer;
    else
        g->oldest = link->newer;
    if (link->newer)
        link->newer->older = link->older;
    else
        g->newest = link->older;
    g->half_open--;
}

void gw_gateway_close(gw_gateway *g) {
    if (!g) return;
    gw_dials_close(g);
    while (g->oldest) {
        gw_link *link = g->oldest;
        forget_half_open(g, link);
        gw_link_close(link);
    }
    while (g->parked) {
        parked *next = g->parked->next;
        gw_fd_close(g->parked->fd);
        free(g->parked);
        g->parked = next;
    }
    for (int i = 0; i < g->listeners; i++) gw_fd_close(g->listener[i].fd);
    gw_fd_close(g->kick);
    gw_fd_close(g->epoll);
    pthread_mutex_destroy(&g->lock);
    OPENSSL_cleanse(g, sizeof *g);
    free(g);
}

/* On failure fd stays the caller's. */
static gw_status add_listener(gw_gateway *g, int fd, const gw_address *bound, gw_error *error) {
    if (g->listeners == GW_GATEWAY_LISTENERS_MAX)
        return gw_fail(error, GW_INVALID, "a gateway has at most %d listeners", GW_GATEWAY_LISTENERS_MAX);
    listener *slot = &g->listener[g->listeners];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot};
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return gw_fail(error, GW_SYSTEM, "cannot watch a listening socket: %s", strerror(errno));
    *slot = (listener){.fd = gw_fd_keep(fd), .address = *bound};
    g->listeners++;
    return GW_OK;
}

gw_status gw_gateway_listen(gw_gateway *g, const gw_address *address, int low, int high, gw_error *error) {
    int fd;
    gw_address bound;
    gw_status status = gw_listen_open(address, low, high, &fd, &bound, error);
    if (status != GW_OK) return status;
    status = add_listener(g, fd, &bound, error);
    if (status != GW_OK) gw_fd_close(fd);
    return status;
}

gw_status gw_gateway_adopt(gw_gateway *g, int fd, int low, int high, gw_error *error) {
    gw_address bound;
    gw_status status = gw_listen_adopt(fd, low, high, &bound, error);
    return status == GW_OK ? add_listener(g, fd, &bound, error) : status;
}

const gw_address *gw_gateway_address(const gw_gateway *g, int n) {
    return n < g->listeners ? &g->listener[n].address : NULL;
}

void gw_gateway_kick(gw_gateway *g) {
    uint64_t one = 1;
    ssize_t written = write(g->kick, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the kick is already felt */
}

void gw_gateway_serve(gw_gateway *g, gw_purpose purpose, const gw_gateway_room *room) {
    g->served[purpose] = room != NULL;
    g->shut[purpose] = false;
    if (room) g->room[purpose] = *room;
    if (g->parked) gw_gateway_kick(g);
}

void gw_gateway_shut(gw_gateway *g, gw_purpose purpose) {
    g->served[purpose] = false;
    g->shut[purpose] = true;
    if (g->parked) gw_gateway_kick(g);
}

void gw_gateway_deliver(gw_gateway *g, const gw_intro *peer, int fd, bool dialled) {
    if (g->served[peer->purpose]) {
        const gw_gateway_room *room = &g->room[peer->purpose];
        room->established(room->ctx, peer, fd, dialled);
        return;
    }
    parked *waits = g->shut[peer->purpose] ? NULL : calloc(1, sizeof *waits);
    if (!waits) {
        gw_fd_close(fd);
        return;
    }
    *waits = (parked){.peer = *peer, .fd = fd, .dialled = dialled};
    parked **end = &g->parked;
    while (*end) end = &(*end)->next;
    *end = waits;
}

static void deliver_parked(gw_gateway *g) {
    parked *list = g->parked;
    g->parked = NULL;
    while (list) {
        parked *next = list->next;
        gw_gateway_deliver(g, &list->peer, list->fd, list->dialled);
        free(list);
        list = next;
    }
}

static void refuse(gw_gateway *g, gw_link *link, const char *why) {
    g->strangers++;
    g->last_stranger = link->peer;
    g->last_reason = why;
    forget_half_open(g, link);
    gw_link_close(link);
}

static void log_strangers(gw_gateway *g, gw_time now) {
    if (g->strangers == g->strangers_logged || now < g->next_log) return;
    char where[GW_ADDRESS_TEXT];
    gw_log(GW_LOG_INFO, g->rank, "refused %llu connections of strangers, the last from %s: %s",
           (unsigned long long)(g->strangers - g->strangers_logged), gw_address_text(&g->last_stranger, where),
           g->last_reason);
    g->strangers_logged = g->strangers;
    g->next_log = now + GW_SECOND;
}

static void pump_accepted(gw_gateway *g, gw_link *link) {
    gw_status status;
    const char *why;
    gw_link_verdict verdict = gw_link_pump(link, &status, &why);
    if (verdict == GW_LINK_WAITS) return;
    if (verdict == GW_LINK_BROKEN) {
        refuse(g, link, why);
        return;
    }
    gw_intro peer = link->auth.peer;
    forget_half_open(g, link);
    int fd = gw_link_release(link);
    if (peer.to == g->rank)
        gw_gateway_deliver(g, &peer, fd, false);
    else
        gw_fd_close(fd); /* our answer told it who we are */
}

static void admit(gw_gateway *g, int fd, const gw_address *from, gw_time now) {
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    gw_intro mine = {.from = g->rank, .world = g->world};
    if (g->half_open >= GW_GATEWAY_HALF_OPEN_MAX) refuse(g, g->oldest, "too many had not proved themselves");
    gw_link *link = gw_link_open(g->epoll, fd, from, false);
    if (!link) return;
    if (!gw_auth_nonce(nonce)) {
        gw_link_close(link);
        return;
    }
    gw_auth_begin(&link->auth, true, g->key, nonce, &mine);
    link->deadline = now + GW_GATEWAY_PATIENCE;
    link->older = g->newest;
    if (g->newest)
        g->newest->newer = link;
    else
        g->oldest = link;
    g->newest = link;
    g->half_open++;
}

static void watch_listeners(gw_gateway *g, uint32_t events) {
    for (int i = 0; i < g->listeners; i++) {
        struct epoll_event event = {.events = events, .data.ptr = &g->listener[i]};
        epoll_ctl(g->epoll, EPOLL_CTL_MOD, g->listener[i].fd, &event);
    }
}

/* Out of descriptors: a stranger makes room; if there is none, the door stays shut for a moment. */
static void make_room(gw_gateway *g, gw_time now) {
    if (g->oldest) {
        refuse(g, g->oldest, "no file descriptors are left");
        return;
    }
    watch_listeners(g, 0);
    g->resume = now + ACCEPT_PAUSE;
}

static void accept_some(gw_gateway *g, listener *from, gw_time now) {
    for (int i = 0; i < ACCEPTS_PER_POLL; i++) {
        gw_address peer;
        socklen_t length = sizeof peer;
        memset(&peer, 0, sizeof peer);
        bool held = gw_fd_hold();
        int fd = gw_fd_keep(accept4(from->fd, &peer.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK)), why = errno;
        gw_fd_let_go(held);
        if (fd >= 0) {
            admit(g, fd, &peer, now);
        } else if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
            make_room(g, now);
            return;
        } else if (why == EAGAIN || why == EWOULDBLOCK) {
            return;
        }
    }
}

static bool is_listener(const gw_gateway *g, const void *tag) {
    return tag >= (const void *)g->listener && tag < (const void *)(g->listener + GW_GATEWAY_LISTENERS_MAX);
}

/* Links first: each touches only itself, so none of the events can be stale. Accepting may drop others, so it comes
 * after them. */
static bool handle_events(gw_gateway *g, gw_time now) {
    struct epoll_event events[EVENTS_PER_POLL];
    int count = epoll_wait(g->epoll, events, EVENTS_PER_POLL, 0);
    for (int i = 0; i < count; i++) {
        void *tag = events[i].data.ptr;
        if (is_listener(g, tag)) continue;
        if (tag == &g->kick) {
            uint64_t kicks;
            ssize_t got = read(g->kick, &kicks, sizeof kicks);
            (void)got; /* the queues are looked at anyway */
        } else {
            gw_link *link = tag;
            if (link->dial)
                gw_dial_pump(g, link, now);
            else
                pump_accepted(g, link);
        }
    }
    for (int i = 0; i < count; i++)
        if (is_listener(g, events[i].data.ptr)) accept_some(g, events[i].data.ptr, now);
    return count > 0;
}

bool gw_gateway_poll(gw_gateway *g, gw_time now) {
    bool moved = handle_events(g, now);
    while (g->oldest && now >= g->oldest->deadline) {
        refuse(g, g->oldest, "it did not prove itself in time");
        moved = true;
    }
    if (now >= g->resume) {
        g->resume = UINT64_MAX;
        watch_listeners(g, EPOLLIN);
    }
    if (g->parked) deliver_parked(g);
    moved |= gw_dials_serve(g, now);
    log_strangers(g, now);
    return moved;
}

int gw_gateway_fd(const gw_gateway *g) { return g->epoll; }

gw_time gw_gateway_next_deadline(const gw_gateway *g) {
    gw_time next = g->dial_wake < g->resume ? g->dial_wake : g->resume;
    return g->oldest && g->oldest->deadline < next ? g->oldest->deadline : next;
}

gw_status gw_gateway_derive(const gw_gateway *gateway, const char *label, uint8_t key[GW_AUTH_KEY_BYTES],
                            gw_error *error) {
    return gw_auth_derive(gateway->key, label, key, error);
}

int gw_gateway_rank(const gw_gateway *g) { return g->rank; }
uint64_t gw_gateway_strangers(const gw_gateway *g) { return g->strangers; }
