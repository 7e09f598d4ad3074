/* wire.h - what the launcher and the supervisors on the hosts say to each other, over the standard input and output of
 * the remote shell.
 *
 * The supervisor greets with GW_WIRE_HELLO (whatever a login shell printed before it is not part of the conversation).
 * From then on both sides send frames: u32 payload bytes, u8 kind, u8 detail, u16 rank within the host, all little
 * endian, then the payload. */
#ifndef GW_LAUNCH_WIRE_H
#define GW_LAUNCH_WIRE_H

#include <stdint.h>

#include "launch/buffer.h"

#define GW_WIRE_HELLO "gradwire supervisor 2\n"
#define GW_WIRE_MAX_RANKS 65535
#define GW_WIRE_MAX_PAYLOAD (16u << 20) /* bytes; an order holds the arguments and the environment */

typedef enum gw_wire_kind {
    GW_WIRE_ORDER = 1, /* to the host: what to start (order.h); the first frame, and only once */
    GW_WIRE_END,       /* to the host: detail is the signal for all ranks; u32 ms later they are killed */
    GW_WIRE_ROLL,      /* to the host: the roll as it is from now on (base/roll.h), for all ranks to read */
    GW_WIRE_AGAIN,     /* to the host: this rank is to be started again, under that roll */
    GW_WIRE_KILL,      /* to the host: this rank holds up the others, who all wait in gw_regroup */
    GW_WIRE_REST,      /* to the host: nothing will be started any more */
    GW_WIRE_PING,      /* to the host: the launcher is there; to be answered by anything */
    GW_WIRE_PAUSE,     /* to the host: the launcher stops (Ctrl-Z); its silence means nothing until a ping */
    GW_WIRE_OUTPUT,    /* from the host: detail 1 or 2 is the stream, the payload its bytes */
    GW_WIRE_EXITED,    /* from the host: u32 wait status, u32 ms since the rank was started */
    GW_WIRE_PONG,      /* from the host: it is there */
    GW_WIRE_HUNG,      /* from the host: a rank has no heartbeat; detail 1: but a debugger holds it. u32 ms, u32 pid */
    GW_WIRE_ASKS,      /* from the host: a rank waits in gw_regroup for u32 round, having lost u32 rank + 1 (or 0) */
    GW_WIRE_MET,       /* from the host: the payload is the address at which this rank is met */
    GW_WIRE_NO_START,  /* from the host: detail a gw_start_step, u32 errno */
    GW_WIRE_DONE       /* from the host: nothing runs any more; u32 processes that could not be ended */
} gw_wire_kind;

typedef enum gw_start_step { GW_START_FORK, GW_START_DIRECTORY, GW_START_PROGRAM } gw_start_step;

typedef struct gw_wire_frame {
    gw_wire_kind kind;
    int detail;
    int rank;
    const char *payload; /* borrowed from the buffer until the frame is taken */
    uint32_t bytes;      /* of the payload */
} gw_wire_frame;

typedef enum gw_wire_state { GW_WIRE_PARTIAL, GW_WIRE_FRAME, GW_WIRE_BROKEN } gw_wire_state;

void gw_wire_put(gw_buffer *out, gw_wire_kind kind, int detail, int rank, const void *payload, uint32_t bytes);
/* Up to two numbers as payload. */
void gw_wire_put_numbers(gw_buffer *out, gw_wire_kind kind, int detail, int rank, uint32_t first, uint32_t second);
/* The i-th number of a payload, 0 if it is not there. */
uint32_t gw_wire_number(const gw_wire_frame *frame, int i);

/* Looks at the frame in front of `in`; gw_wire_take removes it. */
gw_wire_state gw_wire_peek(const gw_buffer *in, gw_wire_frame *frame);
void gw_wire_take(gw_buffer *in, const gw_wire_frame *frame);

#endif
