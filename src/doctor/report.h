/* report.h - the result of an examination, as plain figures: one record for each host and for each ordered pair of
 * hosts. Filled by doctor_driver.c, judged by judge.c, printed by the command. */
#ifndef GW_DOCTOR_REPORT_H
#define GW_DOCTOR_REPORT_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/transport_registry.h"

#define GW_DOCTOR_HOSTS_MAX 128
#define GW_DOCTOR_PORTS_MAX 16 /* probed on one host */
#define GW_DOCTOR_NAME_BYTES 256
#define GW_DOCTOR_ADDRESS_BYTES 48
#define GW_DOCTOR_WHY_BYTES 256

typedef struct gw_doctor_host {
    char name[GW_DOCTOR_NAME_BYTES]; /* as the user wrote it */
    bool lost;                       /* it could not be examined; complaint says why, and all else is invalid */
    char complaint[GW_DOCTOR_WHY_BYTES];
    char address[GW_DOCTOR_ADDRESS_BYTES]; /* that it would use in a job */
    char interface[IF_NAMESIZE];           /* that has this address */
    int mtu;                               /* bytes, of that interface */
    int ports[GW_DOCTOR_PORTS_MAX];        /* ports on which it listened */
    int port_count;
    double memory;                                          /* memcpy, bytes per second; 0: unknown */
    gw_transport_probe transports[GW_TRANSPORT_PROBES_MAX]; /* only of the first host of a machine */
    int transport_count;
    int machine; /* number of the first host on the same machine (hosts may be namespaces or processes) */
} gw_doctor_host;

/* From one host to another. */
typedef struct gw_doctor_link {
    uint32_t closed;                     /* bit i: the receiver's ports[i] was not reached */
    char why[GW_DOCTOR_WHY_BYTES];       /* reason for the first closed port, else why nothing was measured */
    bool measured;                       /* the figures below are valid */
    double latency, latency_best;        /* seconds one way: half a round trip, median and shortest */
    double bandwidth;                    /* bytes per second of TCP payload; 0: stalled */
    int path_mtu;                        /* largest packet that passes, at most the MTU of both ends; 0: unknown */
    double skew;                         /* seconds that the receiver's clock is ahead of the sender's */
    char local[GW_DOCTOR_ADDRESS_BYTES]; /* the sender's own address of the connection */
    char seen[GW_DOCTOR_ADDRESS_BYTES];  /* the sender's address as the receiver sees it */
    /* The addresses to which the sender resolves the receiver's name; "": none, or not tried. */
    char resolved[GW_DOCTOR_ADDRESS_BYTES];
} gw_doctor_link;

typedef struct gw_doctor_report {
    int count;
    gw_doctor_host *hosts; /* count, owned */
    gw_doctor_link *links; /* count * count, owned; the diagonal is not used */
} gw_doctor_report;

static inline gw_doctor_link *gw_doctor_link_of(const gw_doctor_report *report, int from, int to) {
    return &report->links[from * report->count + to];
}

/* False: no memory. */
bool gw_doctor_report_init(gw_doctor_report *report, int count);
void gw_doctor_report_free(gw_doctor_report *report);

#endif
