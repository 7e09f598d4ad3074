/* host_facts.c - see host_facts.h. */
#include "doctor/host_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { NAMES_MAX = 16, COPY_BYTES = 64 << 20, COPIES = 5 };

/* A host that cannot resolve the master's name (in a namespace or container) picks an interface without it. */
static gw_status choose(const char *master, const char *selection, const gw_interface *list, int count,
                        gw_address *chosen, gw_error *error) {
    gw_address masters[NAMES_MAX];
    gw_error ignored = {0};
    int found = 0;
    if (gw_interface_master(master, selection, masters, NAMES_MAX, &found, &ignored) != GW_OK) found = 0;
    for (int i = 0; i < found; i++) {
        ignored = (gw_error){0};
        if (gw_interface_choose(selection, &masters[i], chosen, &ignored) == GW_OK) return GW_OK;
    }
    return gw_interface_pick(selection && *selection ? selection : "^=lo", AF_INET, list, count, chosen, error);
}

static int mtu_of(const char *interface) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strcpy(request.ifr_name, interface);
    int mtu = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
    if (fd >= 0) close(fd);
    return mtu;
}

gw_status gw_facts_address(const char *master, const char *selection, gw_address *chosen, char interface[IF_NAMESIZE],
                           int *mtu, gw_error *error) {
    gw_interface *list = calloc(GW_INTERFACES_MAX, sizeof *list);
    int count = 0;
    if (!list) return gw_fail(error, GW_MEMORY, "no memory for the list of interfaces");
    gw_status status = gw_interface_list(list, &count, error);
    if (!status) status = choose(master, selection, list, count, chosen, error);
    strcpy(interface, "-");
    for (int i = 0; i < count && !status; i++)
        if (gw_address_same_host(&list[i].address, chosen)) strcpy(interface, list[i].name);
    *mtu = status ? 0 : mtu_of(interface);
    free(list);
    return status;
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

void gw_facts_resolve(const char *name, char text[GW_DOCTOR_ADDRESS_BYTES]) {
    gw_address list[NAMES_MAX];
    char names[NAMES_MAX][GW_ADDRESS_TEXT];
    gw_error ignored = {0};
    int count = 0;
    size_t used = 0;
    text[0] = 0;
    if (gw_address_resolve(name, list, NAMES_MAX, &count, &ignored) != GW_OK) return;
    for (int i = 0; i < count; i++) gw_address_host_text(&list[i], names[i]);
    qsort(names, (size_t)count, sizeof names[0], by_text);
    for (int i = 0; i < count; i++) {
        if (i && strcmp(names[i], names[i - 1]) == 0) continue;
        used += (size_t)snprintf(text + used, GW_DOCTOR_ADDRESS_BYTES - used, "%s%s", i ? "," : "", names[i]);
        if (used < GW_DOCTOR_ADDRESS_BYTES) continue;
        text[0] = 0;
        return;
    }
}

double gw_facts_memory(void) {
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    gw_time best = UINT64_MAX;
    if (from && to) {
        memset(from, 1, COPY_BYTES);
        memset(to, 2, COPY_BYTES);
        for (int i = 0; i < COPIES; i++) {
            gw_time start = gw_clock_now();
            memcpy(to, from, COPY_BYTES);
            __asm__ volatile("" : : "r"(to) : "memory"); /* keeps the compiler from removing the copy */
            gw_time took = gw_clock_now() - start;
            if (took < best) best = took;
        }
    }
    free(from);
    free(to);
    return best == UINT64_MAX || best == 0 ? 0 : COPY_BYTES * 1e9 / (double)best;
}

void gw_facts_boot(char text[GW_BOOT_BYTES]) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    text[0] = 0;
    if (file) {
        if (!fgets(text, GW_BOOT_BYTES, file)) text[0] = 0;
        fclose(file);
    }
    text[strcspn(text, "\n ")] = 0;
    if (!text[0]) strcpy(text, "-");
}
