/* host_memory.c - finds pointers that this process cannot read, such as memory of a GPU, before they are used.
 *
 * Cost: a system call for the first use of a page; afterwards a look into a small table. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/comm.h"

/* The kernel reads the signal set at `address` before it looks at the other arguments, which are invalid: EFAULT means
 * that it could not read, EINVAL that it could. Nothing changes either way. */
static bool kernel_reads(const void *address) {
    const uintptr_t word = (uintptr_t)address & ~(uintptr_t)7;
    return syscall(SYS_rt_sigprocmask, -1, word, NULL, 8) == 0 || errno != EFAULT;
}

bool gw_memory_is_readable(gw_comm *comm, const void *address) {
    uintptr_t page = (uintptr_t)address >> 12;
    if (gw_memory_was_readable(comm, address)) return true;
    if (!kernel_reads(address)) return false;
    comm->probed[page % GW_PROBED_PAGES] = ~page;
    return true;
}
