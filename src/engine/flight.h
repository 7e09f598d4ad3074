/* flight.h - a flight recorder: the last operations of a rank, written to a file when something goes wrong. */
#ifndef GW_ENGINE_FLIGHT_H
#define GW_ENGINE_FLIGHT_H

#include "engine/engine.h"

#define GW_FLIGHT_ENTRIES 32

typedef struct gw_flight_entry {
    const gw_op *op; /* which; its memory may have been reused since */
    gw_time started, ended; /* ended 0: not yet */
    gw_status status;
    gw_op_brief brief;
} gw_flight_entry;

typedef struct gw_flight {
    uint64_t count; /* operations noted so far */
    gw_flight_entry entries[GW_FLIGHT_ENTRIES];
} gw_flight;

void gw_flight_begin(gw_flight *flight, const gw_op *op, gw_time now);
void gw_flight_end(gw_flight *flight, const gw_op *op, gw_time now);
/* One that is over in a moment, about now; and if it was not after all, before anything else is noted. */
void gw_flight_pass(gw_flight *flight, const gw_op_brief *brief, gw_time now);
void gw_flight_take_back(gw_flight *flight);
/* Writes gradwire-flight-<rank>-<pid>.txt into the folder GRADWIRE_FLIGHT_DIR (else TMPDIR, else /tmp) and its name
 * into path. False where that cannot be. */
bool gw_flight_write(const gw_flight *flight, int rank, const gw_error *error, char *path, size_t size);

#endif
