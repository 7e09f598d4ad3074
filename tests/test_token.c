/* test_token.c - where the token comes from, and which files are refused. */
#include "bootstrap/token.h"

#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>

static char directory[64];

static void put(const char *name, const char *text, mode_t mode) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    if (!file) return;
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
}

static gw_status get(const char *name, gw_token *token, gw_error *error) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    *error = (gw_error){0};
    return gw_token_read_file(path, token, error);
}

static void clean_environment(void) {
    unsetenv("GRADWIRE_TOKEN");
    unsetenv("GRADWIRE_TOKEN_FILE");
    unsetenv("XDG_CONFIG_HOME");
    snprintf(directory, sizeof directory, "/tmp/gradwire-test-token-XXXXXX");
    CHECK(mkdtemp(directory) != NULL);
}

static void remove_directory(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    CHECK_EQ(0, system(command));
}

static void strings(void) {
    gw_token token;
    gw_error error = {0};
    clean_environment();
    CHECK_EQ(GW_OK, gw_token_find("0123456789abcdef", &token, &error));
    CHECK_STR("0123456789abcdef", token.text);
    CHECK_EQ(GW_INVALID, gw_token_find("secret-secret-s", &token, &error));
    CHECK(strstr(error.text, "15 characters") != NULL);
    CHECK(strstr(error.text, "secret") == NULL); /* never in a sentence */
    CHECK_EQ(GW_INVALID, gw_token_find("0123456789abcde\n", &token, NULL));
    setenv("GRADWIRE_TOKEN", "from the environment", 1);
    CHECK_EQ(GW_OK, gw_token_find(NULL, &token, NULL));
    CHECK_STR("from the environment", token.text);
    char nonsense[400];
    memset(nonsense, 'x', sizeof nonsense);
    nonsense[256] = 0;
    CHECK_EQ(GW_INVALID, gw_token_find(nonsense, &token, NULL));
    nonsense[255] = 0;
    CHECK_EQ(GW_OK, gw_token_find(nonsense, &token, NULL));
    remove_directory();
}

static void files(void) {
    gw_token token;
    gw_error error;
    clean_environment();
    put("good", "a token in a file \r\n", 0600);
    CHECK_EQ(GW_OK, get("good", &token, &error));
    CHECK_STR("a token in a file", token.text);
    put("open", "a token in a file\n", 0640);
    CHECK_EQ(GW_INVALID, get("open", &token, &error));
    CHECK(strstr(error.text, "chmod 600") != NULL);
    put("short", "brief\n", 0600);
    CHECK_EQ(GW_INVALID, get("short", &token, &error));
    CHECK_EQ(GW_SYSTEM, get("missing", &token, &error));
    CHECK_EQ(GW_INVALID, get("", &token, &error)); /* a directory */
    put("long", "", 0600);
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    put("long", text, 0600);
    CHECK_EQ(GW_INVALID, get("long", &token, &error));
    char path[128];
    snprintf(path, sizeof path, "%s/pipe", directory);
    CHECK_EQ(0, mkfifo(path, 0600));
    CHECK_EQ(GW_INVALID, get("pipe", &token, &error)); /* and does not wait for a writer */
    if (geteuid() == 0) {
        put("foreign", "a token in a file\n", 0600);
        snprintf(path, sizeof path, "%s/foreign", directory);
        CHECK_EQ(0, chown(path, 12345, 0));
        CHECK_EQ(GW_INVALID, get("foreign", &token, &error));
        CHECK(strstr(error.text, "user 12345") != NULL);
    }
    remove_directory();
}

/* Eight processes ask at once; all must get the same whole token. */
static void the_default_file_is_made_once(void) {
    clean_environment();
    setenv("XDG_CONFIG_HOME", directory, 1);
    pid_t pids[8];
    int ends[2];
    CHECK_EQ(0, pipe(ends));
    for (int i = 0; i < 8; i++) {
        pids[i] = fork();
        if (pids[i]) continue;
        gw_token token;
        gw_status status = gw_token_find(NULL, &token, NULL);
        if (status == GW_OK && write(ends[1], token.text, GW_TOKEN_RANDOM_LENGTH) != GW_TOKEN_RANDOM_LENGTH) _exit(2);
        _exit(status != GW_OK);
    }
    char tokens[8][GW_TOKEN_RANDOM_LENGTH];
    for (int i = 0; i < 8; i++) {
        int status;
        CHECK_EQ(pids[i], waitpid(pids[i], &status, 0));
        CHECK_EQ(0, status);
    }
    CHECK_EQ(sizeof tokens, read(ends[0], tokens, sizeof tokens));
    for (int i = 1; i < 8; i++) CHECK(memcmp(tokens[0], tokens[i], sizeof tokens[0]) == 0);
    char path[128];
    struct stat file;
    snprintf(path, sizeof path, "%s/gradwire/token", directory);
    CHECK_EQ(0, stat(path, &file));
    CHECK_EQ(0600, file.st_mode & 0777);
    CHECK_EQ(1, file.st_nlink);
    close(ends[0]);
    close(ends[1]);
    unsetenv("XDG_CONFIG_HOME");
    remove_directory();
}

static void random_ones_differ(void) {
    gw_token a, b;
    CHECK_EQ(GW_OK, gw_token_random(&a, NULL));
    CHECK_EQ(GW_OK, gw_token_random(&b, NULL));
    CHECK_EQ(GW_TOKEN_RANDOM_LENGTH, strlen(a.text));
    CHECK(strcmp(a.text, b.text) != 0);
    gw_token_wipe(&a);
    CHECK_EQ(0, a.text[0]);
}

static void bits(void) {
    static const struct {
        const char *text;
        int bits;
    } cases[] = {{"0123456789012345", 53},  {"0123456789abcdef", 64},    {"0123456789abcdef0123456789abcdef", 128},
                 {"onlylowercaseword", 79}, {"a token of the job", 105}, {"ZkQ3bVd0c1RqWmxpVnhTdw", 130},
                 {"0123456789ABCDEF", 64}};
    gw_token token = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(token.text, sizeof token.text, "%s", cases[i].text);
        CHECK_EQ(cases[i].bits, gw_token_bits(&token));
    }
    CHECK_EQ(GW_OK, gw_token_random(&token, NULL));
    CHECK_EQ(256, gw_token_bits(&token));
}

TEST_MAIN(CASE(bits), CASE(strings), CASE(files), CASE(the_default_file_is_made_once), CASE(random_ones_differ))
