/* test_status.c - errors, their texts, the log and the version. */
#include "base/status.h"

#include <sys/wait.h>

#include "base/log.h"
#include "test.h"

static void first_cause_wins(void) {
    gw_error error = {0};
    CHECK_EQ(GW_TIMEOUT, gw_fail(&error, GW_TIMEOUT, "rank %d waits", 3));
    CHECK_EQ(GW_TIMEOUT, error.status);
    CHECK_EQ(-1, error.rank);
    CHECK_STR("rank 3 waits", error.text);
    CHECK_EQ(GW_PEER_LOST, gw_fail_rank(&error, GW_PEER_LOST, 2, "rank 2 left"));
    CHECK_EQ(GW_TIMEOUT, error.status);
    CHECK_STR("rank 3 waits", error.text);
    CHECK_EQ(GW_MEMORY, gw_fail(NULL, GW_MEMORY, "nobody asks"));
}

static void rank_is_named(void) {
    gw_error error = {0};
    CHECK_EQ(GW_PEER_LOST, gw_fail_rank(&error, GW_PEER_LOST, 2, "rank %d left", 2));
    CHECK_EQ(2, error.rank);
    CHECK_STR("rank 2 left", error.text);
}

static void long_sentences_are_cut(void) {
    gw_error error = {0};
    gw_fail(&error, GW_INVALID, "%0*d", 2 * GW_ERROR_TEXT_BYTES, 0);
    CHECK_EQ(GW_ERROR_TEXT_BYTES - 1, strlen(error.text));
}

static void every_status_has_a_text(void) {
    for (int i = 0; i <= GW_NOT_FINITE; i++) {
        CHECK(strlen(gw_status_text((gw_status)i)) > 5);
        for (int j = 0; j < i; j++) CHECK(strcmp(gw_status_text((gw_status)i), gw_status_text((gw_status)j)) != 0);
    }
    CHECK_STR("no error", gw_status_text(GW_OK));
    CHECK_STR("not a status of gradwire", gw_status_text((gw_status)999));
}

static void version_is_that_of_the_header(void) {
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", GW_VERSION_MAJOR, GW_VERSION_MINOR, GW_VERSION_PATCH);
    CHECK_STR(expected, gw_version());
}

static void log_levels_parse(void) {
    gw_log_level level = GW_LOG_ERROR;
    CHECK(gw_log_level_parse("trace", &level) && level == GW_LOG_TRACE);
    CHECK(!gw_log_level_parse("loud", &level) && !gw_log_level_parse("", &level));
    CHECK_EQ(GW_LOG_TRACE, level);
}

/* The output of a child process with this GRADWIRE_LOG (NULL: unset) that logs at every level. */
static void logged(const char *setting, int width, char *text, size_t bytes) {
    int ends[2];
    text[0] = '\0';
    if (pipe(ends) != 0) return;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (setting) setenv("GRADWIRE_LOG", setting, 1);
        else unsetenv("GRADWIRE_LOG");
        for (int level = GW_LOG_ERROR; level <= GW_LOG_TRACE; level++)
            gw_log((gw_log_level)level, level - 1, "n%0*d", width, 7);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used + 1 < bytes && (got = read(ends[0], text + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    waitpid(child, NULL, 0);
}

static void log_is_filtered(void) {
    char text[8192];
    logged(NULL, 0, text, sizeof text);
    CHECK_STR("gradwire error: n7\ngradwire warn: rank 0: n7\n", text);
    logged("error", 0, text, sizeof text);
    CHECK_STR("gradwire error: n7\n", text);
    logged("info", 0, text, sizeof text);
    CHECK_STR("gradwire error: n7\ngradwire warn: rank 0: n7\ngradwire info: rank 1: n7\n", text);
    logged("nonsense", 0, text, sizeof text);
    CHECK_STR("gradwire error: n7\ngradwire warn: rank 0: n7\n", text);
}

static void long_log_lines_end_in_a_newline(void) {
    char text[8192];
    logged("error", 5000, text, sizeof text);
    CHECK(strlen(text) <= 1024 && strlen(text) > 1000);
    CHECK(text[strlen(text) - 1] == '\n');
}

TEST_MAIN(CASE(first_cause_wins), CASE(rank_is_named), CASE(long_sentences_are_cut), CASE(every_status_has_a_text),
          CASE(version_is_that_of_the_header), CASE(log_levels_parse), CASE(log_is_filtered),
          CASE(long_log_lines_end_in_a_newline))
