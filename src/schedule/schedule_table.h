/* schedule_table.h - the table of schedules. */
#ifndef GW_SCHEDULE_SCHEDULE_TABLE_H
#define GW_SCHEDULE_SCHEDULE_TABLE_H

/* The only table of schedules: to add a schedule, add a line here and a file. The first is the default. */
#define GW_SCHEDULES(X)                                                                                                \
    X(wfbp)                                                                                                            \
    X(fifo)                                                                                                            \
    X(mgwfbp)                                                                                                          \
    X(p3)                                                                                                              \
    X(bytescheduler)                                                                                                   \
    X(tictac)                                                                                                          \
    X(dear)

#endif
