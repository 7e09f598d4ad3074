/* fork_descriptors.h - the descriptors that this library keeps open, so that a forked child can close its copies of
 * them.
 *
 * A child that keeps a copy of a socket keeps the connection open. If the parent is killed, its peers see no end of
 * stream until the child ends too (PyTorch's DataLoader workers are such children). A handler of pthread_atfork has no
 * argument, so the set of descriptors belongs to the process: it is the only state in the library that belongs to no
 * communicator. The set has one bit for each descriptor and its own lock. A thread that holds the lock makes a few
 * system calls that do not block, and takes no other lock. fork() takes the lock too, so a child finds a consistent
 * set. Descriptors of other libraries (libzmq, libfabric, MPI) are not in the set: their sockets stay open in a child.
 * Peers still notice a death, because the control links are ours.
 *
 * Any thread may call these functions. */
#ifndef GW_BASE_FORK_DESCRIPTORS_H
#define GW_BASE_FORK_DESCRIPTORS_H

#include <stdbool.h>

/* Registers fd: forked children close their copy. Returns fd; ignores a negative one. */
int gw_fd_register(int fd);
/* Closes a descriptor, registered or not; ignores a negative one. */
void gw_fd_close(int fd);
/* No fork happens between the two calls, so a descriptor that is opened and registered in between leaks into no child.
 * Calls may be nested: pass the result of the first to the second. */
bool gw_fork_block(void);
void gw_fork_unblock(bool blocked);

/* Number of forks between the first process and this one, counted since the first descriptor was registered. A caller
 * that remembers the number can tell that it runs in a child. Costs a load, not a system call. */
unsigned gw_fork_depth(void);

#endif
