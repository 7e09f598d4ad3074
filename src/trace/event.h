/* event.h - what is recorded of a run: one fixed-size event for everything that happened on a rank.
 *
 * Times are of the recording rank's own clock; the offset to that of the first rank was measured when recording began,
 * stands in the file, and is applied by whoever reads it. */
#ifndef GW_TRACE_EVENT_H
#define GW_TRACE_EVENT_H

#include <stdint.h>

#include "base/clock.h"

/* Numbers are part of the file format (docs/seeing.md): new ones go to the end. */
#define GW_TRACE_KIND_LIST(X)                                                                                          \
    X(STEP, 0, "step")            /* a training step */                                                                \
    X(FORWARD, 1, "forward")      /* a layer */                                                                        \
    X(BACKWARD, 2, "backward")    /* a layer */                                                                        \
    X(READY, 3, "ready")          /* a tensor's gradient is complete */                                                \
    X(QUEUED, 4, "queued")        /* a tensor, from ready until it began to travel */                                  \
    X(FUSED, 5, "fused")          /* a tensor joined a bucket, whose number is `index` */                              \
    X(ENCODED, 6, "encoded")      /* compressed; bytes: what is left of it */                                          \
    X(REDUCED, 7, "reduced")      /* added up */                                                                       \
    X(DECODED, 8, "decoded")      /* decompressed */                                                                   \
    X(APPLIED, 9, "applied")      /* the weights were updated */                                                       \
    X(WAITED, 10, "waited")       /* the caller waited for an operation or a tensor */                                 \
    X(OPERATION, 11, "operation") /* from its start to its end; `channel` is its gw_status */                          \
    X(SENT, 12, "sent")           /* a message: from being handed to the transport until its memory was free again */  \
    X(ARRIVED, 13, "arrived")     /* a message: from its first byte to its last */                                     \
    X(BOARD, 14, "board")         /* a step of a plan done in shared memory */                                         \
    X(VALUE, 15, "value")         /* a number: `bytes` holds the bits of a double */

typedef enum gw_trace_kind {
#define GW_TRACE_KIND_ENUM(name, number, text) GW_TRACE_##name = number,
    GW_TRACE_KIND_LIST(GW_TRACE_KIND_ENUM)
#undef GW_TRACE_KIND_ENUM
    GW_TRACE_KINDS /* how many there are */
} gw_trace_kind;

#define GW_TRACE_PAIR (UINT32_C(3) << 30) /* of comm: a point-to-point operation, and its direction */

typedef struct gw_trace_event {
    gw_time begin, end; /* ns; the same for what takes no time */
    uint64_t number;    /* of the operation; of the training step for what belongs to one */
    uint64_t bytes;
    uint32_t name;      /* of gw_trace_name: the tensor, the layer, the operation's kind; 0: none */
    int32_t peer;       /* sent, arrived: the other rank; -1: none */
    uint32_t comm;      /* operation, messages, waited: the communicator's number */
    uint32_t index;     /* message: its place in its stream; operation: name of what it carries; tensor: its piece */
    uint32_t queued;    /* ns. sent: waited for room at the receiver. arrived: lay there until it was wanted */
    uint16_t channel;   /* message: its stream */
    uint8_t retries;    /* sent: how often the receiver had no room */
    uint8_t kind;       /* gw_trace_kind */
} gw_trace_event;

const char *gw_trace_kind_name(gw_trace_kind kind);

#endif
