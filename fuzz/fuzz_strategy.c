/* fuzz_strategy.c - any bytes as a strategy line: a line that parses must print, and parse again to the same strategy;
 * others must be refused with one printable sentence. The same bytes also draw techniques and parameter values from the
 * registries: these must print and parse as well. */
#include <ctype.h>
#include <math.h>
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

static double value_of(const gw_param *param, uint8_t byte) {
    int words = 0;
    if (param->kind == GW_PARAM_FLAG) return byte & 1;
    while (param->kind == GW_PARAM_CHOICE && param->choices[words]) words++;
    if (words) return byte % words;
    double value = param->lowest + (param->highest - param->lowest) * byte / 255;
    return param->kind == GW_PARAM_NUMBER ? value : floor(value);
}

/* Missing bytes count as 0. */
static void draw(const uint8_t *data, size_t size, gw_strategy *strategy) {
    size_t at = 0;
    gw_strategy_default(strategy);
    for (gw_axis axis = 0; axis < GW_AXES; axis++) {
        gw_setting *setting = &strategy->axes[axis];
        int count = 0;
        while (gw_techniques(axis)[count]) count++;
        setting->technique = gw_techniques(axis)[at < size ? data[at] % count : 0];
        gw_technique_default(setting->technique, setting->values);
        at++;
        for (int i = 0; setting->technique->params && setting->technique->params[i].name; i++, at++)
            setting->values[i] = value_of(&setting->technique->params[i], at < size ? data[at] : 0);
    }
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
    draw(data, size, &strategy);
    round_trip(&strategy);
    return 0;
}
