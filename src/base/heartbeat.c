/* heartbeat.c - see heartbeat.h. */
#include "base/heartbeat.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(gw_heartbeat_slot) == 256, "the library and the launcher may differ in version");
_Static_assert(GW_ROSTER_TEXT <= GW_HEARTBEAT_AT, "the roster's text and the slots share a file");

static void *map(int file) {
    void *memory = mmap(NULL, GW_HEARTBEAT_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool large_enough(int file) { return lseek(file, 0, SEEK_END) >= (off_t)GW_HEARTBEAT_FILE_BYTES; }

/* Memberships that a crashed process of this member left in the slot do not count. */
static void claim(gw_heartbeat_slot *slot, pid_t pid, gw_time deadline) {
    if (atomic_exchange(&slot->pid, (uint32_t)pid) != (uint32_t)pid) atomic_store(&slot->joined, 0);
    gw_time ms = deadline / GW_MILLISECOND;
    atomic_store(&slot->deadline_ms, ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
    atomic_store(&slot->asks, 0);
    atomic_fetch_add(&slot->beats, 1);
    atomic_fetch_add(&slot->joined, 1);
}

void gw_heartbeat_open(gw_heartbeat *heartbeat, const char *roster_path, int member, gw_time deadline) {
    *heartbeat = (gw_heartbeat){.slot = NULL};
    int file = roster_path[0] ? open(roster_path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    if (large_enough(file)) heartbeat->memory = map(file);
    close(file);
    if (!heartbeat->memory) return;
    heartbeat->owner = getpid();
    heartbeat->slot = (gw_heartbeat_slot *)(void *)((char *)heartbeat->memory + GW_HEARTBEAT_AT) + member;
    claim(heartbeat->slot, heartbeat->owner, deadline);
}

void gw_heartbeat_beat(const gw_heartbeat *heartbeat) {
    if (heartbeat->slot) atomic_fetch_add_explicit(&heartbeat->slot->beats, 1, memory_order_relaxed);
}

void gw_heartbeat_publish(const gw_heartbeat *heartbeat, const char *address) {
    if (heartbeat->slot) snprintf(heartbeat->slot->address, sizeof heartbeat->slot->address, "%s", address);
}

void gw_heartbeat_await(const gw_heartbeat *heartbeat, int generation, int blamed) {
    if (!heartbeat->slot) return;
    atomic_store(&heartbeat->slot->blames, blamed);
    atomic_store(&heartbeat->slot->asks, generation);
}

void gw_heartbeat_close(gw_heartbeat *heartbeat) {
    if (!heartbeat->slot) return;
    if (heartbeat->owner == getpid()) atomic_fetch_sub(&heartbeat->slot->joined, 1);
    munmap(heartbeat->memory, GW_HEARTBEAT_FILE_BYTES);
    *heartbeat = (gw_heartbeat){.slot = NULL};
}

gw_heartbeat_slot *gw_heartbeat_map(int file) {
    void *memory = ftruncate(file, (off_t)GW_HEARTBEAT_FILE_BYTES) == 0 ? map(file) : NULL;
    return memory ? (gw_heartbeat_slot *)(void *)((char *)memory + GW_HEARTBEAT_AT) : NULL;
}

void gw_heartbeat_unmap(gw_heartbeat_slot *slots) {
    if (slots) munmap((char *)slots - GW_HEARTBEAT_AT, GW_HEARTBEAT_FILE_BYTES);
}
