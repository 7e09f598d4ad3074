/* json.h - JSON on standard output. */
#ifndef GW_CLI_COMMON_JSON_H
#define GW_CLI_COMMON_JSON_H

#include <stdio.h>

/* The text as a JSON string, with its quotes. */
void gw_json_string(FILE *out, const char *text);

#endif
