/* test.h - the harness of a test program: named cases, checks that continue, one closing line, and a watchdog.
 *
 *     static void adds(void) { CHECK(1 + 1 == 2); CHECK_EQ(4, 2 + 2); }
 *     TEST_MAIN(CASE(adds))
 *
 * Arguments choose cases by name; TEST_SECONDS sets the watchdog (default 900).
 *
 * Tests must pass on a machine whose cores are all busy. They wait long for events that must happen; operations that
 * must be fast have to be fast in one of several tries. */
#ifndef GW_TEST_H
#define GW_TEST_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

__attribute__((unused)) static int test_failures; /* of the case that runs */

/* How long a test waits for an event that must happen. A wait takes that long only where the code is broken. */
#define TEST_PATIENCE_S 60

/* Tolerance of deadlines on a busy machine. */
#define TEST_SLACK_MS 5000

#define TEST_TRIES 5

static inline double test_seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The present slowdown of a thread against one alone on its core: limits of time are multiplied by it. 1 on an idle
 * machine. */
static inline double test_slowdown(void) {
    double wall = test_seconds(CLOCK_MONOTONIC), begun = test_seconds(CLOCK_THREAD_CPUTIME_ID), cpu;
    do cpu = test_seconds(CLOCK_THREAD_CPUTIME_ID) - begun;
    while (cpu < 0.02);
    return (test_seconds(CLOCK_MONOTONIC) - wall) / cpu;
}

#define CASE(function)                                                                                                 \
    { #function, function }

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            test_failures++;                                                                                           \
            if (test_failures <= 10) printf("    %s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
        }                                                                                                              \
    } while (0)

/* A busy machine delays one try, but not all of them; a fault fails every try. Ends early if another check has failed.
 */
#define CHECK_IN_SOME_TRY(condition)                                                                                   \
    do {                                                                                                               \
        int check_try = 0, check_before = test_failures;                                                               \
        while (check_try < TEST_TRIES && test_failures == check_before && !(condition)) check_try++;                   \
        if (check_try == TEST_TRIES) {                                                                                 \
            test_failures++;                                                                                           \
            printf("    %s:%d: not true in any of %d tries: %s\n", __FILE__, __LINE__, TEST_TRIES, #condition);        \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(expected, actual)                                                                                     \
    do {                                                                                                               \
        long long check_e = (long long)(expected), check_a = (long long)(actual);                                      \
        if (check_e != check_a) {                                                                                      \
            test_failures++;                                                                                           \
            if (test_failures <= 10)                                                                                   \
                printf("    %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, check_a, check_e);            \
        }                                                                                                              \
    } while (0)

#define CHECK_STR(expected, actual)                                                                                    \
    do {                                                                                                               \
        const char *check_e = (expected), *check_a = (actual);                                                         \
        if (strcmp(check_e, check_a) != 0) {                                                                           \
            test_failures++;                                                                                           \
            printf("    %s:%d: %s is\n      \"%s\", not\n      \"%s\"\n", __FILE__, __LINE__, #actual, check_a,        \
                   check_e);                                                                                           \
        }                                                                                                              \
    } while (0)

__attribute__((unused)) static int test_main(int argc, char **argv, const test_case *cases, int count) {
    const char *seconds = getenv("TEST_SECONDS");
    alarm(seconds ? (unsigned)atoi(seconds) : 900);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int passed = 0, failed = 0;
    for (int i = 0; i < count; i++) {
        int chosen = argc < 2;
        for (int a = 1; a < argc; a++) chosen |= strcmp(argv[a], cases[i].name) == 0;
        if (!chosen) continue;
        test_failures = 0;
        cases[i].run();
        printf("%s %s\n", test_failures ? "FAIL" : "ok  ", cases[i].name);
        if (test_failures) failed++;
        else passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0;
}

#define TEST_MAIN(...)                                                                                                 \
    int main(int argc, char **argv) {                                                                                  \
        static const test_case cases[] = {__VA_ARGS__};                                                                \
        return test_main(argc, argv, cases, (int)(sizeof cases / sizeof cases[0]));                                    \
    }

#endif
