/* read.h - blocks of a capture as they are read, before events are put in order. For read.c and insight.c. */
#ifndef GW_INSIGHT_READ_H
#define GW_INSIGHT_READ_H

#include "insight/insight.h"

/* A rank while it is read: its own numbers of names. */
typedef struct gw_reading_rank {
    uint32_t *names; /* own number -> common number */
    uint32_t name_room;
} gw_reading_rank;

typedef struct gw_reading {
    gw_insight *insight;
    gw_reading_rank *ranks; /* insight->rank_count entries */
    size_t event_room;
    uint32_t name_room;
    uint32_t *table; /* hash of common names; 0: free */
    uint32_t table_size;
    bool no_memory;
} gw_reading;

/* Adds the blocks of one file. False: it holds none. */
bool gw_reading_blocks(gw_reading *reading, const uint8_t *bytes, size_t size);
uint32_t gw_reading_name(gw_reading *reading, const char *text);
void gw_reading_free(gw_reading *reading);

#endif
