/* units.h - numbers as people write and read them: 64M, 1gbit, 3.2 GB/s, 41 us. */
#ifndef GW_BASE_UNITS_H
#define GW_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_UNIT_TEXT 32

/* "4096", "4K", "64M", "1G", also KiB, MiB, GiB (all powers of 1024). False on anything else or overflow. */
bool gw_bytes_parse(const char *text, uint64_t *bytes);
/* "1gbit", "2.5gbit", "100mbit", "250kbit": bits per second, powers of 1000, more than 0. */
bool gw_rate_parse(const char *text, double *bits_per_second);
/* "30", "0.5", "30s", "500ms", "20us", "2m": seconds. */
bool gw_duration_parse(const char *text, double *seconds);
/* "1%", "0.1%": a share from 0 to 1. */
bool gw_percent_parse(const char *text, double *share);
/* Whole numbers in [low, high]; the whole text must be used. */
bool gw_integer_parse(const char *text, int64_t low, int64_t high, int64_t *value);

/* Each writes into text and returns it: "64 MiB", "1.5 GiB"; "41 us", "1.26 s"; "3.20 GB/s". */
const char *gw_bytes_format(uint64_t bytes, char text[GW_UNIT_TEXT]);
const char *gw_duration_format(double seconds, char text[GW_UNIT_TEXT]);
const char *gw_bandwidth_format(double bytes_per_second, char text[GW_UNIT_TEXT]);

#endif
