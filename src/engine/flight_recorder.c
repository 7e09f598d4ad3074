/* flight_recorder.c - see flight_recorder.h. Recording an operation costs a few stores; its text is made when the file
 * is written. */
#include "engine/flight_recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void gw_flight_begin(gw_flight *flight, const gw_op *op, gw_time now) {
    gw_flight_entry *entry = &flight->entries[flight->count++ % GW_FLIGHT_ENTRIES];
    entry->op = op;
    entry->started = now;
    entry->ended = 0;
    entry->status = GW_OK;
    gw_op_note(op, &entry->brief);
}

void gw_flight_end(gw_flight *flight, const gw_op *op, gw_time now) {
    for (uint64_t back = 1; back <= GW_FLIGHT_ENTRIES && back <= flight->count; back++) {
        gw_flight_entry *entry = &flight->entries[(flight->count - back) % GW_FLIGHT_ENTRIES];
        if (entry->op != op || entry->ended) continue;
        entry->ended = now;
        entry->status = gw_op_status(op);
        return;
    }
}

void gw_flight_add_done(gw_flight *flight, const gw_op_brief *brief, gw_time now) {
    gw_flight_entry *entry = &flight->entries[flight->count++ % GW_FLIGHT_ENTRIES];
    entry->op = NULL;
    entry->started = entry->ended = now;
    entry->status = GW_OK;
    entry->brief = *brief;
}

void gw_flight_undo(gw_flight *flight) { flight->count--; }

static void write_entry(FILE *file, const gw_flight_entry *entry, gw_time now) {
    char text[GW_TEXT_BYTES];
    gw_op_brief_text(&entry->brief, text);
    double ago = (double)(now - entry->started) / 1e9;
    if (entry->ended && entry->ended == entry->started)
        fprintf(file, "%10.6f s ago  %-12s %13s  %s\n", ago, "done", "at once", text);
    else if (entry->ended)
        fprintf(file, "%10.6f s ago  %-12s %10.1f us  %s\n", ago,
                entry->status ? gw_status_text(entry->status) : "done", (double)(entry->ended - entry->started) / 1e3,
                text);
    else fprintf(file, "%10.6f s ago  %-12s %13s  %s\n", ago, "under way", "", text);
}

bool gw_flight_write(const gw_flight *flight, int rank, const gw_error *error, char *path, size_t size) {
    const char *folder = getenv("GRADWIRE_FLIGHT_DIR");
    if (!folder || !*folder) folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    int length = snprintf(path, size, "%s/gradwire-flight-%d-%d.txt", folder, rank, (int)getpid());
    if (length < 0 || (size_t)length >= size) return false;
    unlink(path); /* left by an earlier process with the same pid */
    FILE *file = fopen(path, "wxe");
    if (!file) return false;
    gw_time now = gw_clock_now();
    fprintf(file, "rank %d: %s: %s\nlast operations, oldest first:\n", rank, gw_status_text(error->status),
            error->text);
    uint64_t first = flight->count > GW_FLIGHT_ENTRIES ? flight->count - GW_FLIGHT_ENTRIES : 0;
    for (uint64_t i = first; i < flight->count; i++) write_entry(file, &flight->entries[i % GW_FLIGHT_ENTRIES], now);
    return fclose(file) == 0;
}
