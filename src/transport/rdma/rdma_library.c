/* rdma_library.c - see rdma_library.h. */
#include "transport/rdma/rdma_library.h"

#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#define NAME "libfabric.so.1"

/* libinfinipath, a dependency of Debian's libfabric, installs handlers for these signals when it is loaded. The
 * program's own are restored. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static void *load(void) {
    struct sigaction before[SIGNALS];
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], NULL, &before[i]);
    void *handle = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
    return handle;
}

gw_status gw_rdma_library_load(gw_rdma_library *library, gw_error *error) {
    static const char *const names[] = {"fi_getinfo", "fi_freeinfo", "fi_dupinfo",
                                        "fi_fabric",  "fi_strerror", "fi_version"};
    void *found[6];
    void *handle = load();
    if (!handle)
        return gw_fail(error, GW_UNSUPPORTED, "rdma: libfabric cannot be loaded: %s; install it (Debian: libfabric1)",
                       dlerror());
    for (int i = 0; i < 6; i++) {
        found[i] = dlsym(handle, names[i]);
        if (!found[i])
            return gw_fail(error, GW_UNSUPPORTED, "rdma: %s has no %s: install libfabric 1.11 or later", NAME,
                           names[i]);
    }
    _Static_assert(offsetof(gw_rdma_library, handle) == sizeof found, "six functions");
    memcpy(library, found, sizeof found);
    library->handle = handle;
    return GW_OK;
}
