/* link_file.h - the doctor's figures as a small text file, for the cost model and the choice of architecture:
 *
 *     gradwire-doctor 1
 *     hosts 2
 *     host 0 node1 10.0.0.1 1500 8.7e+09
 *     host 1 node2 10.0.0.2 1500 8.9e+09
 *     link 0 1 3.1e-05 8.4942e-09
 *     link 1 0 3.1e-05 8.4947e-09
 *     end
 *
 * The first line is the format and its version. A host has its number (0, 1, ... in this order), name, address, MTU in
 * bytes and memcpy in bytes per second (0: unknown). A link goes from one host to another and has alpha, seconds for a
 * message, and beta, seconds for each byte of it; links that could not be measured are left out. Fields are separated
 * by one blank. */
#ifndef GW_ARCH_LINK_FILE_H
#define GW_ARCH_LINK_FILE_H

#include "base/status.h"
#include "doctor/report.h"

#define GW_DOCTOR_FILE_BYTES_MAX (4u << 20)

typedef struct gw_doctor_table_host {
    char name[GW_DOCTOR_NAME_BYTES];
    char address[GW_DOCTOR_ADDRESS_BYTES];
    int mtu;       /* bytes */
    double memory; /* memcpy, bytes per second; 0: unknown */
} gw_doctor_table_host;

typedef struct gw_doctor_table {
    int count;
    gw_doctor_table_host *nodes; /* count, owned */
    double *alpha;               /* count * count, owned, seconds; [from * count + to] */
    double *beta;                /* the same, seconds per byte; 0: the link was not measured, and its alpha is 0 too */
} gw_doctor_table;

/* Writes the whole file or nothing: to a temporary file first, which is then renamed. */
gw_status gw_doctor_write(const gw_doctor_report *report, const char *path, gw_error *error);

/* The same figures as a table. On success the caller owns *table: gw_doctor_table_free. */
gw_status gw_doctor_tabulate(const gw_doctor_report *report, gw_doctor_table *table, gw_error *error);

/* Strict: refuses anything that the writer would not write, with a sentence that names the line. `name` is used in
 * messages. On success the caller owns *table: gw_doctor_table_free. */
gw_status gw_doctor_parse(const char *bytes, size_t size, const char *name, gw_doctor_table *table, gw_error *error);
gw_status gw_doctor_read(const char *path, gw_doctor_table *table, gw_error *error);
void gw_doctor_table_free(gw_doctor_table *table);

#endif
