/* bench_codec.c - gradwire bench codec: the speed and the relative error of codecs on one core, at several sizes. */
#include "cli/bench/bench_codec.h"
#include "base/cpu.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/codec_figures.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "compress/compress.h"

#include <math.h>

#define CODECS_MAX 128

/* Every example of every codec. */
typedef struct codec_list {
    const char *codecs[CODECS_MAX + 1]; /* NULL at the end */
    char text[CODECS_MAX][GW_TECHNIQUE_TEXT_BYTES];
} codec_list;

static void list_codecs(codec_list *list) {
    int count = 0;
    for (const gw_codec *const *c = gw_codecs; *c; c++)
        for (int i = 0; count < CODECS_MAX; i++) {
            list->codecs[count] = gw_technique_example(&(*c)->technique, i, list->text[count]);
            if (!list->codecs[count]) break;
            count++;
        }
    list->codecs[count] = NULL;
}

static void print_json(const char *codec, size_t bytes, const gw_codec_figures *r) {
    fputs("{\"codec\": ", stdout);
    gw_json_string(stdout, codec);
    printf(", \"bytes\": %zu, \"encode_gbs\": %s, \"decode_gbs\": %s, \"memcpy_gbs\": %s, ", bytes,
           GW_JSON_FIXED(r->encode_gbs, 3), GW_JSON_FIXED(r->decode_gbs, 3), GW_JSON_FIXED(r->memcpy_gbs, 3));
    printf("\"encode_of_memcpy\": %s, \"encode_of_bound\": %s, \"decode_of_memcpy\": %s, \"decode_of_bound\": %s, ",
           GW_JSON_FIXED(r->encode_of_memcpy, 3), GW_JSON_FIXED(r->encode_of_bound, 3),
           GW_JSON_FIXED(r->decode_of_memcpy, 3), GW_JSON_FIXED(r->decode_of_bound, 3));
    printf("\"ratio\": %s, \"error\": %s}\n", GW_JSON_FIXED(r->ratio, 2), GW_JSON_DIGITS(r->error, 6));
}

#define FIGURES 9

static void print_row(gw_table *table, const char *codec, size_t bytes, const gw_codec_figures *r) {
    const double figures[FIGURES] = {
        r->encode_gbs,      r->encode_of_memcpy, r->encode_of_bound, r->decode_gbs, r->decode_of_memcpy,
        r->decode_of_bound, r->memcpy_gbs,       r->ratio,           r->error};
    char text[FIGURES][GW_UNIT_TEXT], size[GW_UNIT_TEXT];
    const char *cells[2 + FIGURES] = {codec, gw_bytes_format(bytes, size)};
    for (int i = 0; i < FIGURES; i++) {
        int decimals = i == FIGURES - 1 ? 4 : i == FIGURES - 2 ? 1 : 2;
        if (isnan(figures[i])) snprintf(text[i], GW_UNIT_TEXT, "-");
        else snprintf(text[i], GW_UNIT_TEXT, "%.*f", decimals, figures[i]);
        cells[2 + i] = text[i];
    }
    gw_table_row(table, cells);
}

static int fail(const gw_error *error) {
    fprintf(stderr, "gradwire bench codec: %s\n", error->text);
    return GW_EXIT_FAILED;
}

static int bench_size(uint64_t bytes, const char *const *codecs, int repeats, gw_table *table) {
    gw_codec_input input;
    gw_error error = {0};
    gw_status status = gw_codec_input_make(&input, bytes, &error);
    if (status) return fail(&error);
    for (int i = 0; !status && codecs[i]; i++) {
        gw_codec_figures r;
        status = gw_codec_check_levels(&input, codecs[i], &error);
        if (!status) status = gw_codec_measure(&input, codecs[i], repeats, &r, &error);
        if (!status && table) print_row(table, codecs[i], input.count * sizeof(float), &r);
        else if (!status) print_json(codecs[i], input.count * sizeof(float), &r);
        else if (status == GW_UNSUPPORTED) status = GW_OK;
    }
    gw_codec_input_free(&input);
    return status ? fail(&error) : 0;
}

static const gw_command command = {
    .name = "bench codec",
    .about = "speed and accuracy of codecs on one core",
    .usage = "[CODEC...] [--bytes SIZE] [--repeats N] [--json]",
    .example = "gradwire bench codec onebit topk:ratio=0.001 --bytes 16M\n",
    .operands_max = 64,
    .run = gw_cmd_bench_codec,
};

/* Checks all codecs before the first is measured. Exit code, 0 to continue. */
static int check_codecs(const char *const *codecs) {
    gw_codec_setup setup;
    gw_error error = {0};
    for (int i = 0; codecs[i]; i++)
        if (gw_codec_parse(codecs[i], &setup, &error)) return gw_usage_error(&command, "%s", error.text);
    return 0;
}

int gw_cmd_bench_codec(int argc, char **argv) {
    uint64_t only = 0;
    int64_t repeats = 9;
    bool json = false;
    const gw_option options[] = {
        {.name = "bytes", .kind = GW_OPTION_BYTES, .bytes = &only,
         .about = "size of the f32 input (default: 64K, 1M, 64M)"},
        {.name = "repeats",
         .kind = GW_OPTION_INTEGER,
         .integer = &repeats,
         .lowest = 1,
         .highest = GW_CODEC_REPEATS_MAX,
         .about = "repetitions; medians are printed (default: 9)"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &json, .about = "print one JSON object per line"},
        {.name = NULL},
    };
    int code = gw_args_parse(&command, options, &argc, argv);
    if (code >= 0) return code;
    gw_column columns[] = {{.title = "CODEC", .width = 20},
                           {.title = "BYTES", .right = true, .width = 9},
                           {.title = "ENCODE GB/s", .right = true},
                           {.title = "OF MEMCPY", .right = true},
                           {.title = "OF BOUND", .right = true},
                           {.title = "DECODE GB/s", .right = true},
                           {.title = "OF MEMCPY", .right = true},
                           {.title = "OF BOUND", .right = true},
                           {.title = "MEMCPY GB/s", .right = true},
                           {.title = "SMALLER", .right = true},
                           {.title = "ERROR", .right = true, .width = 7}};
    gw_table table;
    gw_table_start(&table, stdout, columns, (int)(sizeof columns / sizeof columns[0]));
    codec_list all;
    list_codecs(&all);
    const char *const *codecs = argc > 1 ? (const char *const *)argv + 1 : all.codecs;
    const uint64_t sizes[] = {64 << 10, 1 << 20, 64 << 20};
    code = check_codecs(codecs);
    if (code) return code;
    if (!json) {
        printf("one core, %s; f32 input, medians of %d; bound: a loop with the same reads and writes\n",
               gw_cpu_name(gw_cpu()), (int)repeats);
        gw_table_header(&table);
    }
    for (int i = 0; !code && i < (only ? 1 : 3); i++) {
        code = bench_size(only ? only : sizes[i], codecs, (int)repeats, json ? NULL : &table);
    }
    return code;
}
