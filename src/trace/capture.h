/* capture.h - the binary format of a recording: a sequence of blocks, each of one rank and with a checksum.
 *
 * All ranks of a host append to one file, one block per write. A rank that is killed loses at most its last block. A
 * truncated block, even in the middle of the file, loses only its own end: every block is found by its first eight
 * bytes. docs/reference/recording.md describes the format for other readers.
 *
 *     block   magic "GWTRACE\n", then 32 bits each: bytes of the payload, rank, kind, CRC-32 of all that and the
 *             payload (with these four bytes left out)
 *     RANK    version, world, host number, offset (signed), uncertainty, origin, wall clock, host, strategy
 *     NAMES   number, text; repeated
 *     EVENTS  kind (a byte), begin (signed, relative to the previous event), end - begin, name, number, bytes,
 *             comm, peer + 1, index, queued, channel, retries; repeated
 *     STATE   events dropped so far, 1 if the recording ended in order
 */
#ifndef GW_TRACE_CAPTURE_H
#define GW_TRACE_CAPTURE_H

#include "trace/event.h"
#include "trace/pack.h"

#define GW_CAPTURE_MAGIC "GWTRACE\n"
#define GW_CAPTURE_VERSION 1
#define GW_CAPTURE_HEADER 24 /* bytes */
#define GW_CAPTURE_EVENT_MAX (1 + 11 * GW_PACK_MAX)
#define GW_CAPTURE_TEXT_MAX 255 /* bytes of a name */
#define GW_CAPTURE_PAYLOAD_MAX (1 << 20)

typedef enum gw_capture_block {
    GW_CAPTURE_RANK = 1,
    GW_CAPTURE_NAMES = 2,
    GW_CAPTURE_EVENTS = 3,
    GW_CAPTURE_STATE = 4
} gw_capture_block;

/* The RANK block. */
typedef struct gw_capture_rank {
    int world, host_number;
    int64_t offset;       /* ns; first rank's clock = this rank's clock + offset */
    uint64_t uncertainty; /* of offset, ns: half the shortest round trip measured */
    gw_time origin;       /* start of the recording, by the first rank's clock */
    uint64_t wall;        /* the same, ns since 1970 on the first rank */
    char host[GW_CAPTURE_TEXT_MAX + 1];
    char strategy[GW_CAPTURE_TEXT_MAX + 1];
} gw_capture_rank;

/* Fills in the header of a block; the payload already follows it. */
void gw_capture_seal(uint8_t *block, gw_capture_block kind, uint32_t rank, size_t payload);
/* The checksum that the header must contain. */
uint32_t gw_capture_checksum(const uint8_t *block, size_t payload);

/* Each writes at `at`, which must have room for the largest value, and returns the end. */
uint8_t *gw_capture_put_text(uint8_t *at, const char *text);
uint8_t *gw_capture_put_rank(uint8_t *at, const gw_capture_rank *rank);
uint8_t *gw_capture_put_event(uint8_t *at, const gw_trace_event *event, gw_time *before);

/* Each reads one value. False, with the unpacker's `short_of` set, if the bytes are too few or invalid. Texts are made
 * printable. */
bool gw_capture_get_text(gw_unpacker *from, char text[GW_CAPTURE_TEXT_MAX + 1]);
bool gw_capture_get_rank(gw_unpacker *from, gw_capture_rank *rank);
bool gw_capture_get_event(gw_unpacker *from, gw_trace_event *event, gw_time *before);

/* Replaces characters that need escaping in JSON, CSV or HTML: control characters, quotes, backslashes, brackets, &. */
void gw_capture_clean(char *text);

#endif
