/* pulse.c - see pulse.h. */
#include "base/pulse.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(gw_pulse_slot) == 256, "versions of the library and the launcher agree on it");
_Static_assert(GW_ROLL_TEXT <= GW_PULSE_AT, "the roll's text and the slots share a file");

static void *map(int file) {
    void *memory = mmap(NULL, GW_PULSE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool large_enough(int file) { return lseek(file, 0, SEEK_END) >= (off_t)GW_PULSE_FILE_BYTES; }

/* What a process of this seat left behind when it crashed does not count. */
static void enter(gw_pulse_slot *slot, pid_t pid, gw_time deadline) {
    if (atomic_exchange(&slot->pid, (uint32_t)pid) != (uint32_t)pid) atomic_store(&slot->joined, 0);
    gw_time ms = deadline / GW_MILLISECOND;
    atomic_store(&slot->deadline_ms, ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
    atomic_store(&slot->asks, 0);
    atomic_fetch_add(&slot->beats, 1);
    atomic_fetch_add(&slot->joined, 1);
}

void gw_pulse_open(gw_pulse *pulse, const char *roll_path, int seat, gw_time deadline) {
    *pulse = (gw_pulse){.slot = NULL};
    int file = roll_path[0] ? open(roll_path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    if (large_enough(file)) pulse->memory = map(file);
    close(file);
    if (!pulse->memory) return;
    pulse->owner = getpid();
    pulse->slot = (gw_pulse_slot *)(void *)((char *)pulse->memory + GW_PULSE_AT) + seat;
    enter(pulse->slot, pulse->owner, deadline);
}

void gw_pulse_beat(const gw_pulse *pulse) {
    if (pulse->slot) atomic_fetch_add_explicit(&pulse->slot->beats, 1, memory_order_relaxed);
}

void gw_pulse_publish(const gw_pulse *pulse, const char *address) {
    if (pulse->slot) snprintf(pulse->slot->address, sizeof pulse->slot->address, "%s", address);
}

void gw_pulse_ask(const gw_pulse *pulse, int round, int blamed) {
    if (!pulse->slot) return;
    atomic_store(&pulse->slot->blames, blamed);
    atomic_store(&pulse->slot->asks, round);
}

void gw_pulse_close(gw_pulse *pulse) {
    if (!pulse->slot) return;
    if (pulse->owner == getpid()) atomic_fetch_sub(&pulse->slot->joined, 1);
    munmap(pulse->memory, GW_PULSE_FILE_BYTES);
    *pulse = (gw_pulse){.slot = NULL};
}

gw_pulse_slot *gw_pulse_map(int file) {
    void *memory = ftruncate(file, (off_t)GW_PULSE_FILE_BYTES) == 0 ? map(file) : NULL;
    return memory ? (gw_pulse_slot *)(void *)((char *)memory + GW_PULSE_AT) : NULL;
}

void gw_pulse_unmap(gw_pulse_slot *slots) {
    if (slots) munmap((char *)slots - GW_PULSE_AT, GW_PULSE_FILE_BYTES);
}
