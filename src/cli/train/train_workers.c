/* train_workers.c - output about stragglers: a table of the workers at the end, a few words in the live line, and JSON.
 * See train/stragglers.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/train/train_request.h"

static const char *seconds(uint64_t ns, char text[GW_UNIT_TEXT]) {
    return gw_duration_format((double)ns / (double)GW_SECOND, text);
}

void gw_train_workers_live(const gw_trainer *t, char *text, size_t size) {
    int slow = gw_train_workers_slow(t->workers, t->world);
    const gw_train_worker *w = slow < 0 ? NULL : &t->workers[slow];
    text[0] = '\0';
    if (!w || !(w->compute + w->waiting)) return;
    snprintf(text, size, "rank %d is slow: others wait %.0f%%  ", slow,
             100 * (double)w->awaited / (double)(w->compute + w->waiting));
}

void gw_train_workers_print(const gw_trainer *t) {
    enum { COLUMNS = 5 };
    gw_column columns[COLUMNS] = {{.title = "WORKER", .width = 16}, {.title = "compute", .right = true, .width = 9},
                                  {.title = "waiting", .right = true, .width = 9},
                                  {.title = "others waited for it", .right = true}, {.title = "late", .right = true}};
    gw_table table;
    int slow = gw_train_workers_slow(t->workers, t->world);
    if (t->world == 1 || t->pipeline) return;
    gw_table_start(&table, stdout, columns, COLUMNS);
    puts("");
    gw_table_header(&table);
    for (int r = 0; r < t->world; r++) {
        const gw_train_worker *w = &t->workers[r];
        char a[GW_UNIT_TEXT], b[GW_UNIT_TEXT], c[GW_UNIT_TEXT], rank[32], late[24];
        snprintf(rank, sizeof rank, "rank %d%s", r, r == slow ? ", slow" : "");
        snprintf(late, sizeof late, "%" PRIu64, w->late);
        gw_table_row(&table, (const char *[]){rank, seconds(w->compute, a), seconds(w->waiting, b),
                                              seconds(w->awaited, c), late});
    }
}

void gw_train_workers_json(const gw_trainer *t) {
    fputs(", \"workers\": [", stdout);
    for (int r = 0; r < t->world; r++) {
        const gw_train_worker *w = &t->workers[r];
        printf("%s{\"rank\": %d, \"compute_ms\": %s, \"waiting_ms\": %s, \"others_waited_ms\": %s, \"late\": "
               "%" PRIu64 "}",
               r ? ", " : "", r, GW_JSON_FIXED((double)w->compute / 1e6, 3), GW_JSON_FIXED((double)w->waiting / 1e6, 3),
               GW_JSON_FIXED((double)w->awaited / 1e6, 3), w->late);
    }
    putchar(']');
}
