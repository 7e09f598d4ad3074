/* messages.h - the two ends of every message put together: what the sender and what the receiver recorded of it. */
#ifndef GW_INSIGHT_MESSAGES_H
#define GW_INSIGHT_MESSAGES_H

#include "insight/insight.h"

typedef struct gw_message {
    int src, dst;
    uint32_t comm, index; /* of trace/event.h */
    uint64_t number;
    uint16_t channel;
    uint32_t name;
    uint64_t bytes;
    bool seen_sent, seen_arrived; /* which ends were recorded */
    gw_time handed, left;   /* sent: to the transport; its memory was free again. From the other end where unknown */
    gw_time first, arrived; /* its first byte, and its last */
    uint64_t queued;        /* ns it waited for room at the receiver before it was handed over */
    uint64_t aside;         /* ns it lay at the receiver before it was wanted */
    uint32_t retries;
} gw_message;

typedef struct gw_messages {
    gw_message *list; /* by handed */
    size_t count;
    size_t *arrivals; /* all of them, by dst, comm, number, arrived: for gw_messages_last */
} gw_messages;

gw_status gw_messages_make(const gw_insight *insight, gw_messages *messages, gw_error *error);
void gw_messages_free(gw_messages *messages);
/* The last message of an operation that a rank had got by then; NULL: none. */
const gw_message *gw_messages_last(const gw_messages *messages, int rank, uint32_t comm, uint64_t number, gw_time by);

#endif
