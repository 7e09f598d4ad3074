/* token.c - see token.h. */
#include "bootstrap/token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void gw_token_wipe(gw_token *token) { OPENSSL_cleanse(token, sizeof *token); }

int gw_token_bits(const gw_token *token) {
    static const char hex[] = "0123456789abcdefABCDEF", digits[] = "0123456789";
    const char *text = token->text;
    size_t length = strlen(text);
    bool lower = false, upper = false, digit = false, other = false;
    for (const char *c = text; *c; c++) {
        if (*c >= 'a' && *c <= 'z') lower = true;
        else if (*c >= 'A' && *c <= 'Z') upper = true;
        else if (*c >= '0' && *c <= '9') digit = true;
        else other = true;
    }
    int kinds = (lower ? 26 : 0) + (upper ? 26 : 0) + (digit ? 10 : 0) + (other ? 33 : 0);
    if (strspn(text, digits) < length && strspn(text, hex) == length && lower != upper) kinds = 16;
    return kinds ? (int)((double)length * log2((double)kinds)) : 0;
}

static gw_status random_hex(char *text, int bytes, gw_error *error) {
    uint8_t raw[32];
    if (RAND_bytes(raw, bytes) != 1)
        return gw_fail(error, GW_SYSTEM, "libcrypto has no random bytes to give for a token");
    for (int i = 0; i < bytes; i++) snprintf(text + 2 * i, 3, "%02x", raw[i]);
    OPENSSL_cleanse(raw, sizeof raw);
    return GW_OK;
}

gw_status gw_token_random(gw_token *token, gw_error *error) {
    memset(token, 0, sizeof *token);
    return random_hex(token->text, GW_TOKEN_RANDOM_LENGTH / 2, error);
}

/* source: where the text came from, for errors. */
static gw_status take(const char *text, size_t length, const char *source, gw_token *token, gw_error *error) {
    if (length < GW_TOKEN_LENGTH_MIN || length > GW_TOKEN_LENGTH_MAX)
        return gw_fail(error, GW_INVALID,
                       "the job token from %s has %zu characters; it needs %d to %d (gradwire run makes a good one)",
                       source, length, GW_TOKEN_LENGTH_MIN, GW_TOKEN_LENGTH_MAX);
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return gw_fail(error, GW_INVALID, "the job token from %s has a character that is not printable ASCII",
                           source);
    memset(token, 0, sizeof *token);
    memcpy(token->text, text, length);
    return GW_OK;
}

static gw_status check_owner(int fd, const char *path, gw_error *error) {
    struct stat file;
    if (fstat(fd, &file) != 0)
        return gw_fail(error, GW_SYSTEM, "cannot examine the token file %s: %s", path, strerror(errno));
    if (!S_ISREG(file.st_mode)) return gw_fail(error, GW_INVALID, "the token file %s is not a regular file", path);
    if (file.st_uid != geteuid())
        return gw_fail(error, GW_INVALID,
                       "the token file %s belongs to user %u, but this process runs as user %u: use a file of your own",
                       path, (unsigned)file.st_uid, (unsigned)geteuid());
    if (file.st_mode & (S_IRWXG | S_IRWXO))
        return gw_fail(error, GW_INVALID, "the token file %s is open to others (mode %03o): run chmod 600 %s", path,
                       (unsigned)file.st_mode & 0777u, path);
    return GW_OK;
}

/* Bytes read, -1 on an error. */
static ssize_t read_all(int fd, char *buffer, size_t room) {
    size_t have = 0;
    while (have < room) {
        ssize_t got = read(fd, buffer + have, room - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

gw_status gw_token_read_file(const char *path, gw_token *token, gw_error *error) {
    char text[GW_TOKEN_LENGTH_MAX + 16];                               /* some room for the end of the line */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe must not make us wait */
    if (fd < 0) return gw_fail(error, GW_SYSTEM, "cannot open the token file %s: %s", path, strerror(errno));
    gw_status status = check_owner(fd, path, error);
    if (status == GW_OK) {
        ssize_t length = read_all(fd, text, sizeof text);
        if (length < 0) status = gw_fail(error, GW_SYSTEM, "cannot read the token file %s: %s", path, strerror(errno));
        while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
        if (status == GW_OK) status = take(text, (size_t)length, path, token, error);
    }
    OPENSSL_cleanse(text, sizeof text);
    close(fd);
    return status;
}

static bool home_directory(char *path, size_t room) {
    const char *home = getenv("HOME");
    if (home && home[0] == '/') return (size_t)snprintf(path, room, "%s", home) < room;
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) != 0 || !found) return false;
    return (size_t)snprintf(path, room, "%s", found->pw_dir) < room;
}

/* Creates the missing directories, for the user alone, and writes the path of ours. */
static gw_status own_directory(char *path, size_t room, gw_error *error) {
    const char *config = getenv("XDG_CONFIG_HOME");
    size_t length;
    if (config && config[0] == '/') {
        length = (size_t)snprintf(path, room, "%s", config);
    } else {
        char home[PATH_MAX];
        if (!home_directory(home, sizeof home))
            return gw_fail(error, GW_INVALID,
                           "there is no home directory to keep a token in: set GRADWIRE_TOKEN or GRADWIRE_TOKEN_FILE");
        length = (size_t)snprintf(path, room, "%s/.config", home);
    }
    if (length + sizeof "/gradwire" > room)
        return gw_fail(error, GW_INVALID, "the path of the configuration directory is too long");
    mkdir(path, 0700);
    strcpy(path + length, "/gradwire");
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return gw_fail(error, GW_SYSTEM, "cannot make %s for the token: %s (set GRADWIRE_TOKEN or GRADWIRE_TOKEN_FILE)",
                       path, strerror(errno));
    return GW_OK;
}

/* Writes a whole file under a unique name, then links it to `path`: of several processes (and hosts, on a shared file
 * system) that do this at once exactly one wins, and no one ever sees half a token. */
static gw_status create(const char *path, gw_error *error) {
    char unique[17], fresh[PATH_MAX + 32];
    gw_token token;
    gw_status status = random_hex(unique, 8, error);
    if (status == GW_OK) status = gw_token_random(&token, error);
    if (status != GW_OK) return status;
    snprintf(fresh, sizeof fresh, "%s.%s", path, unique);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        gw_token_wipe(&token);
        return gw_fail(error, GW_SYSTEM, "cannot make the token file %s: %s", fresh, strerror(errno));
    }
    token.text[GW_TOKEN_RANDOM_LENGTH] = '\n';
    bool written = write(fd, token.text, GW_TOKEN_RANDOM_LENGTH + 1) == GW_TOKEN_RANDOM_LENGTH + 1 && fsync(fd) == 0;
    written = close(fd) == 0 && written;
    gw_token_wipe(&token);
    if (!written || (link(fresh, path) != 0 && errno != EEXIST))
        status = gw_fail(error, GW_SYSTEM, "cannot write the token file %s: %s", path, strerror(errno));
    unlink(fresh);
    return status;
}

static gw_status find_default(gw_token *token, gw_error *error) {
    char path[PATH_MAX];
    gw_status status = own_directory(path, sizeof path - sizeof "/token", error);
    if (status != GW_OK) return status;
    strcat(path, "/token");
    if (access(path, F_OK) != 0) status = create(path, error);
    return status == GW_OK ? gw_token_read_file(path, token, error) : status;
}

gw_status gw_token_find(const char *given, gw_token *token, gw_error *error) {
    if (given) return take(given, strlen(given), "the options", token, error);
    const char *text = getenv("GRADWIRE_TOKEN");
    if (text && text[0]) return take(text, strlen(text), "GRADWIRE_TOKEN", token, error);
    const char *file = getenv("GRADWIRE_TOKEN_FILE");
    if (file && file[0]) return gw_token_read_file(file, token, error);
    return find_default(token, error);
}
