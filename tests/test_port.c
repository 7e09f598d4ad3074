/* test_port.c - free ports outside of the kernel's ephemeral range. */
#include "base/port.h"

#include "test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int listen_at(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    return fd;
}

static void is_not_the_kernels(void) {
    int low = 0, high = 0;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    CHECK(file && fscanf(file, "%d %d", &low, &high) == 2);
    if (file) fclose(file);
    if (low <= 20000 && high >= 65535) return; /* all are */
    for (unsigned seed = 0; seed < 100; seed++) {
        int port = gw_port_find(seed * 7919);
        CHECK(port > 0 && port <= 65535 && (port < low || port > high));
    }
}

static void a_port_in_use_is_passed_over(void) {
    int first = gw_port_find(12345), fd = listen_at(first), second = gw_port_find(12345), other = listen_at(second);
    CHECK(second > 0 && second != first);
    CHECK(gw_port_find(12345) != first && gw_port_find(12345) != second);
    close(fd);
    close(other);
}

TEST_MAIN(CASE(is_not_the_kernels), CASE(a_port_in_use_is_passed_over))
