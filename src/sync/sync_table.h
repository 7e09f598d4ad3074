/* sync_table.h - the table of synchronizations. */
#ifndef GW_SYNC_SYNC_TABLE_H
#define GW_SYNC_SYNC_TABLE_H

/* The only table of synchronizations: to add one, add a line here and a file. The first is the default. */
#define GW_SYNCS(X)                                                                                                    \
    X(bsp)                                                                                                             \
    X(asp)                                                                                                             \
    X(ssp)                                                                                                             \
    X(backup)                                                                                                          \
    X(delayed)                                                                                                         \
    X(periodic)

#endif
