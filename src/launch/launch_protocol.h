/* launch_protocol.h - the protocol between the launcher and the supervisors on the hosts, over standard input and
 * output of the remote shell.
 *
 * The supervisor first sends GW_LAUNCH_HELLO; bytes before it come from a login shell and are not part of the protocol.
 * Then both sides send frames: u32 payload bytes, u8 kind, u8 detail, u16 rank within the host, all little endian, then
 * the payload. */
#ifndef GW_LAUNCH_LAUNCH_PROTOCOL_H
#define GW_LAUNCH_LAUNCH_PROTOCOL_H

#include <stdint.h>

#include "launch/byte_queue.h"

#define GW_LAUNCH_HELLO "gradwire supervisor 2\n"
#define GW_LAUNCH_MAX_RANKS 65535
#define GW_LAUNCH_MAX_PAYLOAD (16u << 20) /* bytes; a host spec holds the arguments and the environment */

typedef enum gw_launch_kind {
    /* Launcher to supervisor. */
    GW_LAUNCH_HOST_SPEC = 1,  /* what to start (host_spec.h); the first frame, and only once */
    GW_LAUNCH_END,            /* detail is the signal for all ranks; u32 ms later they are killed */
    GW_LAUNCH_ROSTER,         /* the new roster (base/roster.h), for all ranks to read */
    GW_LAUNCH_RESTART,        /* start this rank again, under the last roster */
    GW_LAUNCH_KILL,           /* kill this rank: all others wait for it in gw_regroup */
    GW_LAUNCH_NO_MORE_STARTS, /* no rank will be started any more */
    GW_LAUNCH_PING,           /* the launcher is alive; answered by any frame */
    GW_LAUNCH_PAUSE,          /* the launcher stops (Ctrl-Z); its silence means nothing until a ping */
    /* Supervisor to launcher. */
    GW_LAUNCH_OUTPUT,   /* detail 1 or 2 is the stream, the payload its bytes */
    GW_LAUNCH_EXITED,   /* u32 wait status, u32 ms since the rank was started */
    GW_LAUNCH_PONG,     /* the supervisor is alive */
    GW_LAUNCH_HUNG,     /* a rank has no heartbeat; detail 1: but a debugger holds it. u32 ms, u32 pid */
    GW_LAUNCH_REGROUPS, /* a rank waits in gw_regroup: u32 generation, u32 lost rank + 1 (0: not known) */
    GW_LAUNCH_ADDRESS,  /* the payload is the address at which peers reach this rank */
    GW_LAUNCH_NO_START, /* detail is a gw_start_step; u32 errno */
    GW_LAUNCH_DONE      /* no rank runs any more; u32 processes that could not be killed */
} gw_launch_kind;

typedef enum gw_start_step { GW_START_FORK, GW_START_DIRECTORY, GW_START_PROGRAM } gw_start_step;

typedef struct gw_launch_frame {
    gw_launch_kind kind;
    int detail;
    int rank;
    const char *payload; /* borrowed from the buffer until the frame is taken */
    uint32_t bytes;      /* of the payload */
} gw_launch_frame;

typedef enum gw_launch_state { GW_LAUNCH_PARTIAL, GW_LAUNCH_FRAME, GW_LAUNCH_BROKEN } gw_launch_state;

void gw_launch_put(gw_buffer *out, gw_launch_kind kind, int detail, int rank, const void *payload, uint32_t bytes);
/* Up to two numbers as payload. */
void gw_launch_put_numbers(gw_buffer *out, gw_launch_kind kind, int detail, int rank, uint32_t first, uint32_t second);
/* The i-th number of a payload; 0: the payload is shorter. */
uint32_t gw_launch_number(const gw_launch_frame *frame, int i);

/* Decodes the first frame of `in`; gw_launch_take removes it. */
gw_launch_state gw_launch_peek(const gw_buffer *in, gw_launch_frame *frame);
void gw_launch_take(gw_buffer *in, const gw_launch_frame *frame);

#endif
