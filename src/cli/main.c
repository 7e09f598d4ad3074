/* main.c - the gradwire program: finds the command and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"
#include "gradwire.h"

/* Every command, in the order of the help. */
static const gw_command *const commands[] = {
    &gw_command_run,    &gw_command_train, &gw_command_list,    &gw_command_explain, &gw_command_plan,
    &gw_command_sim,    &gw_command_bench, &gw_command_model,   &gw_command_profile, &gw_command_data,
    &gw_command_doctor, &gw_command_fit,   &gw_command_predict, &gw_command_trace,   &gw_command_tune,
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void help(FILE *out) {
    int width = 0;
    for (size_t i = 0; i < COMMANDS; i++) {
        int length = (int)strlen(commands[i]->name);
        if (length > width) width = length;
    }
    fputs("gradwire: the communication stack of distributed deep learning\n\n"
          "usage: gradwire COMMAND [ARGUMENTS]\n       gradwire --version\n\ncommands:\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++) fprintf(out, "  %-*s  %s\n", width, commands[i]->name, commands[i]->about);
    fputs("\ngradwire COMMAND --help explains a command and shows an example.\n", out);
}

static int unknown(const char *word) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[COMMANDS + 3] = {NULL};
    size_t count = 0;
    for (; count < COMMANDS; count++) names[count] = commands[count]->name;
    names[count++] = "--help";
    names[count] = "--version";
    fprintf(stderr, "gradwire: unknown %s %s (%s)\n", word[0] == '-' ? "option" : "command",
            gw_suggest_quote(word, quoted), gw_suggest_hint(word, names, hint));
    return GW_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return GW_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(word, "--version") == 0) {
        printf("gradwire %d.%d.%d\n", GW_VERSION_MAJOR, GW_VERSION_MINOR, GW_VERSION_PATCH);
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i]->name) == 0) return commands[i]->run(argc - 1, argv + 1);
    if (strcmp(word, gw_command_supervise.name) == 0) return gw_command_supervise.run(argc - 1, argv + 1);
    if (strcmp(word, gw_command_server.name) == 0) return gw_command_server.run(argc - 1, argv + 1);
    if (strcmp(word, gw_command_probe.name) == 0) return gw_command_probe.run(argc - 1, argv + 1);
    return unknown(word);
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails, and a sentence says so */
    int code = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        fprintf(stderr, "gradwire: standard output cannot be written: %s\n", strerror(errno));
        code = GW_EXIT_FAILED;
    }
    return code;
}
