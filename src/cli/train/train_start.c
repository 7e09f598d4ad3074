/* train_start.c - starts the ranks of gradwire train: fetches their data once, and becomes the launcher. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/common/fetch_data.h"
#include "cli/train/train_request.h"

enum { FETCH_SECONDS = 900, WORDS_BEFORE = 20 };

int gw_train_data(const gw_train_request *request) {
    char path[PATH_MAX];
    const gw_source *source = gw_source_find(request->settings.data);
    if (!source || gw_source_locate(source, path)) return -1; /* no source: a path, checked when it is opened */
    if (gw_data_fetch("train", source, FETCH_SECONDS)) return -1;
    fprintf(stderr,
            "gradwire train: the data set %s is missing; `gradwire data get %s` fetches it, --data names "
            "another, `--data synthetic` needs none\n",
            source->name, source->name);
    return GW_EXIT_FAILED;
}

/* The number of words that -n N, -nN, --ranks N or --ranks=N takes; 0: word is another option. */
static int ranks_words(const char *word) {
    if (strcmp(word, "-n") == 0 || strcmp(word, "--ranks") == 0) return 2;
    return strncmp(word, "-n", 2) == 0 || strncmp(word, "--ranks=", 8) == 0 ? 1 : 0;
}

int gw_train_launch(const gw_train_request *request, int argc, char **argv) {
    char self[PATH_MAX] = "", count[32], restarts[32], servers[32];
    char **words = calloc((size_t)argc + WORDS_BEFORE, sizeof *words);
    int used = 0;
    if (!words || readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        fprintf(stderr, "gradwire train: cannot find my own program file: %s\n", strerror(errno));
        free(words);
        return GW_EXIT_FAILED;
    }
    snprintf(count, sizeof count, "%lld", (long long)(request->ranks ? request->ranks : 1));
    snprintf(servers, sizeof servers, "%lld", (long long)request->servers);
    snprintf(restarts, sizeof restarts, "%lld", (long long)request->restarts);
    char *const before[] = {self, "run", "--no-prefix", "-n", count};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) words[used++] = before[i];
    if (request->servers) words[used++] = "--servers", words[used++] = servers;
    if (request->elastic) words[used++] = "--elastic";
    if (request->restarts) words[used++] = "--restarts", words[used++] = restarts;
    if (request->snapshots) words[used++] = "--snapshots", words[used++] = (char *)(uintptr_t)request->snapshots;
    words[used++] = "--";
    words[used++] = self;
    words[used++] = "train";
    for (int i = 1; i < argc;) {
        int skip = ranks_words(argv[i]);
        if (skip) i += skip;
        else words[used++] = argv[i++];
    }
    if (isatty(STDOUT_FILENO)) setenv(GW_TRAIN_LIVE_VARIABLE, "1", 1);
    execv(self, words);
    fprintf(stderr, "gradwire train: cannot start %s: %s\n", self, strerror(errno));
    free(words);
    return GW_EXIT_FAILED;
}
