/* address_space.c - see address_space.h. The formats are those of /proc/<pid>/maps and smaps in proc(5). */
#include "shm/address_space.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 80

/* A range of equal mappings. */
typedef struct area {
    uintptr_t from, to;
    char access[5]; /* "rw-p" */
    uint64_t offset, inode;
    char name[NAME_BYTES]; /* of a file, or "[heap]"; "": none */
} area;

typedef struct area_list {
    FILE *file;
    char *line;
    size_t room;
} area_list;

static bool open_list(area_list *list, const char *path) {
    *list = (area_list){.file = fopen(path, "re")};
    return list->file != NULL;
}

static void close_list(area_list *list) {
    if (list->file) fclose(list->file);
    free(list->line);
}

/* Lines of smaps that describe no range are skipped. */
static bool next_area(area_list *list, area *a) {
    while (getline(&list->line, &list->room, list->file) > 0) {
        unsigned long from, to, offset, inode;
        int name = 0;
        if (sscanf(list->line, "%lx-%lx %4s %lx %*s %lu %n", &from, &to, a->access, &offset, &inode, &name) < 5)
            continue;
        a->from = from, a->to = to, a->offset = offset, a->inode = inode;
        snprintf(a->name, sizeof a->name, "%.*s", (int)strcspn(list->line + name, "\n"), list->line + name);
        return true;
    }
    return false;
}

/* KiB that the process has locked; 0 where the kernel does not say. */
static unsigned long locked_kib(void) {
    unsigned long kib = 0;
    area_list list;
    if (!open_list(&list, "/proc/self/status")) return 0;
    while (getline(&list.line, &list.room, list.file) > 0 && sscanf(list.line, "VmLck: %lu", &kib) != 1) {}
    close_list(&list);
    return kib;
}

/* Whether a part of [from, to) is locked. Only smaps knows; the kernel writes it slowly. */
static bool is_locked(uintptr_t from, uintptr_t to) {
    unsigned long begin = 0, end = 0, a, b;
    bool locked = false;
    area_list list;
    if (!locked_kib() || !open_list(&list, "/proc/self/smaps")) return false;
    while (!locked && getline(&list.line, &list.room, list.file) > 0) {
        if (strncmp(list.line, "VmFlags:", 8) == 0) locked = begin < to && from < end && strstr(list.line, " lo");
        else if (sscanf(list.line, "%lx-%lx", &a, &b) == 2) begin = a, end = b;
    }
    close_list(&list);
    return locked;
}

/* The main thread's stack has a name in the list, those of other threads have none. */
static bool is_own_stack(uintptr_t from, uintptr_t to) {
    pthread_attr_t about;
    void *lowest = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &about)) return false;
    pthread_attr_getstack(&about, &lowest, &bytes);
    pthread_attr_destroy(&about);
    return from < (uintptr_t)lowest + bytes && (uintptr_t)lowest < to;
}

/* NULL, or why the pages of this area cannot be moved. */
static const char *why_not(const area *a) {
    if (a->access[3] == 's') return "it is shared memory already";
    if (strstr(a->name, "hugepage")) return "it lies on huge pages (hugetlbfs)";
    if (a->inode) return "it is a mapping of a file";
    if (strncmp(a->name, "[stack", 6) == 0) return "it lies on a stack";
    if (a->access[2] == 'x') return "it is executable";
    if (a->access[0] != 'r' || a->access[1] != 'w') return "it cannot be both read and written";
    return NULL;
}

gw_status gw_address_space_can_move(uintptr_t from, uintptr_t to, gw_error *error) {
    const char *why = NULL;
    uintptr_t at = from;
    area a;
    area_list list;
    if (!open_list(&list, "/proc/self/maps"))
        return gw_fail(error, GW_UNSUPPORTED, "/proc/self/maps cannot be read: %s", strerror(errno));
    while (at < to && !why && next_area(&list, &a)) {
        if (a.to <= at) continue;
        if (a.from > at) break;
        why = why_not(&a);
        at = a.to;
    }
    close_list(&list);
    if (!why && at < to)
        return gw_fail(error, GW_INVALID, "%p is not memory of this process (is it of a device?)", (void *)at);
    if (!why && is_own_stack(from, to)) why = "it lies on a stack";
    if (!why && is_locked(from, to)) why = "it is locked (mlock)";
    return why ? gw_fail(error, GW_UNSUPPORTED, "%s", why) : GW_OK;
}

bool gw_address_space_find(uintptr_t origin, uint64_t inode, uintptr_t *from, uintptr_t *to) {
    bool found = false;
    area a;
    area_list list;
    if (!open_list(&list, "/proc/self/maps")) return false;
    while (!found && next_area(&list, &a))
        found = a.inode == inode && a.to > *from && a.from < *to && a.from - a.offset == origin &&
                strncmp(a.name, "/memfd:gradwire", 15) == 0;
    close_list(&list);
    if (!found) return false;
    if (a.from > *from) *from = a.from;
    if (a.to < *to) *to = a.to;
    return true;
}
