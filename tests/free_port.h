/* free_port.h - a port for rank 0 of a test's job: another one each time, and in each process. */
#ifndef GW_TESTS_FREE_PORT_H
#define GW_TESTS_FREE_PORT_H

#include "base/port.h"

#include <stdlib.h>
#include <unistd.h>

static int free_port(void) {
    static unsigned next;
    int port = gw_port_find((unsigned)getpid() * 31 + next++);
    if (!port) abort();
    return port;
}

#endif
