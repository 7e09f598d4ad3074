/* process.h - telling one process from another that has its number later, and being told when it ends. */
#ifndef GW_BASE_PROCESS_H
#define GW_BASE_PROCESS_H

#include <stdint.h>

/* When it was started, in clock ticks since boot (proc(5), field 22 of stat); 0: it cannot be told. pid 0: this one. */
uint64_t gw_process_started(int pid);
/* A descriptor that becomes readable when this process has ended, whether or not anybody has waited for it (Linux 5.3),
 * and that no forked child keeps. -1: there is none, because the kernel has no such thing or forbids it, or because the
 * number belongs to another process now. */
int gw_process_watch(int pid, uint64_t started);

#endif
