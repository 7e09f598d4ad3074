/* rdma_library.h - libfabric, loaded when it is first needed.
 *
 * It is not linked: loading it takes most of a second (Debian's depends on libraries that time the processor and read
 * all kernel symbols), and a program must run where it is not installed. The rest of its interface is inline. */
#ifndef GW_TRANSPORT_RDMA_RDMA_LIBRARY_H
#define GW_TRANSPORT_RDMA_RDMA_LIBRARY_H

#include "base/status.h"

#include <rdma/fabric.h>

typedef struct gw_rdma_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info); /* NULL: an empty one */
    int (*fabric)(struct fi_fabric_attr *attributes, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
    void *handle; /* of dlopen */
} gw_rdma_library;

/* It stays loaded until the process ends. */
gw_status gw_rdma_library_load(gw_rdma_library *library, gw_error *error);

#endif
