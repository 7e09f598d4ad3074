/* fuzz_strategy.c - any bytes as a strategy line: what parses must print, and parse again to the same strategy; what
 * does not must be refused with one printable sentence. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/strategy.h"

static void demand(bool condition) {
    if (!condition) abort();
}

static void round_trip(const gw_strategy *strategy) {
    char text[GW_STRATEGY_PRINT_BYTES];
    gw_strategy again;
    int length = gw_strategy_print(strategy, text, sizeof text);
    demand(length > 0 && length < GW_STRATEGY_PRINT_BYTES);
    demand(gw_strategy_parse(text, &again, NULL) == GW_OK);
    demand(gw_strategy_equal(strategy, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_strategy strategy;
    gw_error error = {.status = GW_OK};
    char *line = malloc(size + 1);
    demand(line != NULL);
    if (size) memcpy(line, data, size);
    line[size] = '\0';
    if (gw_strategy_parse(line, &strategy, &error) == GW_OK) {
        round_trip(&strategy);
    } else {
        demand(error.text[0] != '\0');
        for (const char *letter = error.text; *letter; letter++) demand(isprint((unsigned char)*letter));
    }
    free(line);
    return 0;
}
