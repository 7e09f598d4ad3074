/* mpi_load.c - see mpi_load.h. */
#include "transport/mpi/mpi_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where modules are installed: mpi.cmake defines these. */
#ifndef GW_SHIM_DIR
#define GW_LIBDIR "lib" /* below the prefix */
#define GW_SHIM_DIR "/usr/local/lib/gradwire"
#endif

static bool set(const char *variable) {
    const char *text = getenv(variable);
    return text && text[0];
}

/* NULL: unknown. */
static const char *guess(void) {
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world")) return "openmpi";
    if (dlsym(RTLD_DEFAULT, "MPI_Init_thread")) return "mpich";
    if (set("OMPI_COMM_WORLD_SIZE") || set("PMIX_RANK")) return "openmpi";
    if (set("PMI_RANK") || set("PMI_FD")) return "mpich";
    return NULL;
}

/* The folder of the program or library that contains this code. */
static void own_folder(char folder[PATH_MAX]) {
    Dl_info info;
    char file[PATH_MAX] = "";
    snprintf(folder, PATH_MAX, ".");
    ssize_t length = readlink("/proc/self/exe", file, sizeof file - 1);
    bool shared = dladdr((void *)(uintptr_t)&gw_mpi_load, &info) && info.dli_fname && strstr(info.dli_fname, ".so");
    if (shared) snprintf(file, sizeof file, "%s", info.dli_fname);
    else if (length <= 0) return;
    char *slash = strrchr(file, '/');
    if (!slash) return;
    *slash = '\0';
    snprintf(folder, PATH_MAX, "%s", file);
}

/* After a failure dlerror() describes the last try. RTLD_GLOBAL: Open MPI's own plugins need its symbols. */
static void *open_shim(const char *library) {
    char folder[PATH_MAX], path[PATH_MAX + 64];
    own_folder(folder);
    static const char *const places[] = {"", "/..", "/gradwire", "/../" GW_LIBDIR "/gradwire"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s/libgradwire-mpi-%s.so", folder, places[i], library);
        if (access(path, R_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    }
    snprintf(path, sizeof path, "%s/libgradwire-mpi-%s.so", GW_SHIM_DIR, library);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
}

gw_status gw_mpi_load(const char *library, const gw_mpi_table **table, gw_error *error) {
    if (strcmp(library, "auto") == 0) library = guess();
    if (!library)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=mpi: no MPI has started this process: start the ranks with mpirun, or with srun "
                       "--mpi=pmix");
    void *shim = open_shim(library);
    if (!shim) {
        bool mpich = strcmp(library, "mpich") == 0;
        const char *why = dlerror(), *name = mpich ? "MPICH" : "Open MPI";
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=mpi under %s needs libgradwire-mpi-%s.so, which is made when gradwire is built where "
                       "%s is: install %s and build again, or choose transport=tcp (%.200s)",
                       name, library, name, mpich ? "libmpich-dev" : "libopenmpi-dev", why ? why : "no reason given");
    }
    const gw_mpi_table *found = dlsym(shim, GW_MPI_TABLE_SYMBOL);
    if (!found || found->version != GW_MPI_TABLE_VERSION)
        return gw_fail(error, GW_UNSUPPORTED,
                       "libgradwire-mpi-%s.so is of another version than this gradwire: build and install both "
                       "together",
                       library);
    *table = found;
    return GW_OK;
}
