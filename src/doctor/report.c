/* report.c - see report.h. */
#include "doctor/report.h"

#include <stdlib.h>

bool gw_doctor_report_init(gw_doctor_report *report, int count) {
    size_t n = (size_t)count;
    *report = (gw_doctor_report){.count = count};
    report->hosts = calloc(n, sizeof *report->hosts);
    report->links = calloc(n * n, sizeof *report->links);
    if (report->hosts && report->links) return true;
    gw_doctor_report_free(report);
    return false;
}

void gw_doctor_report_free(gw_doctor_report *report) {
    free(report->hosts);
    free(report->links);
    *report = (gw_doctor_report){0};
}
