/* station.h - the doctor's side of the probes: one outpost a host, lines out and lines in. */
#ifndef GW_DOCTOR_STATION_H
#define GW_DOCTOR_STATION_H

#include "doctor/line.h"
#include "doctor/report.h"
#include "launch/outpost.h"

typedef struct gw_station {
    gw_outpost outpost;
    bool greeted;               /* its probe is there */
    bool over;                  /* nothing more comes from it */
    int awaited;                /* reports still to come */
    char said[GW_DOCTOR_WHY_BYTES]; /* the last line that was no report: of a remote shell in trouble */
    char complaint[GW_DOCTOR_LINE_BYTES]; /* an unfinished line of its errors */
    size_t complaint_bytes;
} gw_station;

typedef struct gw_stations {
    int count;
    gw_station *list; /* owned */
    void *ctx;
    /* A line of a probe, its greeting included. */
    void (*heard)(void *ctx, int host, const char *line);
} gw_stations;

void gw_station_order(gw_station *station, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Until no report is awaited, or for at most `budget`. `idle` is called a few times a second. True: all came. */
bool gw_stations_wait(gw_stations *stations, gw_time budget, void (*idle)(void *ctx));
/* Ends all probes, and kills those that do not. */
void gw_stations_close(gw_stations *stations);

#endif
