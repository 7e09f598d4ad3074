/* explain_why.c - see explain_why.h. */
#include "cli/explain/explain_why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decide/decision_file.h"

static void print_decision(const gw_decision *d) {
    char line[GW_STRATEGY_PRINT_BYTES];
    bool tried = d->why && strcmp(d->why, "tried\n") == 0;
    gw_strategy_print(&d->strategy, line, sizeof line);
    printf("\nfrom step %llu%s: %s\n", (unsigned long long)d->step, tried ? ", tried" : "", line);
    if (d->why && !tried) fputs(d->why, stdout);
}

gw_status gw_explain_why(const char *path, gw_error *error) {
    gw_decisions *decisions = calloc(1, sizeof *decisions);
    if (!decisions) return gw_fail(error, GW_MEMORY, "out of memory for decisions");
    gw_status status = gw_decisions_read(decisions, path, error);
    if (!status) puts(decisions->model);
    for (int i = 0; !status && i < decisions->count; i++) print_decision(&decisions->entries[i]);
    gw_decisions_free(decisions);
    free(decisions);
    return status;
}
