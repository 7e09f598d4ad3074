/* rdma_locks.h - locks of libfabric that do not outlive their holder.
 *
 * Its shm provider guards queues in shared memory by spin locks, and a process that is killed while it holds one leaves
 * all others spinning inside libfabric, where no deadline reaches them. The calls of pthread_spin_lock in libfabric,
 * and in nothing else of the process, are therefore led here: a lock that is held says by whom, and one whose holder is
 * no more is taken over. Whoever waits long gives its core away, too. */
#ifndef GW_TRANSPORT_RDMA_LOCKS_H
#define GW_TRANSPORT_RDMA_LOCKS_H

#include "base/status.h"

#include <pthread.h>

/* library: of dlopen. Once for a process, though it may be asked for again. GW_UNSUPPORTED where it cannot be done. */
gw_status gw_rdma_locks_lead(void *library, gw_error *error);

/* What stands in for pthread_spin_lock, _trylock and _unlock, as they are defined. */
int gw_rdma_locks_lock(pthread_spinlock_t *lock);
int gw_rdma_locks_try(pthread_spinlock_t *lock);
int gw_rdma_locks_unlock(pthread_spinlock_t *lock);

#endif
