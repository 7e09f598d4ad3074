/* port.c - see port.h. */
#include "base/port.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST = 20000, LAST = 31999, HIGHEST = 65535 };

/* Ports outside the kernel's ephemeral range. If that covers everything from FIRST up, there is no better choice. */
static void choose_range(int *first, int *last) {
    int low = LAST + 1, high = HIGHEST;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file && fscanf(file, "%d %d", &low, &high) != 2) low = LAST + 1;
    if (file) fclose(file);
    *first = FIRST;
    *last = LAST;
    if (low > FIRST && low <= LAST) *last = low - 1;
    if (low <= FIRST && high >= FIRST && high < HIGHEST) {
        *first = high + 1;
        *last = HIGHEST;
    }
}

static bool is_free(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    /* As a listener does: connections in TIME_WAIT do not block the port. */
    int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool listens = bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0;
    close(fd);
    return listens;
}

int gw_port_find_in(int low, int high, unsigned seed) {
    unsigned count = (unsigned)(high - low + 1);
    for (unsigned i = 0; i < count; i++) {
        int port = low + (int)((seed % count + i) % count);
        if (is_free(port)) return port;
    }
    return 0;
}

int gw_port_find(unsigned seed) {
    int first, last;
    choose_range(&first, &last);
    return gw_port_find_in(first, last, seed);
}
