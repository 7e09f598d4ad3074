/* test_args.c - the option parser of the program. It is no part of the library, so its files are included here. */
#include "test.h"

#include "cli/common/args.c"
#include "cli/common/json.c"
#include "cli/common/table.c"

static const char *const ops[] = {"sum", "avg", "max", NULL};

static struct {
    bool json;
    const char *name, *op;
    int64_t ranks;
    uint64_t bytes;
    double deadline;
} got;

static const gw_option options[] = {
    {.name = "json", .letter = 'j', .kind = GW_OPTION_FLAG, .flag = &got.json, .about = "as JSON"},
    {.name = "name", .kind = GW_OPTION_STRING, .string = &got.name, .about = "a name"},
    {.name = "ranks",
     .letter = 'n',
     .kind = GW_OPTION_INTEGER,
     .integer = &got.ranks,
     .lowest = -1,
     .highest = 64,
     .about = "how many"},
    {.name = "bytes", .kind = GW_OPTION_BYTES, .bytes = &got.bytes, .about = "how large"},
    {.name = "deadline", .kind = GW_OPTION_DURATION, .seconds = &got.deadline, .about = "how long"},
    {.name = "op", .kind = GW_OPTION_CHOICE, .string = &got.op, .choices = ops, .about = "what is done"},
    {.name = "title", .kind = GW_OPTION_RENAMED, .value = "name"},
    {.name = NULL},
};

static const gw_command plain = {.name = "try",
                                 .about = "tries things",
                                 .usage = "[FILE]",
                                 .example = "gradwire try\ngradwire try -j",
                                 .operands_max = 1};
static const gw_command wrapper = {.name = "wrap", .usage = "PROGRAM", .example = "", .wraps_program = true};

#define WORDS_MAX 16

static char said[2000];     /* what the last parse() printed */
static char rest_line[400]; /* its operands, a blank between them */

/* Parses a line that is split at blanks; both output streams go to `said`. */
static int parse(const gw_command *command, const char *line) {
    static char words[400];
    char *argv[WORDS_MAX + 1] = {"try"}, *memory = NULL;
    size_t size = 0;
    int argc = 1;
    memset(&got, 0, sizeof got);
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word && argc < WORDS_MAX; word = strtok(NULL, " ")) argv[argc++] = word;
    FILE *capture = open_memstream(&memory, &size), *out = stdout, *err = stderr;
    stdout = stderr = capture;
    int code = gw_args_parse(command, options, &argc, argv);
    stdout = out;
    stderr = err;
    fclose(capture);
    snprintf(said, sizeof said, "%s", memory);
    free(memory);
    rest_line[0] = '\0';
    for (int i = 1; code < 0 && i < argc; i++) strcat(strcat(rest_line, i > 1 ? " " : ""), argv[i]);
    return code;
}

static void reads_every_form(void) {
    CHECK_EQ(-1, parse(&plain, "--json --name here --ranks=4 --bytes 64K --deadline 500ms --op avg file"));
    CHECK_STR("", said);
    CHECK(got.json);
    CHECK_STR("here", got.name);
    CHECK_EQ(4, got.ranks);
    CHECK_EQ(65536, got.bytes);
    CHECK(got.deadline == 0.5);
    CHECK_STR("avg", got.op);
    CHECK_STR("file", rest_line);
    CHECK_EQ(-1, parse(&plain, "file -j -n 4"));
    CHECK(got.json);
    CHECK_EQ(4, got.ranks);
    CHECK_STR("file", rest_line);
    CHECK_EQ(-1, parse(&plain, "-n8 -n -1"));
    CHECK_EQ(-1, got.ranks);
    CHECK_EQ(-1, parse(&plain, "--name=a=b"));
    CHECK_STR("a=b", got.name);
    CHECK_EQ(-1, parse(&plain, "--name="));
    CHECK_STR("", got.name);
    CHECK_EQ(-1, parse(&plain, "-- --json"));
    CHECK(!got.json);
    CHECK_STR("--json", rest_line);
    CHECK_EQ(-1, parse(&plain, "-"));
    CHECK_STR("-", rest_line);
}

static void leaves_the_wrapped_program_alone(void) {
    CHECK_EQ(-1, parse(&wrapper, "-n 2 prog --json -- -n 3"));
    CHECK_EQ(2, got.ranks);
    CHECK(!got.json);
    CHECK_STR("prog --json -- -n 3", rest_line);
    CHECK_EQ(-1, parse(&wrapper, "-n 2 -- prog -- --help"));
    CHECK_STR("prog -- --help", rest_line);
    CHECK_EQ(-1, parse(&wrapper, "-n 2"));
    CHECK_STR("", rest_line);
}

static void refuses_with_a_sentence(void) {
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"--jsno", "unknown option \"--jsno\" (did you mean \"--json\"? allowed: --json, --name, --ranks, --bytes, "
                   "--deadline, --op, --help)"},
        {"-x", "unknown option \"-x\" (allowed: --json, --name, --ranks, --bytes, --deadline, --op, --help)"},
        {"--js", "unknown option \"--js\" (did you mean \"--json\"? allowed: --json, --name, --ranks, --bytes, "
                 "--deadline, --op, --help)"},
        {"--json=yes", "--json takes no value, but \"yes\" is given"},
        {"--help=x", "--help takes no value, but \"x\" is given"},
        {"-jn", "--json takes no value, but \"n\" is given"},
        {"--name", "--name needs a value (allowed: any text)"},
        {"--ranks", "--ranks needs a value (allowed: whole numbers from -1 to 64)"},
        {"--ranks 65", "--ranks cannot be \"65\" (allowed: whole numbers from -1 to 64)"},
        {"-n --json", "--ranks cannot be \"--json\" (allowed: whole numbers from -1 to 64)"},
        {"--bytes much", "--bytes cannot be \"much\" (allowed: bytes such as 4096, 64K, 1M or 2G)"},
        {"--deadline soon", "--deadline cannot be \"soon\" (allowed: times such as 30, 500ms, 20us or 2m)"},
        {"--op sun", "--op cannot be \"sun\" (did you mean \"sum\"? allowed: sum, avg, max)"},
        {"--op", "--op needs a value (allowed: sum, avg, max)"},
        {"--title x", "--title is --name now"},
        {"one two", "unexpected \"two\" (usage: gradwire try [FILE])"},
    };
    char sentence[500];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(sentence, sizeof sentence, "gradwire try: %s\n", cases[i].sentence);
        CHECK_EQ(2, parse(&plain, cases[i].line));
        CHECK_STR(sentence, said);
    }
}

static void help_comes_from_the_table(void) {
    CHECK_EQ(0, parse(&plain, "--help"));
    CHECK_STR("gradwire try: tries things\n\n"
              "usage: gradwire try [FILE]\n\n"
              "options:\n"
              "  -j, --json           as JSON\n"
              "      --name TEXT      a name\n"
              "  -n, --ranks N        how many\n"
              "      --bytes BYTES    how large\n"
              "      --deadline TIME  how long\n"
              "      --op NAME        what is done; one of: sum, avg, max\n"
              "  -h, --help           show this help\n\n"
              "example:\n  gradwire try\n  gradwire try -j\n",
              said);
    CHECK_EQ(0, parse(&plain, "-h"));
}

static void tables_align(void) {
    char *memory = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&memory, &size);
    gw_column columns[] = {{.title = "NAME"}, {.title = "SIZE", .right = true, .width = 6}, {.title = "ABOUT"}};
    gw_table table;
    static const char *const first[] = {"longest", "1", "words here"}, *const second[] = {"b", "12345678", ""};
    gw_table_start(&table, out, columns, 3);
    gw_table_fit(&table, first);
    gw_table_header(&table);
    gw_table_row(&table, first);
    gw_table_row(&table, second);
    gw_json_string(out, "a\"b\\c\n");
    fclose(out);
    CHECK_STR("NAME       SIZE  ABOUT\n"
              "longest       1  words here\n"
              "b        12345678\n"
              "\"a\\\"b\\\\c\\u000a\"",
              memory);
    free(memory);
}

TEST_MAIN(CASE(reads_every_form), CASE(leaves_the_wrapped_program_alone), CASE(refuses_with_a_sentence),
          CASE(help_comes_from_the_table), CASE(tables_align))
