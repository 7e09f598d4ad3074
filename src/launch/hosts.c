/* hosts.c - see hosts.h. */
#include "launch/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "launch/launch_protocol.h"

static bool same_machine(const char *name) {
    static const char *const loopback[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        if (strcmp(name, loopback[i]) == 0) return true;
    char own[GW_HOST_NAME_BYTES] = "";
    if (gethostname(own, sizeof own - 1) != 0) return false;
    if (strcasecmp(name, own) == 0) return true;
    own[strcspn(own, ".")] = 0;
    return strcasecmp(name, own) == 0;
}

/* Refuses names that ssh would read as an option, or a shell as more than one word. */
static bool good_name(const char *name, size_t length) {
    if (length == 0 || length >= GW_HOST_NAME_BYTES || name[0] == '-') return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-:@%", name[i])) return false;
    return true;
}

static gw_status add_host(gw_hosts *hosts, const char *name, size_t length, int slots, gw_error *error) {
    for (int i = 0; i < hosts->count; i++) {
        gw_host *host = &hosts->list[i];
        if (strlen(host->name) != length || memcmp(host->name, name, length) != 0) continue;
        if (slots > GW_LAUNCH_MAX_RANKS - host->slots)
            return gw_fail(error, GW_INVALID, "host %s has more than %d slots", host->name, GW_LAUNCH_MAX_RANKS);
        host->slots += slots;
        return GW_OK;
    }
    gw_host *list = realloc(hosts->list, ((size_t)hosts->count + 1) * sizeof *list);
    if (!list) return gw_fail(error, GW_MEMORY, "there is no memory for the list of hosts");
    hosts->list = list;
    gw_host *host = &list[hosts->count++];
    *host = (gw_host){.slots = slots};
    memcpy(host->name, name, length);
    host->local = same_machine(host->name);
    return GW_OK;
}

/* One "host", "host:N" or "[address]:N"; `slots` is the N of a host file's "slots=N", or NULL. */
static gw_status add_item(gw_hosts *hosts, const char *item, const char *slots, const char *where, gw_error *error) {
    const char *name = item;
    size_t length = strlen(item);
    const char *colon = strrchr(item, ':');
    if (item[0] == '[') {
        const char *bracket = strchr(item, ']');
        if (!bracket || (bracket[1] && bracket[1] != ':'))
            return gw_fail(error, GW_INVALID, "\"%s\" in %s is not a host; write [address]:slots", item, where);
        name = item + 1;
        length = (size_t)(bracket - name);
        colon = bracket[1] ? bracket + 1 : NULL;
    } else if (colon && strchr(item, ':') != colon) {
        return gw_fail(error, GW_INVALID, "\"%s\" in %s has several colons; write an IPv6 address as [address]:slots",
                       item, where);
    } else if (colon) {
        length = (size_t)(colon - item);
    }
    if (!good_name(name, length))
        return gw_fail(error, GW_INVALID, "\"%s\" in %s is not a host; write host:slots, e.g. node1:4", item, where);
    int64_t count = 1;
    if (colon && slots) return gw_fail(error, GW_INVALID, "\"%s\" in %s gives its slots twice", item, where);
    if (colon) slots = colon + 1;
    if (slots && !gw_integer_parse(slots, 1, GW_LAUNCH_MAX_RANKS, &count))
        return gw_fail(error, GW_INVALID, "\"%s\" is not a number of slots for host %.*s in %s; allowed are 1 to %d",
                       slots, (int)length, name, where, GW_LAUNCH_MAX_RANKS);
    return add_host(hosts, name, length, (int)count, error);
}

gw_status gw_hosts_parse(gw_hosts *hosts, const char *list, gw_error *error) {
    *hosts = (gw_hosts){0};
    char *copy = strdup(list);
    if (!copy) return gw_fail(error, GW_MEMORY, "there is no memory for the list of hosts");
    gw_status status = GW_OK;
    char *rest = copy;
    while (status == GW_OK && rest) status = add_item(hosts, strsep(&rest, ","), NULL, "the host list", error);
    free(copy);
    if (status != GW_OK) gw_hosts_free(hosts);
    return status;
}

static gw_status add_line(gw_hosts *hosts, char *line, const char *where, gw_error *error) {
    static const char blanks[] = " \t\r\n";
    line[strcspn(line, "#")] = 0;
    char *save = NULL;
    const char *item = strtok_r(line, blanks, &save);
    if (!item) return GW_OK;
    const char *slots = strtok_r(NULL, blanks, &save);
    const char *more = strtok_r(NULL, blanks, &save);
    if (more) return gw_fail(error, GW_INVALID, "\"%s\" in %s is one word too many; write: host slots=4", more, where);
    if (slots && strncmp(slots, "slots=", 6) == 0) slots += 6;
    return add_item(hosts, item, slots, where, error);
}

gw_status gw_hosts_read(gw_hosts *hosts, const char *path, gw_error *error) {
    *hosts = (gw_hosts){0};
    FILE *file = fopen(path, "re");
    if (!file) return gw_fail(error, GW_INVALID, "cannot read the host file %s: %s", path, strerror(errno));
    gw_status status = GW_OK;
    char *line = NULL;
    size_t capacity = 0;
    for (int number = 1; status == GW_OK && getline(&line, &capacity, file) >= 0; number++) {
        char where[GW_ERROR_TEXT_BYTES / 2];
        snprintf(where, sizeof where, "%s line %d", path, number);
        status = add_line(hosts, line, where, error);
    }
    if (status == GW_OK && ferror(file)) status = gw_fail(error, GW_INVALID, "cannot read the host file %s", path);
    if (status == GW_OK && hosts->count == 0)
        status = gw_fail(error, GW_INVALID, "the host file %s names no host; write lines such as: node1 slots=4", path);
    free(line);
    fclose(file);
    if (status != GW_OK) gw_hosts_free(hosts);
    return status;
}

gw_status gw_hosts_local(gw_hosts *hosts, int slots, gw_error *error) {
    *hosts = (gw_hosts){0};
    char own[GW_HOST_NAME_BYTES] = "";
    if (gethostname(own, sizeof own - 1) != 0 || !own[0]) strcpy(own, "localhost");
    gw_status status = add_host(hosts, own, strlen(own), slots, error);
    if (status == GW_OK) hosts->list[0].local = true;
    return status;
}

void gw_hosts_free(gw_hosts *hosts) {
    free(hosts->list);
    *hosts = (gw_hosts){0};
}

gw_status gw_hosts_place(gw_hosts *hosts, int ranks, gw_error *error) {
    int64_t slots = 0;
    for (int i = 0; i < hosts->count; i++) slots += hosts->list[i].slots;
    if (ranks == 0) ranks = slots > INT32_MAX ? INT32_MAX : (int)slots;
    if (ranks > slots)
        return gw_fail(error, GW_INVALID,
                       "%d ranks do not fit into the %lld slots of the hosts; give more slots "
                       "(host:slots) or fewer ranks (-n)",
                       ranks, (long long)slots);
    int placed = 0, used = 0;
    for (; placed < ranks; used++) {
        gw_host *host = &hosts->list[used];
        host->first_rank = placed;
        host->ranks = host->slots < ranks - placed ? host->slots : ranks - placed;
        placed += host->ranks;
    }
    hosts->count = used;
    return GW_OK;
}

gw_status gw_hosts_serve(gw_hosts *hosts, int servers, gw_error *error) {
    int workers = gw_hosts_world(hosts), all = hosts->count;
    if (servers == 0) return GW_OK;
    gw_host *list = realloc(hosts->list, 2 * (size_t)all * sizeof *list);
    if (!list) return gw_fail(error, GW_MEMORY, "there is no memory for the list of hosts");
    hosts->list = list;
    for (int i = 0, placed = 0; i < all; i++) {
        int count = (int)(((int64_t)servers * (i + 1) + all - 1) / all - ((int64_t)servers * i + all - 1) / all);
        if (count == 0) continue;
        gw_host *host = &list[hosts->count++];
        *host = list[i];
        host->serves = true;
        host->first_rank = workers + placed;
        host->ranks = count;
        placed += count;
    }
    return GW_OK;
}

int gw_hosts_workers(const gw_hosts *hosts) {
    int count = 0;
    for (int i = 0; i < hosts->count; i++) count += hosts->list[i].serves ? 0 : hosts->list[i].ranks;
    return count;
}

int gw_hosts_world(const gw_hosts *hosts) {
    const gw_host *last = &hosts->list[hosts->count - 1];
    return last->first_rank + last->ranks;
}

bool gw_hosts_all_local(const gw_hosts *hosts) {
    for (int i = 0; i < hosts->count; i++)
        if (!hosts->list[i].local) return false;
    return true;
}
