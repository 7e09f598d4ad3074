/* library_sockets.c - see library_sockets.h. */
#include "transport/library_sockets.h"

#include <dirent.h>
#include <stdlib.h>

#include "bootstrap/congestion.h"

static bool is_at(int fd, const gw_address *address, bool own) {
    gw_address found = {0};
    socklen_t bytes = sizeof found;
    int result = own ? getsockname(fd, &found.any, &bytes) : getpeername(fd, &found.any, &bytes);
    return result == 0 && found.any.sa_family == address->any.sa_family && gw_address_same_host(&found, address) &&
           gw_address_port(&found) == gw_address_port(address);
}

void gw_library_sockets_leave_bbr(const gw_address *address, bool own) {
    DIR *descriptors = opendir("/proc/self/fd");
    if (!descriptors) return;
    for (struct dirent *entry = readdir(descriptors); entry; entry = readdir(descriptors)) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && is_at(fd, address, own)) gw_congestion_leave_bbr(fd);
    }
    closedir(descriptors);
}
