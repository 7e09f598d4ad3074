/* advice_print.c - see advice_print.h. */
#include "cli/common/advice_print.h"

#include <stdio.h>

#include "cli/common/json.h"

void gw_advice_print(const gw_advice *advice) {
    if (advice->count) puts("\nWhat to do");
    for (int i = 0; i < advice->count; i++) printf("- %s\n", advice->list[i].text);
}

/* A word, or null. */
static void json_word(const char *name, const char *word) {
    printf(", \"%s\": ", name);
    if (word && *word) gw_json_string(stdout, word);
    else fputs("null", stdout);
}

void gw_advice_json(const gw_advice *advice) {
    fputs("\"advice\": [", stdout);
    for (int i = 0; i < advice->count; i++) {
        const gw_advice_line *line = &advice->list[i];
        printf("%s{\"kind\": \"%s\", \"gain\": %s", i ? ", " : "", gw_advice_word(line->kind),
               GW_JSON_FIXED(line->gain, 4));
        json_word("strategy", line->strategy);
        json_word("accuracy", line->accuracy);
        json_word("text", line->text);
        putchar('}');
    }
    putchar(']');
}
