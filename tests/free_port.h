/* free_port.h - a port for rank 0 of a test's job. Not one of those that the kernel gives to whoever listens without
 * naming one (32768 and up, by default): another rank of the same job could be given it before rank 0 takes it. */
#ifndef GW_TESTS_FREE_PORT_H
#define GW_TESTS_FREE_PORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FREE_PORT_FIRST 20000
#define FREE_PORTS 12000

static bool port_is_free(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) abort();
    bool free_now = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return free_now;
}

/* Another one each time, and in each process. */
static int free_port(void) {
    static unsigned next;
    for (int tries = 0; tries < FREE_PORTS; tries++) {
        int port = FREE_PORT_FIRST + (int)(((unsigned)getpid() * 31 + next++) % FREE_PORTS);
        if (port_is_free(port)) return port;
    }
    abort();
}

#endif
