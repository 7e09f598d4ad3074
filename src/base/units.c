/* units.c - see units.h. Parsing does not depend on the locale, which belongs to the host program. */
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double size;
} unit;

/* Reads digits at *text into *value and moves *text behind them; false if there are none, or on overflow. */
static bool take_digits(const char **text, uint64_t *value) {
    const char *at = *text;
    uint64_t sum = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum))
            return false;
    }
    if (at == *text) return false;
    *text = at;
    *value = sum;
    return true;
}

/* Reads "12" or "12.5" in the same way. */
static bool take_decimal(const char **text, double *value) {
    uint64_t whole, fraction = 0;
    if (!take_digits(text, &whole)) return false;
    *value = (double)whole;
    if (**text != '.') return true;
    const char *digits = ++*text;
    if (!take_digits(text, &fraction)) return false;
    *value += (double)fraction / pow(10, (double)(*text - digits));
    return true;
}

/* A decimal followed by one of the units' names and nothing else. */
static bool parse_decimal(const char *text, const unit *units, size_t count, double *value) {
    double number;
    if (!take_decimal(&text, &number)) return false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, units[i].name) == 0) {
            *value = number * units[i].size;
            return true;
        }
    }
    return false;
}

bool gw_bytes_parse(const char *text, uint64_t *bytes) {
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"K", 10}, {"KiB", 10}, {"M", 20}, {"MiB", 20}, {"G", 30}, {"GiB", 30}};
    uint64_t number;
    if (!take_digits(&text, &number)) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text, units[i].name) != 0) continue;
        return !__builtin_mul_overflow(number, UINT64_C(1) << units[i].shift, bytes);
    }
    return false;
}

bool gw_rate_parse(const char *text, double *bits_per_second) {
    static const unit units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    double rate;
    if (!parse_decimal(text, units, sizeof units / sizeof units[0], &rate) || rate <= 0) return false;
    *bits_per_second = rate;
    return true;
}

bool gw_duration_parse(const char *text, double *seconds) {
    static const unit units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60}};
    return parse_decimal(text, units, sizeof units / sizeof units[0], seconds);
}

bool gw_percent_parse(const char *text, double *share) {
    static const unit units[] = {{"%", 0.01}};
    return parse_decimal(text, units, sizeof units / sizeof units[0], share) && *share <= 1;
}

bool gw_integer_parse(const char *text, int64_t low, int64_t high, int64_t *value) {
    bool negative = *text == '-';
    uint64_t magnitude;
    text += negative;
    if (!take_digits(&text, &magnitude) || *text != '\0') return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    int64_t number = (int64_t)(negative ? -magnitude : magnitude);
    if (number < low || number > high) return false;
    *value = number;
    return true;
}

/* Three significant digits and a unit; trim: without trailing zeros in the fraction. */
static const char *format(double value, const char *unit_name, bool trim, char text[GW_UNIT_TEXT]) {
    double size = fabs(value);
    int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    char number[GW_UNIT_TEXT - 8];
    if (size < 1e9) snprintf(number, sizeof number, "%.*f", decimals, value);
    else snprintf(number, sizeof number, "%.3g", value);
    if (trim && decimals > 0) {
        size_t end = strlen(number);
        while (number[end - 1] == '0') end--;
        if (number[end - 1] == '.') end--;
        number[end] = '\0';
    }
    snprintf(text, GW_UNIT_TEXT, "%s %s", number, unit_name);
    return text;
}

/* Divides value by step until it is below limit, and returns the index of that unit. */
static size_t scale(double *value, double step, double limit, size_t units) {
    size_t at = 0;
    for (; at + 1 < units && fabs(*value) >= limit; at++) *value /= step;
    return at;
}

const char *gw_bytes_format(uint64_t bytes, char text[GW_UNIT_TEXT]) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t at = scale(&value, 1024, 1023.5, sizeof names / sizeof names[0]);
    return format(value, names[at], true, text);
}

const char *gw_duration_format(double seconds, char text[GW_UNIT_TEXT]) {
    static const char *const names[] = {"ns", "us", "ms", "s"};
    double value = seconds * 1e9;
    size_t at = scale(&value, 1000, 999.5, sizeof names / sizeof names[0]);
    return format(value, names[at], true, text);
}

const char *gw_bandwidth_format(double bytes_per_second, char text[GW_UNIT_TEXT]) {
    static const char *const names[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    double value = bytes_per_second;
    size_t at = scale(&value, 1000, 999.5, sizeof names / sizeof names[0]);
    return format(value, names[at], false, text);
}
