/* capture.h - the binary form of a recording: blocks, one after the other, each of one rank, each with a checksum.
 *
 * All ranks of a host append to the same file, a block with each write. A rank that is killed loses at most its last
 * block; one that was cut short, in the middle of the file too, costs nothing but its own end, because every block can
 * be found by its first eight bytes. Written out for other readers in docs/seeing.md.
 *
 *     block   magic "GWTRACE\n", then 32 bits each: bytes of the payload, rank, kind, CRC-32 of all that and the
 *             payload (with these four bytes left out)
 *     RANK    version, world, host number, offset (signed), uncertainty, origin, wall clock, host, strategy
 *     NAMES   number, text; again and again
 *     EVENTS  kind (a byte), begin (signed, from the one before), end - begin, name, number, bytes, comm, peer + 1,
 *             index, queued, channel, retries; again and again
 *     STATE   events dropped so far, 1 where recording was ended in order
 */
#ifndef GW_TRACE_CAPTURE_H
#define GW_TRACE_CAPTURE_H

#include "trace/event.h"
#include "trace/pack.h"

#define GW_CAPTURE_MAGIC "GWTRACE\n"
#define GW_CAPTURE_VERSION 1
#define GW_CAPTURE_HEADER 24 /* bytes */
#define GW_CAPTURE_EVENT_MAX (1 + 11 * GW_PACK_MAX)
#define GW_CAPTURE_TEXT_MAX 255  /* bytes of a name */
#define GW_CAPTURE_PAYLOAD_MAX (1 << 20)

typedef enum gw_capture_block {
    GW_CAPTURE_RANK = 1,
    GW_CAPTURE_NAMES = 2,
    GW_CAPTURE_EVENTS = 3,
    GW_CAPTURE_STATE = 4
} gw_capture_block;

/* What a rank says of itself. */
typedef struct gw_capture_rank {
    int world, host_number;
    int64_t offset;       /* ns to be added to this rank's clock to get the first rank's */
    uint64_t uncertainty; /* ns: half the shortest round trip that it was measured with */
    gw_time origin;       /* of the first rank's clock: when recording began */
    uint64_t wall;        /* ns since 1970 on the first rank at that moment */
    char host[GW_CAPTURE_TEXT_MAX + 1];
    char strategy[GW_CAPTURE_TEXT_MAX + 1];
} gw_capture_rank;

/* Fills in the header of a block whose payload stands behind it. */
void gw_capture_seal(uint8_t *block, gw_capture_block kind, uint32_t rank, size_t payload);
/* The checksum that a header should hold. */
uint32_t gw_capture_sum(const uint8_t *block, size_t payload);

/* Each writes at `at` and returns the place behind it; each has room for the largest. */
uint8_t *gw_capture_put_text(uint8_t *at, const char *text);
uint8_t *gw_capture_put_rank(uint8_t *at, const gw_capture_rank *rank);
uint8_t *gw_capture_put_event(uint8_t *at, const gw_trace_event *event, gw_time *before);

/* Each reads one; false, and the unpacker is `short_of`, where the bytes do not suffice or make no sense. Texts are
 * made printable. */
bool gw_capture_get_text(gw_unpacker *from, char text[GW_CAPTURE_TEXT_MAX + 1]);
bool gw_capture_get_rank(gw_unpacker *from, gw_capture_rank *rank);
bool gw_capture_get_event(gw_unpacker *from, gw_trace_event *event, gw_time *before);

/* Replaces what would need care in JSON, CSV and HTML: control characters, quotes, backslashes, angle brackets. */
void gw_capture_clean(char *text);

#endif
