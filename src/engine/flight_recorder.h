/* flight_recorder.h - a flight recorder: the last operations of a rank, written to a file when something goes wrong. */
#ifndef GW_ENGINE_FLIGHT_RECORDER_H
#define GW_ENGINE_FLIGHT_RECORDER_H

#include "engine/engine.h"

#define GW_FLIGHT_ENTRIES 32
#define GW_FLIGHT_RECORDS 256 /* files that stay in a folder */

typedef struct gw_flight_entry {
    const gw_op *op;        /* identity only: its memory may have been reused */
    gw_time started, ended; /* ended 0: not yet */
    gw_status status;
    gw_op_brief brief;
} gw_flight_entry;

typedef struct gw_flight {
    uint64_t count; /* operations recorded so far */
    gw_flight_entry entries[GW_FLIGHT_ENTRIES];
} gw_flight;

void gw_flight_begin(gw_flight *flight, const gw_op *op, gw_time now);
void gw_flight_end(gw_flight *flight, const gw_op *op, gw_time now);
/* Records an operation of the fast path as done at now. If the call then becomes an ordinary operation, gw_flight_undo
 * removes the record; no other function of this file may be called in between. */
void gw_flight_add_done(gw_flight *flight, const gw_op_brief *brief, gw_time now);
void gw_flight_undo(gw_flight *flight);
#define GW_FLIGHT_PATH 512 /* bytes of the path of a record */

/* Writes gradwire-flight-<rank>-<pid>.txt, readable by its owner only, and its path into path. The folder, which is
 * made if it is missing, is GRADWIRE_FLIGHT_DIR; else gradwire in XDG_STATE_HOME; else .local/state/gradwire in HOME;
 * else TMPDIR or /tmp. The oldest records in it are removed: GW_FLIGHT_RECORDS stay. False on failure. */
bool gw_flight_write(const gw_flight *flight, int rank, const gw_error *error, char path[GW_FLIGHT_PATH]);

#endif
