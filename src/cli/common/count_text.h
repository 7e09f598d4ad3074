/* count_text.h - large numbers as people read them. */
#ifndef GW_CLI_COMMON_COUNT_TEXT_H
#define GW_CLI_COMMON_COUNT_TEXT_H

#include <stdint.h>

#define GW_COUNT_TEXT 64

/* 1234567 as 1,234,567. Returns text. */
const char *gw_count_format(uint64_t number, char text[GW_COUNT_TEXT]);
/* 1234567 as "1.2 M". Returns text. */
const char *gw_flops_format(double flops, char text[GW_COUNT_TEXT]);

#endif
