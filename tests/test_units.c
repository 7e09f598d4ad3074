/* test_units.c - parsing and printing of sizes, rates and durations. */
#include "base/units.h"

#include <math.h>

#include "test.h"

static void check_bytes(const char *text, uint64_t expected) {
    uint64_t bytes = 77;
    CHECK(gw_bytes_parse(text, &bytes));
    CHECK_EQ(expected, bytes);
}

static void bytes_are_read(void) {
    check_bytes("0", 0);
    check_bytes("4096", 4096);
    check_bytes("4K", 4096);
    check_bytes("4KiB", 4096);
    check_bytes("64M", 64 << 20);
    check_bytes("64MiB", 64 << 20);
    check_bytes("3G", UINT64_C(3) << 30);
    check_bytes("1GiB", 1 << 30);
    check_bytes("18446744073709551615", UINT64_MAX);
    check_bytes("17179869183G", UINT64_MAX - (1 << 30) + 1);
}

static void bad_bytes_are_refused(void) {
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1 K",
                                      "1.5K",
                                      "1k",
                                      "1KB",
                                      "1Ki",
                                      "0x10",
                                      "1T",
                                      "18446744073709551616",
                                      "17179869184G",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes;
        if (gw_bytes_parse(bad[i], &bytes)) printf("    \"%s\" was taken\n", bad[i]), test_failures++;
    }
}

static void rates_are_read(void) {
    double rate = 0;
    CHECK(gw_rate_parse("1gbit", &rate) && rate == 1e9);
    CHECK(gw_rate_parse("100mbit", &rate) && rate == 1e8);
    CHECK(gw_rate_parse("250kbit", &rate) && rate == 250e3);
    CHECK(gw_rate_parse("2.5gbit", &rate) && rate == 2.5e9);
    static const char *const bad[] = {"",       "1",      "gbit",    "0gbit",   "0.0mbit", "-1gbit", "1Gbit", "1gbits",
                                      "1.gbit", ".5gbit", "1e3mbit", "infgbit", "nangbit", "1 gbit", "1gbit "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!gw_rate_parse(bad[i], &rate));
    CHECK(rate == 2.5e9);
}

static void percents_are_read(void) {
    double share = 0;
    CHECK(gw_percent_parse("1%", &share) && fabs(share - 0.01) < 1e-15);
    CHECK(gw_percent_parse("0.1%", &share) && fabs(share - 0.001) < 1e-15);
    CHECK(gw_percent_parse("100%", &share) && share == 1);
    static const char *const bad[] = {"", "%", "1", "101%", "-1%", "1 %", "1%%"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!gw_percent_parse(bad[i], &share));
}

static void durations_are_read(void) {
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"30", 30},      {"0.5", 0.5}, {"30s", 30}, {"500ms", 0.5},
                {"20us", 20e-6}, {"2m", 120},  {"0", 0},    {"1.25m", 75}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double seconds = -1;
        CHECK(gw_duration_parse(good[i].text, &seconds));
        CHECK(fabs(seconds - good[i].seconds) <= 1e-15 * good[i].seconds);
    }
    static const char *const bad[] = {"", "s", "-1", "1h", "1 s", "1.", ".5", "1..5", "inf", "1e9", "5 ms", "5msx"};
    double seconds = 3;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!gw_duration_parse(bad[i], &seconds));
    CHECK(seconds == 3);
}

static void integers_are_read(void) {
    int64_t value = 5;
    CHECK(gw_integer_parse("42", 0, 100, &value) && value == 42);
    CHECK(gw_integer_parse("-7", -10, 10, &value) && value == -7);
    CHECK(gw_integer_parse("-9223372036854775808", INT64_MIN, INT64_MAX, &value) && value == INT64_MIN);
    CHECK(gw_integer_parse("9223372036854775807", INT64_MIN, INT64_MAX, &value) && value == INT64_MAX);
    static const char *const bad[] = {"",
                                      "-",
                                      "--1",
                                      "+1",
                                      "1x",
                                      "1.0",
                                      " 1",
                                      "101",
                                      "-1",
                                      "9223372036854775808",
                                      "18446744073709551615",
                                      "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!gw_integer_parse(bad[i], 0, 100, &value));
    CHECK(!gw_integer_parse("9223372036854775808", INT64_MIN, INT64_MAX, &value));
    CHECK(!gw_integer_parse("-9223372036854775809", INT64_MIN, INT64_MAX, &value));
    CHECK(value == INT64_MAX);
}

static void bytes_are_written(void) {
    char text[GW_UNIT_TEXT];
    CHECK_STR("0 B", gw_bytes_format(0, text));
    CHECK_STR("512 B", gw_bytes_format(512, text));
    CHECK_STR("1023 B", gw_bytes_format(1023, text));
    CHECK_STR("1 KiB", gw_bytes_format(1024, text));
    CHECK_STR("64 MiB", gw_bytes_format(64 << 20, text));
    CHECK_STR("1.5 GiB", gw_bytes_format(UINT64_C(3) << 29, text));
    CHECK_STR("100 MiB", gw_bytes_format(100 << 20, text));
    CHECK_STR("1 MiB", gw_bytes_format((1 << 20) - 1, text));
    CHECK_STR("16 EiB", gw_bytes_format(UINT64_MAX, text));
}

static void durations_are_written(void) {
    char text[GW_UNIT_TEXT];
    CHECK_STR("0 ns", gw_duration_format(0, text));
    CHECK_STR("41 us", gw_duration_format(41e-6, text));
    CHECK_STR("3.2 ms", gw_duration_format(3.2e-3, text));
    CHECK_STR("1.26 s", gw_duration_format(1.26, text));
    CHECK_STR("1 ms", gw_duration_format(999.9e-6, text));
    CHECK_STR("10 us", gw_duration_format(9.999e-6, text));
    CHECK_STR("125 s", gw_duration_format(125, text));
    CHECK_STR("-20 ms", gw_duration_format(-20e-3, text));
    CHECK_STR("1e+200 s", gw_duration_format(1e200, text));
    CHECK(strlen(gw_duration_format(NAN, text)) < GW_UNIT_TEXT);
}

static void bandwidths_are_written(void) {
    char text[GW_UNIT_TEXT];
    CHECK_STR("3.20 GB/s", gw_bandwidth_format(3.2e9, text));
    CHECK_STR("12.5 GB/s", gw_bandwidth_format(12.5e9, text));
    CHECK_STR("125 MB/s", gw_bandwidth_format(125e6, text));
    CHECK_STR("1.00 GB/s", gw_bandwidth_format(999.9e6, text));
    CHECK_STR("0.00 B/s", gw_bandwidth_format(0, text));
    CHECK_STR("1200 TB/s", gw_bandwidth_format(1.2e15, text));
}

TEST_MAIN(CASE(bytes_are_read), CASE(bad_bytes_are_refused), CASE(rates_are_read), CASE(percents_are_read),
          CASE(durations_are_read), CASE(integers_are_read), CASE(bytes_are_written), CASE(durations_are_written),
          CASE(bandwidths_are_written))
