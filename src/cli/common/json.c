/* json.c - see json.h. */
#include "cli/common/json.h"

#include <math.h>

#define FIXED_MOST 1e20 /* larger numbers are written with an exponent */

void gw_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') fprintf(out, "\\%c", letter);
        else if (letter < 0x20) fprintf(out, "\\u%04x", letter);
        else fputc(letter, out);
    }
    fputc('"', out);
}

const char *gw_json_fixed(char text[GW_JSON_NUMBER_BYTES], double value, int decimals) {
    if (!isfinite(value)) return "null";
    snprintf(text, GW_JSON_NUMBER_BYTES, fabs(value) < FIXED_MOST ? "%.*f" : "%.*e", decimals, value);
    return text;
}

const char *gw_json_digits(char text[GW_JSON_NUMBER_BYTES], double value, int digits) {
    if (!isfinite(value)) return "null";
    snprintf(text, GW_JSON_NUMBER_BYTES, "%.*g", digits, value);
    return text;
}
