/* socket.c - see socket.h. */
#include "doctor/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

bool gw_socket_await(int fd, short events, gw_time deadline) {
    for (;;) {
        gw_time now = gw_clock_now();
        struct pollfd wanted = {.fd = fd, .events = events};
        int ready = poll(&wanted, 1, now >= deadline ? 0 : (int)((deadline - now) / GW_MILLISECOND + 1));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
        if (now >= deadline) return false;
    }
}

bool gw_socket_send(int fd, const void *data, size_t bytes, gw_time deadline) {
    const char *at = data;
    while (bytes) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if ((errno != EAGAIN && errno != EINTR) || !gw_socket_await(fd, POLLOUT, deadline)) {
            return false;
        }
    }
    return true;
}

bool gw_socket_receive(int fd, void *data, size_t bytes, gw_time deadline) {
    char *at = data;
    while (bytes) {
        ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !gw_socket_await(fd, POLLIN, deadline)) {
            return false;
        }
    }
    return true;
}

bool gw_socket_own(int fd, gw_address *address) {
    socklen_t length = sizeof *address;
    return getsockname(fd, &address->any, &length) == 0;
}

bool gw_socket_peer(int fd, gw_address *address) {
    socklen_t length = sizeof *address;
    return getpeername(fd, &address->any, &length) == 0;
}
