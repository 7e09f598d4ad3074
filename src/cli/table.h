/* table.h - aligned columns. Rows are printed as they come; columns have the width they were given, or that of their
 * title, or of the widest cell shown to gw_table_fit before. */
#ifndef GW_CLI_TABLE_H
#define GW_CLI_TABLE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct gw_column {
    const char *title;
    bool right; /* numbers */
    int width;  /* letters; 0 to begin with the title's */
} gw_column;

typedef struct gw_table {
    FILE *out;
    bool colour;
    gw_column *columns; /* the caller's; widths grow */
    int count;
} gw_table;

/* Colour only where a person looks: a terminal, not a dumb one, and NO_COLOR is not set. */
bool gw_colour_wanted(FILE *out);

void gw_table_start(gw_table *table, FILE *out, gw_column *columns, int count);
/* Makes room for a row that will be printed. cells: one for each column. */
void gw_table_fit(gw_table *table, const char *const *cells);
void gw_table_header(const gw_table *table);
/* A cell wider than its column pushes the rest of its row to the right. */
void gw_table_row(const gw_table *table, const char *const *cells);

#endif
