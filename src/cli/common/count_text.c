/* count_text.c - see count_text.h. */
#include "cli/common/count_text.h"

#include <inttypes.h>
#include <stdio.h>

const char *gw_count_format(uint64_t number, char text[GW_COUNT_TEXT]) {
    char digits[32], *to = text;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return text;
}

const char *gw_flops_format(double flops, char text[GW_COUNT_TEXT]) {
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int unit = 0;
    for (; flops >= 1000 && unit < 4; unit++) flops /= 1000;
    snprintf(text, GW_COUNT_TEXT, unit ? "%.1f%s" : "%.0f%s", flops, units[unit]);
    return text;
}
