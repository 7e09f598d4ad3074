/* descriptor.h - the descriptors that this library keeps open, so that a forked child can close its copies of them.
 *
 * A child that keeps a copy of a socket keeps the connection: when its parent is killed, the peers see no end of it
 * until the child ends too (PyTorch's DataLoader workers are such children). A handler of pthread_atfork has no
 * argument, so the set of descriptors belongs to the process: it is the only state in the library that belongs to no
 * communicator. It has one bit for each descriptor and a lock of its own. A thread that holds the lock makes a few
 * system calls that do not block, and takes no other lock; fork() takes it too, so a child finds the set as it is.
 * Descriptors of other libraries (libzmq, libfabric, MPI) are not in it: their sockets stay open in a child. Peers
 * notice a death all the same, because the control links are ours.
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
