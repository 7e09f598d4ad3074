/* messages.h - messages: the sender's and the receiver's event of each one, matched. */
#ifndef GW_INSIGHT_MESSAGES_H
#define GW_INSIGHT_MESSAGES_H

#include "insight/capture_index.h"

typedef struct gw_message {
    int src, dst;
    uint32_t comm, index; /* see trace/event.h */
    uint64_t number;
    uint16_t channel;
    uint32_t name;
    uint64_t bytes;
    bool seen_sent, seen_arrived; /* which ends were recorded */
    gw_time handed, left;         /* handed to the transport; its buffer free again. The receiver's times if unknown */
    gw_time first, arrived;       /* time of its first byte, and of its last */
    uint64_t queued;              /* ns it waited for a grant or credit before it was handed over */
    uint64_t aside;               /* ns it lay in the receiver's unexpected queue */
    uint32_t retries;
} gw_message;

typedef struct gw_messages {
    gw_message *list; /* by handed */
    size_t count;
    size_t *arrivals; /* indices of all, by dst, comm, number, arrived: for gw_messages_last */
} gw_messages;

gw_status gw_messages_make(const gw_insight *insight, gw_messages *messages, gw_error *error);
void gw_messages_free(gw_messages *messages);
/* The last message of an operation that had arrived at a rank by then; NULL: none. */
const gw_message *gw_messages_last(const gw_messages *messages, int rank, uint32_t comm, uint64_t number, gw_time by);

#endif
