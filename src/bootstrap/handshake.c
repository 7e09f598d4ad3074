/* handshake.c - see handshake.h. */
#include "bootstrap/handshake.h"

#include "base/fork_descriptors.h"
#include "bootstrap/listen.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

gw_handshake *gw_handshake_open(int epoll, int fd, const gw_address *peer, bool connecting) {
    gw_handshake *hs = calloc(1, sizeof *hs);
    if (hs) {
        *hs = (gw_handshake){.fd = fd, .epoll = epoll, .peer = *peer, .connecting = connecting};
        hs->watched = connecting ? EPOLLOUT : EPOLLIN;
        struct epoll_event event = {.events = hs->watched, .data.ptr = hs};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return hs;
        free(hs);
    }
    gw_fd_close(fd);
    return NULL;
}

static void watch(gw_handshake *hs, uint32_t events) {
    if (events == hs->watched) return;
    struct epoll_event event = {.events = events, .data.ptr = hs};
    epoll_ctl(hs->epoll, EPOLL_CTL_MOD, hs->fd, &event);
    hs->watched = events;
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/* 1: something was sent, 0: nothing to send or no space in the socket, else -1. */
static int send_some(gw_handshake *hs, const char **why) {
    size_t count;
    const uint8_t *bytes = gw_auth_output(&hs->auth, &count);
    if (count == 0) return 0;
    ssize_t sent = send(hs->fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0) {
        if (would_block()) return 0;
        *why = strerrordesc_np(errno);
        return -1;
    }
    gw_auth_sent(&hs->auth, (size_t)sent);
    return sent > 0;
}

/* 1: something was taken, 0: nothing there, else -1. Never reads beyond the handshake. */
static int take_some(gw_handshake *hs, gw_status *status, const char **why) {
    uint8_t bytes[GW_AUTH_IN_MAX];
    size_t wants = gw_auth_wants(&hs->auth);
    if (wants == 0) return 0;
    ssize_t got = recv(hs->fd, bytes, wants, 0);
    if (got < 0 && would_block()) return 0;
    if (got <= 0) {
        *why = got < 0 ? strerrordesc_np(errno)
               : hs->auth.state == GW_AUTH_CHALLENGE
                   ? "the connection was closed at once: something else listens there, or another version of gradwire"
                   : "the connection was closed during the handshake";
        return -1;
    }
    *status = gw_auth_take(&hs->auth, bytes, (size_t)got);
    if (*status == GW_OK) return 1;
    const char *ignored;
    send_some(hs, &ignored); /* a refusal */
    *why = *status == GW_DENIED     ? "the other side does not know this job's token"
           : *status == GW_MISMATCH ? "the other side runs another version of gradwire"
                                    : gw_status_text(*status);
    return -1;
}

static gw_handshake_verdict finish_connecting(gw_handshake *hs, const char **why) {
    int code = gw_connect_end(hs->fd);
    if (code == 0) {
        hs->connecting = false;
        return GW_HANDSHAKE_WAITS;
    }
    hs->refused = code == ECONNREFUSED;
    *why = strerrordesc_np(code);
    return GW_HANDSHAKE_BROKEN;
}

gw_handshake_verdict gw_handshake_pump(gw_handshake *hs, gw_status *status, const char **why) {
    *status = GW_PEER_LOST;
    *why = "unknown reason";
    if (hs->connecting && finish_connecting(hs, why) == GW_HANDSHAKE_BROKEN) return GW_HANDSHAKE_BROKEN;
    int sent, taken;
    do {
        gw_status sort = GW_PEER_LOST;
        sent = send_some(hs, why);
        taken = sent < 0 ? -1 : take_some(hs, &sort, why);
        if (taken < 0) {
            *status = sort;
            return GW_HANDSHAKE_BROKEN;
        }
        if (gw_auth_done(&hs->auth)) return GW_HANDSHAKE_DONE;
    } while (sent > 0 || taken > 0);
    size_t pending;
    gw_auth_output(&hs->auth, &pending);
    watch(hs, EPOLLIN | (pending ? EPOLLOUT : 0u));
    return GW_HANDSHAKE_WAITS;
}

int gw_handshake_release(gw_handshake *hs) {
    int fd = hs->fd, yes = 1;
    epoll_ctl(hs->epoll, EPOLL_CTL_DEL, fd, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    OPENSSL_cleanse(&hs->auth, sizeof hs->auth);
    free(hs);
    return fd;
}

void gw_handshake_close(gw_handshake *hs) { gw_fd_close(gw_handshake_release(hs)); }
