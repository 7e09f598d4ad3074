/* descriptor.h - the descriptors that this library keeps open, so that a forked child can close its copies of them.
 *
 * A child that keeps a copy of a socket keeps the connection: when its parent is killed, the peers see no end of it
 * until the child ends too (PyTorch's DataLoader workers are such children). fork() asks nobody and pthread_atfork takes
 * no argument, so what the child is to close must be known to the whole process: this is the one piece of state in the
 * library that belongs to no communicator. It is a set of bits, one for each descriptor, with a lock of its own that is
 * held for a system call at most and under which no other lock is taken; fork() waits for it, so a child always finds
 * the set as it is. Descriptors of other libraries (libzmq, libfabric, MPI) are not in it: their sockets stay open in a
 * child, and are no use to it.
 *
 * Any thread may call these functions. */
#ifndef GW_BASE_DESCRIPTOR_H
#define GW_BASE_DESCRIPTOR_H

#include <stdbool.h>

/* Children of this process will close fd. Returns fd; a negative one is left alone. */
int gw_fd_keep(int fd);
/* Closes a descriptor, whether it was kept or not; a negative one is left alone. */
void gw_fd_close(int fd);
/* No fork happens between the two: a descriptor that is made and kept in between stays open in no child. Both may be
 * nested; what the first returned is given to the second. */
bool gw_fd_hold(void);
void gw_fd_let_go(bool held);

/* How many forks lie between the first process and this one, as far as anything was kept before: who remembers the
 * number can tell that it is in a child. A load, not a system call. */
unsigned gw_fork_depth(void);

#endif
