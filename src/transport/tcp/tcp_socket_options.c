/* tcp_socket_options.c - the socket options of a connection. One that the kernel refuses is logged and left out. */
#include "transport/tcp/tcp_connection.h"

#include "base/log.h"
#include "bootstrap/congestion.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Where replies come within microseconds, bbr keeps its window small, and sends the rest of a write on a timer. Writes
 * of at most this size do not wait for the timer (2 ranks on loopback, 1 MiB: 0.43 ms instead of 0.55 to 0.79). */
#define PACED_TURN_BYTES ((size_t)160 << 10)

typedef struct target {
    const gw_tcp_conn *conn;
    int rank;
} target;

static void option(target to, int level, int name, const void *value, size_t bytes, const char *what) {
    if (setsockopt(to.conn->fd, level, name, value, (socklen_t)bytes) == 0) return;
    gw_log(GW_LOG_INFO, to.rank, "the connection to rank %d goes without %s: %s", to.conn->peer, what, strerror(errno));
}

static void choose_congestion(target to, gw_tcp_congestion *state, const char *congestion) {
    char name[GW_CONGESTION_BYTES];
    snprintf(name, sizeof name, "%s", congestion);
    if (strcmp(name, "auto") == 0) {
        gw_congestion_leave_bbr(to.conn->fd);
        gw_tcp_congestion_begin(state, to.conn->fd);
        return;
    }
    if (strcmp(name, "system") == 0) gw_congestion_default(name);
    option(to, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name), name);
}

void gw_tcp_conn_prepare(gw_tcp_conn *conn, int rank, const char *congestion, size_t buffer) {
    int on = 1, size = buffer > INT32_MAX ? INT32_MAX : (int)buffer;
    target to = {conn, rank};
    option(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on, "TCP_NODELAY");
    choose_congestion(to, &conn->congestion, congestion);
    if (gw_congestion_is_bbr(conn->fd)) conn->turn = PACED_TURN_BYTES;
    if (size == 0) return;
    option(to, SOL_SOCKET, SO_SNDBUF, &size, sizeof size, "its send buffer");
    option(to, SOL_SOCKET, SO_RCVBUF, &size, sizeof size, "its receive buffer");
}
