/* congestion.c - see congestion.h. */
#include "bootstrap/congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void gw_congestion_of(int fd, char name[GW_CONGESTION_BYTES]) {
    socklen_t bytes = GW_CONGESTION_BYTES - 1;
    memset(name, 0, GW_CONGESTION_BYTES);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0) name[0] = '\0';
}

bool gw_congestion_is_bbr(int fd) {
    char name[GW_CONGESTION_BYTES];
    gw_congestion_of(fd, name);
    return strncmp(name, "bbr", 3) == 0;
}

void gw_congestion_leave_bbr(int fd) {
    if (gw_congestion_is_bbr(fd)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

void gw_congestion_default(char name[GW_CONGESTION_BYTES]) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    gw_congestion_of(fd, name);
    if (fd >= 0) close(fd);
}
