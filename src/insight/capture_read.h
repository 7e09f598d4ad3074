/* capture_read.h - reads the blocks of a capture; capture_index.c then sorts the events. For capture_read.c and
 * capture_index.c. */
#ifndef GW_INSIGHT_CAPTURE_READ_H
#define GW_INSIGHT_CAPTURE_READ_H

#include "insight/capture_index.h"

/* The state of one rank while its capture is read. */
typedef struct gw_capture_reader_rank {
    uint32_t *names; /* the rank's number of a name -> the common number */
    uint32_t name_capacity;
} gw_capture_reader_rank;

typedef struct gw_capture_reader {
    gw_insight *insight;
    gw_capture_reader_rank *ranks; /* insight->rank_count entries */
    size_t event_capacity;
    uint32_t name_capacity;
    uint32_t *table; /* hash table of common names; 0: free */
    uint32_t table_size;
    bool no_memory;
} gw_capture_reader;

/* The first RANK block of a file. False: it has none. */
bool gw_capture_reader_first(const uint8_t *bytes, size_t size, gw_capture_rank *rank);
/* Adds the blocks of one file. False: it has none. */
bool gw_capture_reader_blocks(gw_capture_reader *reading, const uint8_t *bytes, size_t size);
uint32_t gw_capture_reader_name(gw_capture_reader *reading, const char *text);
void gw_capture_reader_free(gw_capture_reader *reading);

#endif
