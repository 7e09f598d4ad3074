/* event.h - the events of a recording: fixed-size records of what happened on a rank.
 *
 * Times are of the recording rank's own clock. Its offset to the first rank's clock is measured when the recording
 * begins and stored in the file; readers apply it. */
#ifndef GW_TRACE_EVENT_H
#define GW_TRACE_EVENT_H

#include <stdint.h>

#include "base/clock.h"

/* Numbers are part of the file format (docs/reference/recording.md): new ones go to the end. */
#define GW_TRACE_KIND_LIST(X)                                                                                          \
    X(STEP, 0, "step")            /* a training step (step_mark.h) */                                                  \
    X(FORWARD, 1, "forward")      /* a layer */                                                                        \
    X(BACKWARD, 2, "backward")    /* a layer */                                                                        \
    X(READY, 3, "ready")          /* a tensor's gradient is complete */                                                \
    X(QUEUED, 4, "queued")        /* a tensor, from ready until its transfer began */                                  \
    X(FUSED, 5, "fused")          /* a tensor was put into a bucket, whose number is `index` */                        \
    X(ENCODED, 6, "encoded")      /* compressed; bytes: the compressed size */                                         \
    X(REDUCED, 7, "reduced")      /* a reduction */                                                                    \
    X(DECODED, 8, "decoded")      /* decompressed */                                                                   \
    X(APPLIED, 9, "applied")      /* the weights were updated */                                                       \
    X(WAITED, 10, "waited")       /* the caller waited for an operation or a tensor */                                 \
    X(OPERATION, 11, "operation") /* from its start to its end; `channel` is its gw_status */                          \
    X(SENT, 12, "sent")           /* a message: from its handing to the transport until its buffer was free */         \
    X(ARRIVED, 13, "arrived")     /* a message: from its first byte to its last */                                     \
    X(COLL, 14, "shm")            /* an action of a plan done in shared memory */                                      \
    X(VALUE, 15, "value")         /* a number: `bytes` holds the bits of a double */

typedef enum gw_trace_kind {
#define GW_TRACE_KIND_ENUM(name, number, text) GW_TRACE_##name = number,
    GW_TRACE_KIND_LIST(GW_TRACE_KIND_ENUM)
#undef GW_TRACE_KIND_ENUM
        GW_TRACE_KINDS /* how many there are */
} gw_trace_kind;

#define GW_TRACE_PAIR (UINT32_C(3) << 30) /* bits of comm: a point-to-point operation, and its direction */

typedef struct gw_trace_event {
    gw_time begin, end; /* ns; equal for an instant */
    uint64_t number;    /* of the operation; of the training step for events of a step */
    uint64_t bytes;
    uint32_t name;    /* from gw_trace_name: the tensor, the layer, the operation's kind, a step's strategy; 0: none */
    int32_t peer;     /* sent, arrived: the other rank; -1: none */
    uint32_t comm;    /* operation, messages, waited: the communicator's number */
    uint32_t index;   /* message: its index in its stream; operation: name of its data; tensor: bucket or slice;
                         step: 1 if no step ended where it began */
    uint32_t queued;  /* ns. sent: waited for a grant or credit. arrived: lay in the unexpected queue */
    uint16_t channel; /* message: the channel of its stream; waited: 1 if beside the thread that makes the steps */
    uint8_t retries;  /* sent: attempts without a grant or credit */
    uint8_t kind;     /* gw_trace_kind */
} gw_trace_event;

const char *gw_trace_kind_name(gw_trace_kind kind);

#endif
