/* frame.h - the header of every message between ranks, once both have proved the job token.
 *
 * 64 bytes, little-endian, fixed. It has the signature of the collective (which one, elements, type, operation, scale,
 * root, plan builder), so that ranks that disagree notice it at the first message. */
#ifndef GW_TRANSPORT_FRAME_H
#define GW_TRANSPORT_FRAME_H

#include "base/status.h"

#define GW_FRAME_BYTES 64
#define GW_FRAME_PAYLOAD_MAX ((uint64_t)1 << 40)

typedef enum gw_frame_kind {
    GW_FRAME_DATA = 1, /* message `index` of (comm, op, channel); length bytes follow */
    GW_FRAME_GRANT,    /* clear-to-send: the receiver has buffers for messages 0..index-1 of (comm, op, channel) */
    GW_FRAME_CREDIT,   /* nothing but `credits` */
    GW_FRAME_RTS,      /* ready-to-send: announces the tagged send (comm, op), which waits for a grant */
} gw_frame_kind;

#define GW_FRAME_EAGER 1u /* flag of DATA: sent without a grant, uses one credit */

typedef struct gw_frame {
    uint8_t kind;
    uint8_t flags;
    uint8_t collective, dtype, redop, builder; /* signature; builder: gw_plan_id */
    uint16_t credits;                          /* eager credits that the sender gives back to the receiver */
    uint32_t comm;
    uint32_t channel;
    uint64_t op;
    uint64_t index;
    uint64_t count;  /* signature: elements, or a hash of uneven counts */
    int32_t root;    /* signature */
    uint32_t tag;    /* of a tagged send; else 0 */
    uint64_t scale;  /* signature: both factors, coded by the engine; 0: none, and in sends */
    uint64_t length; /* payload bytes that follow */
} gw_frame;

void gw_frame_write(const gw_frame *frame, uint8_t bytes[GW_FRAME_BYTES]);
/* Checks kind, ranges, that only DATA has a payload, and that CREDIT has no tag. On failure the sentence says which
 * field was wrong. */
gw_status gw_frame_check(const gw_frame *frame, gw_error *error);
/* Checks magic, kind, ranges. On failure the sentence says which field was wrong. */
gw_status gw_frame_read(gw_frame *frame, const uint8_t bytes[GW_FRAME_BYTES], gw_error *error);

#endif
