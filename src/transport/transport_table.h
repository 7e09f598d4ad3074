/* transport_table.h - the table of transports. */
#ifndef GW_TRANSPORT_TRANSPORT_TABLE_H
#define GW_TRANSPORT_TRANSPORT_TABLE_H

/* The only table of transports: to add one, add a line here and a file. The first is the default of the axis. */
#define GW_TRANSPORTS(X)                                                                                               \
    X(auto)                                                                                                            \
    X(tcp)                                                                                                             \
    X(rdma)                                                                                                            \
    X(shm)                                                                                                             \
    X(zmq)                                                                                                             \
    X(mpi)

#endif
