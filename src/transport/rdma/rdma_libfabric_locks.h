/* rdma_libfabric_locks.h - robust spin locks for libfabric's shm provider.
 *
 * The provider guards queues in shared memory by spin locks. A process that is killed while it holds one leaves all
 * others spinning inside libfabric, where no deadline applies. So libfabric's calls of pthread_spin_lock, and no others
 * of the process, are redirected here: a held lock contains its holder's pid, and is taken over when that process is
 * gone. A long wait also yields the core. */
#ifndef GW_TRANSPORT_RDMA_RDMA_LIBFABRIC_LOCKS_H
#define GW_TRANSPORT_RDMA_RDMA_LIBFABRIC_LOCKS_H

#include "base/status.h"

#include <pthread.h>

/* Redirects the calls. library: of dlopen. May be called again. GW_UNSUPPORTED where it cannot be done. */
gw_status gw_rdma_locks_redirect(void *library, gw_error *error);

/* Replace pthread_spin_lock, _trylock and _unlock, with the same contracts. */
int gw_rdma_locks_lock(pthread_spinlock_t *lock);
int gw_rdma_locks_try(pthread_spinlock_t *lock);
int gw_rdma_locks_unlock(pthread_spinlock_t *lock);

#endif
