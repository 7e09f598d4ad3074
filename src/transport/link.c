/* link.c - see link.h. */
#include "transport/link.h"

#include "base/descriptor.h"
#include "transport/listen.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

gw_link *gw_link_open(int epoll, int fd, const gw_address *peer, bool connecting) {
    gw_link *link = calloc(1, sizeof *link);
    if (link) {
        *link = (gw_link){.fd = fd, .epoll = epoll, .peer = *peer, .connecting = connecting};
        link->watched = connecting ? EPOLLOUT : EPOLLIN;
        struct epoll_event event = {.events = link->watched, .data.ptr = link};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return link;
        free(link);
    }
    gw_fd_close(fd);
    return NULL;
}

static void watch(gw_link *link, uint32_t events) {
    if (events == link->watched) return;
    struct epoll_event event = {.events = events, .data.ptr = link};
    epoll_ctl(link->epoll, EPOLL_CTL_MOD, link->fd, &event);
    link->watched = events;
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/* 1: something was sent, 0: nothing to send or no room, else -1. */
static int send_some(gw_link *link, const char **why) {
    size_t count;
    const uint8_t *bytes = gw_auth_output(&link->auth, &count);
    if (count == 0) return 0;
    ssize_t sent = send(link->fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0) {
        if (would_block()) return 0;
        *why = strerrordesc_np(errno);
        return -1;
    }
    gw_auth_sent(&link->auth, (size_t)sent);
    return sent > 0;
}

/* 1: something was taken, 0: nothing there, else -1. Never reads beyond the handshake. */
static int take_some(gw_link *link, gw_status *status, const char **why) {
    uint8_t bytes[GW_AUTH_IN_MAX];
    size_t wants = gw_auth_wants(&link->auth);
    if (wants == 0) return 0;
    ssize_t got = recv(link->fd, bytes, wants, 0);
    if (got < 0 && would_block()) return 0;
    if (got <= 0) {
        *why = got == 0 ? "the connection was closed during the handshake" : strerrordesc_np(errno);
        return -1;
    }
    *status = gw_auth_take(&link->auth, bytes, (size_t)got);
    if (*status == GW_OK) return 1;
    *why = *status == GW_DENIED ? "the other side does not know this job's token" : gw_status_text(*status);
    return -1;
}

static gw_link_verdict finish_connecting(gw_link *link, const char **why) {
    int code = gw_connect_end(link->fd);
    if (code == 0) {
        link->connecting = false;
        return GW_LINK_WAITS;
    }
    link->refused = code == ECONNREFUSED;
    *why = strerrordesc_np(code);
    return GW_LINK_BROKEN;
}

gw_link_verdict gw_link_pump(gw_link *link, gw_status *status, const char **why) {
    *status = GW_PEER_LOST;
    *why = "unknown reason";
    if (link->connecting && finish_connecting(link, why) == GW_LINK_BROKEN) return GW_LINK_BROKEN;
    int sent, taken;
    do {
        gw_status sort = GW_PEER_LOST;
        sent = send_some(link, why);
        taken = sent < 0 ? -1 : take_some(link, &sort, why);
        if (taken < 0) {
            *status = sort;
            return GW_LINK_BROKEN;
        }
        if (gw_auth_done(&link->auth)) return GW_LINK_DONE;
    } while (sent > 0 || taken > 0);
    size_t pending;
    gw_auth_output(&link->auth, &pending);
    watch(link, EPOLLIN | (pending ? EPOLLOUT : 0u));
    return GW_LINK_WAITS;
}

int gw_link_release(gw_link *link) {
    int fd = link->fd, yes = 1;
    epoll_ctl(link->epoll, EPOLL_CTL_DEL, fd, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    OPENSSL_cleanse(&link->auth, sizeof link->auth);
    free(link);
    return fd;
}

void gw_link_close(gw_link *link) { gw_fd_close(gw_link_release(link)); }
