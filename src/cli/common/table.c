/* table.c - see table.h. */
#include "cli/common/table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool gw_colour_wanted(FILE *out) {
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour && *no_colour) return false;
    return isatty(fileno(out)) && terminal && strcmp(terminal, "dumb") != 0;
}

static void widen(gw_column *column, const char *cell) {
    int needed = (int)strlen(cell);
    if (needed > column->width) column->width = needed;
}

void gw_table_start(gw_table *table, FILE *out, gw_column *columns, int count) {
    *table = (gw_table){.out = out, .colour = gw_colour_wanted(out), .columns = columns, .count = count};
    for (int i = 0; i < count; i++) widen(&columns[i], columns[i].title);
}

void gw_table_fit(gw_table *table, const char *const *cells) {
    for (int i = 0; i < table->count; i++) widen(&table->columns[i], cells[i]);
}

/* No trailing blanks: empty cells at the end of a row and the padding of the last cell are omitted. */
void gw_table_row(const gw_table *table, const char *const *cells) {
    int last = table->count - 1;
    while (last >= 0 && cells[last][0] == '\0') last--;
    for (int i = 0; i <= last; i++) {
        const gw_column *column = &table->columns[i];
        int width = column->right ? column->width : i < last ? -column->width : 0;
        fprintf(table->out, "%s%*s", i ? "  " : "", width, cells[i]);
    }
    fputc('\n', table->out);
}

void gw_table_header(const gw_table *table) {
    const char *titles[32];
    for (int i = 0; i < table->count; i++) titles[i] = table->columns[i].title;
    if (table->colour) fputs("\033[1m", table->out);
    gw_table_row(table, titles);
    if (table->colour) fputs("\033[0m", table->out);
}
