/* args.c - see args.h. */
#include "cli/common/args.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"

static const gw_option help_option = {.name = "help", .letter = 'h', .about = "show this help"};

/* All ranks of a job have the same command line: rank 0 says what is wrong with it. */
static bool is_other_rank(void) {
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    return rank && world && atoi(rank) > 0 && atoi(rank) < atoi(world);
}

int gw_usage_error(const gw_command *command, const char *format, ...) {
    va_list args;
    if (is_other_rank()) return GW_EXIT_USAGE;
    va_start(args, format);
    fprintf(stderr, "gradwire %s: ", command->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return GW_EXIT_USAGE;
}

/* ---- help ---- */

static const char *value_word(const gw_option *option) {
    static const char *const words[] = {"", "TEXT", "N", "BYTES", "TIME", "NAME"};
    return option->value ? option->value : words[option->kind];
}

static int label(const gw_option *option, char *text, size_t size) {
    char letter[5] = "    ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const char *value = value_word(option);
    return snprintf(text, size, "%s--%s%s%s", letter, option->name, *value ? " " : "", value);
}

static void option_explain(const gw_option *option, int width) {
    char text[80];
    label(option, text, sizeof text);
    printf("  %-*s  %s", width, text, option->about);
    if (option->kind == GW_OPTION_CHOICE)
        for (int i = 0; option->choices[i]; i++) printf("%s%s", i ? ", " : "; one of: ", option->choices[i]);
    putchar('\n');
}

static void help(const gw_command *command, const gw_option *options) {
    int width = label(&help_option, NULL, 0);
    for (const gw_option *option = options; option->name; option++) {
        int needed = option->kind == GW_OPTION_RENAMED ? 0 : label(option, NULL, 0);
        if (needed > width) width = needed;
    }
    printf("gradwire %s: %s\n\nusage: gradwire %s %s\n\noptions:\n", command->name, command->about, command->name,
           command->usage);
    for (const gw_option *option = options; option->name; option++)
        if (option->kind != GW_OPTION_RENAMED) option_explain(option, width);
    option_explain(&help_option, width);
    printf("\nexample:\n");
    for (const char *line = command->example; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

/* ---- values ---- */

static int value_wrong(const gw_command *command, const gw_option *option, const char *text, const char *allowed) {
    char quoted[GW_QUOTE_BYTES];
    if (!text) return gw_usage_error(command, "--%s needs a value (allowed: %s)", option->name, allowed);
    return gw_usage_error(command, "--%s cannot be %s (allowed: %s)", option->name, gw_suggest_quote(text, quoted),
                          allowed);
}

static int integer_set(const gw_command *command, const gw_option *option, const char *text) {
    char allowed[64];
    assert(option->lowest < option->highest && "an integer option has a range");
    if (text && gw_integer_parse(text, option->lowest, option->highest, option->integer)) return -1;
    snprintf(allowed, sizeof allowed, "whole numbers from %" PRId64 " to %" PRId64, option->lowest, option->highest);
    return value_wrong(command, option, text, allowed);
}

static int choice_set(const gw_command *command, const gw_option *option, const char *text) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    for (int i = 0; text && option->choices[i]; i++) {
        if (strcmp(text, option->choices[i]) != 0) continue;
        *option->string = text;
        return -1;
    }
    gw_suggest_hint(text ? text : "", option->choices, hint);
    if (!text) return gw_usage_error(command, "--%s needs a value (%s)", option->name, hint);
    return gw_usage_error(command, "--%s cannot be %s (%s)", option->name, gw_suggest_quote(text, quoted), hint);
}

/* text NULL: the command line ends after the option. -1, or an exit code. */
static int value_set(const gw_command *command, const gw_option *option, const char *text) {
    switch (option->kind) {
    case GW_OPTION_FLAG: break;
    case GW_OPTION_RENAMED: return gw_usage_error(command, "--%s is --%s now", option->name, option->value);
    case GW_OPTION_INTEGER: return integer_set(command, option, text);
    case GW_OPTION_CHOICE: return choice_set(command, option, text);
    case GW_OPTION_STRING:
        if (!text) return value_wrong(command, option, text, "any text");
        *option->string = text;
        return -1;
    case GW_OPTION_BYTES:
        if (text && gw_bytes_parse(text, option->bytes)) return -1;
        return value_wrong(command, option, text, "bytes such as 4096, 64K, 1M or 2G");
    case GW_OPTION_DURATION:
        if (text && gw_duration_parse(text, option->seconds)) return -1;
        return value_wrong(command, option, text, "times such as 30, 500ms, 20us or 2m");
    }
    assert(!"a flag takes no value");
    return GW_EXIT_USAGE;
}

/* ---- words ---- */

static int option_unknown(const gw_command *command, const gw_option *options, const char *word) {
    char dashed[GW_OPTIONS_MAX + 1][48], quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[GW_OPTIONS_MAX + 2] = {NULL};
    int count = 0;
    for (const gw_option *option = options; option->name; option++) {
        assert(count < GW_OPTIONS_MAX);
        if (option->kind == GW_OPTION_RENAMED) continue;
        snprintf(dashed[count], sizeof dashed[0], "--%s", option->name);
        names[count] = dashed[count];
        count++;
    }
    names[count] = "--help";
    return gw_usage_error(command, "unknown option %s (%s)", gw_suggest_quote(word, quoted),
                          gw_suggest_hint(word, names, hint));
}

/* The option that a word names, NULL if none; *value: the text after the equals sign or the letter, NULL if none. */
static const gw_option *option_find(const gw_option *options, const char *word, const char **value) {
    bool is_long = word[1] == '-';
    size_t length = strcspn(word, "=");
    for (const gw_option *option = options;; option++) {
        if (!option->name) option = &help_option;
        if (is_long && length == strlen(option->name) + 2 && strncmp(word + 2, option->name, length - 2) == 0) {
            *value = word[length] ? word + length + 1 : NULL;
            return option;
        }
        if (!is_long && word[1] == option->letter) {
            *value = word[2] ? word + 2 : NULL;
            return option;
        }
        if (option == &help_option) return NULL;
    }
}

/* Parses the option at argv[*at], and its value if that is the next word. -1, or an exit code. */
static int option_read(const gw_command *command, const gw_option *options, int argc, char **argv, int *at) {
    char quoted[GW_QUOTE_BYTES];
    const char *value;
    const gw_option *option = option_find(options, argv[*at], &value);
    if (!option) return option_unknown(command, options, argv[*at]);
    if (option->kind == GW_OPTION_FLAG && value)
        return gw_usage_error(command, "--%s takes no value, but %s is given", option->name,
                              gw_suggest_quote(value, quoted));
    if (option == &help_option) {
        help(command, options);
        return 0;
    }
    if (option->kind == GW_OPTION_FLAG) {
        *option->flag = true;
        return -1;
    }
    if (!value && *at + 1 < argc) value = argv[++*at];
    return value_set(command, option, value);
}

static int operands_check(const gw_command *command, int argc, char **argv) {
    char quoted[GW_QUOTE_BYTES];
    if (command->wraps_program || argc - 1 <= command->operands_max) return -1;
    return gw_usage_error(command, "unexpected %s (usage: gradwire %s %s)",
                          gw_suggest_quote(argv[command->operands_max + 1], quoted), command->name, command->usage);
}

int gw_args_parse(const gw_command *command, const gw_option *options, int *argc, char **argv) {
    int operands = 1;
    bool reading = true;
    for (int at = 1; at < *argc; at++) {
        const char *word = argv[at];
        if (reading && strcmp(word, "--") == 0) {
            reading = false;
        } else if (reading && word[0] == '-' && word[1] != '\0') {
            int code = option_read(command, options, *argc, argv, &at);
            if (code >= 0) return code;
        } else {
            argv[operands++] = argv[at];
            if (command->wraps_program) reading = false;
        }
    }
    argv[operands] = NULL;
    *argc = operands;
    return operands_check(command, *argc, argv);
}
