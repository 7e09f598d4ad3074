/* process.h - identifies a process although pids are reused, and notices when it ends. */
#ifndef GW_BASE_PROCESS_H
#define GW_BASE_PROCESS_H

#include <stdint.h>

/* Start time of a process in clock ticks since boot (proc(5), field 22 of stat); 0: unknown. pid 0: this process. */
uint64_t gw_process_started(int pid);
/* A pidfd (Linux 5.3) that becomes readable when this process has ended, whether or not its parent has waited for it.
 * Forked children close their copy. -1: the kernel has no pidfd or forbids it, or the pid now belongs to another
 * process. */
int gw_process_watch(int pid, uint64_t started);

#endif
