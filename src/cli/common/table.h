/* table.h - text tables with aligned columns. Rows are printed at once. The width of a column is the largest of: the
 * given width, the title, and the cells passed to gw_table_fit. */
#ifndef GW_CLI_COMMON_TABLE_H
#define GW_CLI_COMMON_TABLE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct gw_column {
    const char *title;
    bool right; /* right-aligned, for numbers */
    int width;  /* characters; 0: that of the title */
} gw_column;

typedef struct gw_table {
    FILE *out;
    bool colour;
    gw_column *columns; /* the caller's; widths grow */
    int count;
} gw_table;

/* Whether to use colour: out is a terminal, TERM is not "dumb", and NO_COLOR is not set. */
bool gw_colour_wanted(FILE *out);

void gw_table_start(gw_table *table, FILE *out, gw_column *columns, int count);
/* Widens the columns for a row that will be printed later. cells: one for each column. */
void gw_table_fit(gw_table *table, const char *const *cells);
void gw_table_header(const gw_table *table);
/* A cell wider than its column pushes the rest of its row to the right. */
void gw_table_row(const gw_table *table, const char *const *cells);

#endif
