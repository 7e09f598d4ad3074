/* chart.h - curves over a logarithmic x axis, as text for a terminal and as SVG for a file. */
#ifndef GW_CLI_COMMON_CHART_H
#define GW_CLI_COMMON_CHART_H

#include <stdio.h>

#include "base/status.h"

#define GW_CHART_SERIES_MAX 8

typedef struct gw_chart {
    const char *title, *x_title, *y_title;
    int points;                  /* of each curve */
    const double *x;             /* ascending, > 0 */
    const char *const *x_labels; /* one for each point */
    int series;
    const char *names[GW_CHART_SERIES_MAX];
    const double *y[GW_CHART_SERIES_MAX]; /* >= 0; points each */
    double y_max;
} gw_chart;

void gw_chart_draw(const gw_chart *chart, FILE *out);
gw_status gw_chart_svg(const gw_chart *chart, const char *path, gw_error *error);

#endif
