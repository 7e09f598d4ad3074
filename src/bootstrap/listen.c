/* listen.c - see listen.h. */
#include "bootstrap/listen.h"

#include "base/fork_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/congestion.h"

static int stream_socket(int family) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) gw_congestion_leave_bbr(fd);
    return fd;
}

/* 0, or an errno. Only listen() may show that a port is taken: with SO_REUSEADDR two sockets may both be bound to it as
 * long as neither listens. */
static int try_port(const gw_address *address, int port, int *fd) {
    int yes = 1;
    gw_address at = *address;
    gw_address_set_port(&at, port);
    *fd = stream_socket(at.any.sa_family);
    if (*fd < 0) return errno;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at.any.sa_family == AF_INET6) setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(*fd, &at.any, gw_address_bytes(&at)) == 0 && listen(*fd, SOMAXCONN) == 0) return 0;
    int code = errno;
    gw_fd_close(*fd);
    *fd = -1;
    return code;
}

static gw_status bound_address(int fd, gw_address *bound, gw_error *error) {
    socklen_t length = sizeof *bound;
    memset(bound, 0, sizeof *bound);
    if (getsockname(fd, &bound->any, &length) != 0)
        return gw_fail(error, GW_SYSTEM, "cannot tell the address of a listening socket: %s", strerror(errno));
    return GW_OK;
}

gw_status gw_listen_open(const gw_address *address, int low, int high, int *fd, gw_address *bound, gw_error *error) {
    int opened = -1, code = 0;
    for (int port = low; port <= high && opened < 0; port++) {
        code = try_port(address, port, &opened);
        if (code != 0 && code != EADDRINUSE && code != EACCES) break;
    }
    if (opened < 0) {
        char host[GW_ADDRESS_TEXT], ports[32] = "any port";
        if (low) snprintf(ports, sizeof ports, low == high ? "port %d" : "ports %d-%d", low, high);
        return gw_fail(error, GW_SYSTEM, "cannot listen on %s, %s: %s%s", gw_address_host_text(address, host), ports,
                       strerror(code),
                       code == EADDRINUSE ? " (another program has it: choose another MASTER_PORT or range)" : "");
    }
    gw_status status = bound_address(opened, bound, error);
    if (status == GW_OK) *fd = opened;
    else gw_fd_close(opened);
    return status;
}

gw_status gw_listen_adopt(int fd, int low, int high, gw_address *bound, gw_error *error) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens)
        return gw_fail(error, GW_INVALID, "file descriptor %d is no listening socket", fd);
    gw_status status = bound_address(fd, bound, error);
    if (status != GW_OK) return status;
    if (bound->any.sa_family != AF_INET && bound->any.sa_family != AF_INET6)
        return gw_fail(error, GW_INVALID, "file descriptor %d is no internet socket", fd);
    int port = gw_address_port(bound);
    if (port < low || port > high)
        return gw_fail(error, GW_INVALID, "file descriptor %d listens at port %d, not at %d-%d", fd, port, low, high);
    gw_congestion_leave_bbr(fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return gw_fail(error, GW_SYSTEM, "cannot take over the listening socket %d: %s", fd, strerror(errno));
    return GW_OK;
}

int gw_connect_begin(const gw_address *address, int *fd) {
    int yes = 1;
    *fd = stream_socket(address->any.sa_family);
    if (*fd < 0) return errno;
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(*fd, &address->any, gw_address_bytes(address)) == 0 || errno == EINPROGRESS) return 0;
    int code = errno;
    gw_fd_close(*fd);
    *fd = -1;
    return code;
}

/* A socket that dials an unused local port may, by chance, be given that very port and connect to itself. */
static bool connected_to_itself(int fd) {
    gw_address local, remote;
    socklen_t local_bytes = sizeof local, remote_bytes = sizeof remote;
    memset(&local, 0, sizeof local);
    memset(&remote, 0, sizeof remote);
    if (getsockname(fd, &local.any, &local_bytes) != 0 || getpeername(fd, &remote.any, &remote_bytes) != 0)
        return false;
    return gw_address_same_host(&local, &remote) && gw_address_port(&local) == gw_address_port(&remote);
}

int gw_connect_end(int fd) {
    int code = 0;
    socklen_t length = sizeof code;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0) return errno;
    return code == 0 && connected_to_itself(fd) ? ECONNREFUSED : code;
}
