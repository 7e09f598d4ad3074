/* json.h - JSON on standard output. */
#ifndef GW_CLI_COMMON_JSON_H
#define GW_CLI_COMMON_JSON_H

#include <stdio.h>

/* The text as a JSON string, with its quotes. */
void gw_json_string(FILE *out, const char *text);

/* A number as JSON, as text in the given buffer: null if it is not finite, which JSON cannot write. */
#define GW_JSON_NUMBER_BYTES 40
const char *gw_json_fixed(char text[GW_JSON_NUMBER_BYTES], double value, int decimals);
const char *gw_json_digits(char text[GW_JSON_NUMBER_BYTES], double value, int digits);
/* The same for an argument of printf; the text lives until the end of the block. */
#define GW_JSON_FIXED(value, decimals) gw_json_fixed((char[GW_JSON_NUMBER_BYTES]){0}, value, decimals)
#define GW_JSON_DIGITS(value, digits) gw_json_digits((char[GW_JSON_NUMBER_BYTES]){0}, value, digits)

#endif
