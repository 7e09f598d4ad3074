/* rdma_locks.c - see rdma_locks.h. A free lock looks as the C library's own does, so what was locked or initialised
 * before the calls were led here stays right; a held one is the holder's process number, negated. */
#include "transport/rdma_locks.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 256 /* at a lock that is held, before the core is given away */
#define DOUBTS 64 /* so often, before it is asked whether the holder lives: half a millisecond on an idle machine */

/* What a free lock is, and who we are. Written before the first call is led here, and the same ever after. */
static _Atomic int free_lock, self;

/* Gone, whether its parent has noticed or not. Whoever cannot be asked about lives. */
static bool is_gone(pid_t process) {
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, process, 0), .events = POLLIN};
    if (end.fd < 0) return errno == ESRCH;
    bool gone = poll(&end, 1, 0) > 0;
    close(end.fd);
    return gone;
}

static bool change(pthread_spinlock_t *lock, int from, int to) {
    return __atomic_compare_exchange_n(lock, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

int gw_rdma_locks_try(pthread_spinlock_t *lock) {
    int unheld = atomic_load_explicit(&free_lock, memory_order_relaxed);
    return change(lock, unheld, -atomic_load_explicit(&self, memory_order_relaxed)) ? 0 : EBUSY;
}

/* Looks for a while whether it is free, without taking the memory from who holds it. */
static bool comes_free(pthread_spinlock_t *lock) {
    int unheld = atomic_load_explicit(&free_lock, memory_order_relaxed);
    for (int looks = 0; looks < LOOKS; looks++) {
        if (__atomic_load_n(lock, __ATOMIC_RELAXED) == unheld) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return false;
}

int gw_rdma_locks_lock(pthread_spinlock_t *lock) {
    for (unsigned fruitless = 0; gw_rdma_locks_try(lock) != 0;) {
        if (comes_free(lock)) continue;
        sched_yield();
        int held = __atomic_load_n(lock, __ATOMIC_RELAXED);
        if (++fruitless % DOUBTS == 0 && held < 0 && is_gone(-held) && change(lock, held, -atomic_load(&self))) break;
    }
    return 0;
}

int gw_rdma_locks_unlock(pthread_spinlock_t *lock) {
    __atomic_store_n(lock, atomic_load_explicit(&free_lock, memory_order_relaxed), __ATOMIC_RELEASE);
    return 0;
}

/* ---- leading the calls here ---- */

static const struct {
    const char *name;
    int (*ours)(pthread_spinlock_t *lock);
} led[] = {
    {"pthread_spin_lock", gw_rdma_locks_lock},
    {"pthread_spin_trylock", gw_rdma_locks_try},
    {"pthread_spin_unlock", gw_rdma_locks_unlock},
};

/* The cell is read-only since the library was loaded. */
static bool put(void **cell, int (*ours)(pthread_spinlock_t *lock)) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)cell / page * page;
    if (mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0) return false;
    memcpy(cell, &ours, sizeof ours);
    return mprotect((void *)first, page, PROT_READ) == 0;
}

/* Of one loaded library: where the linker has noted what it calls elsewhere. */
typedef struct calls {
    const char *names;
    const ElfW(Sym) *symbols;
    const ElfW(Rela) *list;
    size_t count;
} calls;

static calls calls_of(const struct link_map *map) {
    calls found = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) found.names = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) found.symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) found.list = (const ElfW(Rela) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) found.count = entry->d_un.d_val / sizeof(ElfW(Rela));
    }
    return found;
}

static bool lead(const struct link_map *map, const calls *all) {
    for (size_t i = 0; all->list && i < all->count; i++) {
        const char *name = all->names + all->symbols[ELF64_R_SYM(all->list[i].r_info)].st_name;
        void **cell = (void **)(map->l_addr + all->list[i].r_offset);
        for (size_t k = 0; k < sizeof led / sizeof led[0]; k++)
            if (strcmp(name, led[k].name) == 0 && !put(cell, led[k].ours)) return false;
    }
    return true;
}

gw_status gw_rdma_locks_lead(void *library, gw_error *error) {
    struct link_map *map = NULL;
    pthread_spinlock_t probe;
    pthread_spin_init(&probe, PTHREAD_PROCESS_SHARED);
    atomic_store(&free_lock, (int)probe);
    atomic_store(&self, (int)getpid());
    calls all = {0};
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) all = calls_of(map);
    if (map && lead(map, &all)) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED,
                   "rdma: the locks of libfabric's shm provider cannot be guarded here, and a rank that dies would "
                   "leave the others waiting for ever: use transport=shm");
}
