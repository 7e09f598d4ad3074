/* interface.c - see interface.h. */
#include "bootstrap/interface.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gw_status gw_interface_list(gw_interface list[GW_INTERFACES_MAX], int *count, gw_error *error) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return gw_fail(error, GW_SYSTEM, "cannot list the network interfaces: %s", strerror(errno));
    int kept = 0;
    for (const struct ifaddrs *entry = all; entry && kept < GW_INTERFACES_MAX; entry = entry->ifa_next) {
        if (!entry->ifa_addr) continue;
        int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        gw_interface *item = &list[kept++];
        memset(item, 0, sizeof *item);
        snprintf(item->name, sizeof item->name, "%s", entry->ifa_name);
        memcpy(&item->address, entry->ifa_addr, family == AF_INET ? sizeof item->address.v4 : sizeof item->address.v6);
        item->up = (entry->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
    }
    freeifaddrs(all);
    *count = kept;
    return GW_OK;
}

int gw_interface_preference(const char *selection, const char *name) {
    bool exclude = selection[0] == '^';
    if (exclude) selection++;
    bool exact = selection[0] == '=';
    if (exact) selection++;
    int position = 0;
    for (const char *item = selection; item[0];) {
        size_t length = strcspn(item, ",");
        bool match = length && strncmp(item, name, length) == 0 && (!exact || name[length] == 0);
        if (match) return exclude ? -1 : position;
        item += length + (item[length] == ',');
        position++;
    }
    return exclude ? 0 : -1;
}

/* "lo 127.0.0.1, eth0 10.0.0.5 (down)", cut to fit. */
static void describe(const gw_interface *list, int count, char *text, size_t room) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count && used < room; i++) {
        char address[GW_ADDRESS_TEXT];
        gw_address_host_text(&list[i].address, address);
        used += (size_t)snprintf(text + used, room - used, "%s%s %s%s", i ? ", " : "", list[i].name, address,
                                 list[i].up ? "" : " (down)");
    }
    if (count == 0) snprintf(text, room, "none");
}

/* Lower is better; -1: not usable. */
static int badness(const char *selection, int family, const gw_interface *item) {
    int position = gw_interface_preference(selection, item->name);
    if (position < 0 || !item->up) return -1;
    if (selection[0] == '^' && gw_address_loopback(&item->address)) return -1;
    bool other_family = family != AF_UNSPEC && item->address.any.sa_family != family;
    return (gw_address_link_local(&item->address) ? 2 : 0) + (other_family ? 1 : 0) + 4 * position;
}

gw_status gw_interface_pick(const char *selection, int family, const gw_interface *list, int count, gw_address *chosen,
                            gw_error *error) {
    const gw_interface *best = NULL;
    int least = -1;
    for (int i = 0; i < count; i++) {
        int bad = badness(selection, family, &list[i]);
        if (bad < 0 || (best && bad >= least)) continue;
        best = &list[i];
        least = bad;
    }
    if (!best) {
        char there[300];
        describe(list, count, there, sizeof there);
        return gw_fail(error, GW_INVALID, "no interface that is up is selected by \"%s\"; this host has: %s", selection,
                       there);
    }
    *chosen = best->address;
    gw_address_set_port(chosen, 0);
    return GW_OK;
}

/* The kernel's own answer: a connected datagram socket has the source address of the route; nothing is sent. */
static bool source_towards(const gw_address *master, gw_address *source) {
    gw_address target = *master;
    if (gw_address_port(&target) == 0) gw_address_set_port(&target, 9);
    int fd = socket(target.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    socklen_t length = sizeof *source;
    memset(source, 0, sizeof *source);
    bool ok = connect(fd, &target.any, gw_address_bytes(&target)) == 0 && getsockname(fd, &source->any, &length) == 0;
    close(fd);
    if (ok) gw_address_set_port(source, 0);
    return ok;
}

gw_status gw_interface_choose(const char *selection, const gw_address *master, gw_address *chosen, gw_error *error) {
    if (!selection || !selection[0]) {
        if (source_towards(master, chosen)) return GW_OK;
        char where[GW_ADDRESS_TEXT];
        if (errno == EMFILE || errno == ENFILE)
            return gw_fail(error, GW_SYSTEM, "there is no descriptor left for a connection to rank 0 (%s): raise %s",
                           strerror(errno), errno == EMFILE ? "ulimit -n" : "the system's limit fs.file-max");
        return gw_fail(error, GW_SYSTEM, "this host has no route to rank 0 at %s: check MASTER_ADDR and the network",
                       gw_address_host_text(master, where));
    }
    gw_interface *list = calloc(GW_INTERFACES_MAX, sizeof *list);
    if (!list) return gw_fail(error, GW_MEMORY, "out of memory for the list of interfaces");
    int count;
    gw_status status = gw_interface_list(list, &count, error);
    if (status == GW_OK) status = gw_interface_pick(selection, master->any.sa_family, list, count, chosen, error);
    free(list);
    return status;
}

bool gw_interface_is_local(const gw_address *address) {
    gw_address source;
    if (gw_address_loopback(address)) return true;
    return source_towards(address, &source) && gw_address_same_host(&source, address);
}

/* The address of this host that other hosts use: the one of the selection or, without a selection, the first that is
 * not loopback. */
static bool own_address(const char *selection, int family, gw_address *own) {
    gw_interface *list = calloc(GW_INTERFACES_MAX, sizeof *list);
    int count;
    bool ok = list && gw_interface_list(list, &count, NULL) == GW_OK &&
              gw_interface_pick(selection && selection[0] ? selection : "^docker,virbr,veth,br-", family, list, count,
                                own, NULL) == GW_OK;
    free(list);
    return ok;
}

gw_status gw_interface_master(const char *host, const char *selection, gw_address *list, int room, int *count,
                              gw_error *error) {
    gw_address literal;
    bool wants_loopback = gw_address_literal(host, &literal) || strcmp(host, "localhost") == 0;
    gw_status status = gw_address_resolve(host, list, room, count, error);
    if (status != GW_OK || wants_loopback) return status;
    int kept = 0, family = list[0].any.sa_family;
    for (int i = 0; i < *count; i++)
        if (!gw_address_loopback(&list[i])) list[kept++] = list[i];
    if (kept == 0) {
        gw_address own;
        if (own_address(selection, family, &own)) list[kept++] = own;
        else kept = *count;
    }
    *count = kept;
    return GW_OK;
}
