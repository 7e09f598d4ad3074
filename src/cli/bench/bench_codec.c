/* bench_codec.c - gradwire bench codec: the speed of encode and decode on one core, compared with memcpy of the same
 * input in the same run, and the relative error.
 *
 * Each repetition times memcpy, encode and decode_add one after the other on memory larger than the caches, and medians
 * are printed. The result is checked: the decoded values must have the error that the encoder reports. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/bench/bench_codec.h"
#include "cli/common/args.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "compress/compress.h"

#define REPEATS_MAX 99
#define ROUNDS_MAX 2

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

/* One codec at one size. */
typedef struct trial {
    gw_codec_setup setup;
    gw_codec_tensor tensor;
    gw_codec_state state;
    gw_codec_call call;
    float *gradient, *sum; /* tensor.count; the gradient is the bench's */
    uint8_t *payload[ROUNDS_MAX];
    size_t capacity[ROUNDS_MAX], bytes[ROUNDS_MAX];
} trial;

typedef struct result {
    double encode_gbs, decode_gbs, memcpy_gbs; /* of input */
    double ratio;                              /* input bytes / payload bytes of all rounds */
    double error;                              /* relative, of the last step */
} result;

static double median(double *x, int count) {
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double t = x[j];
            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    }
    return x[count / 2];
}

/* Roughly a normal distribution: like gradients, most values are near zero and a few are large. */
static void fill(float *x, uint64_t count, uint64_t seed) {
    for (uint64_t i = 0; i < count; i += 4) {
        uint32_t word[4];
        gw_philox(seed, i, 0, word);
        for (uint64_t j = 0; j < 4 && i + j < count; j++) {
            int sum = 0;
            for (int byte = 0; byte < 4; byte++) sum += (int)(word[j] >> 8 * byte & 255) - 128;
            x[i + j] = (float)sum * (1.0f + (float)(word[j] & 1023) * 0x1p-12f) * 1e-4f;
        }
    }
}

static void trial_free(trial *t) {
    for (int r = 0; r < ROUNDS_MAX; r++) free(t->payload[r]);
    free(t->sum);
    gw_codec_state_free(&t->state);
}

static gw_status trial_make(trial *t, const char *text, float *gradient, uint64_t count, gw_error *error) {
    *t = (trial){.gradient = gradient};
    gw_status status = gw_codec_parse(text, &t->setup, error);
    if (status) return status;
    uint64_t rows = 1;
    while (rows * rows * 4 <= count && count % (rows * 2) == 0) rows *= 2;
    t->tensor = gw_codec_tensor_make("bench", rows, count / rows);
    t->call = (gw_codec_call){.seed = 1, .world = 1, .clip = 1};
    const char *refusal = gw_codec_refuses(&t->setup, &t->tensor, 1);
    if (refusal) return gw_fail(error, GW_UNSUPPORTED, "%s: this tensor %s", text, refusal);
    gw_codec_range whole = gw_codec_whole(&t->tensor);
    status = gw_codec_state_make(&t->state, &t->setup, whole, error);
    if (status) return status;
    t->state.born = 0;
    t->call.step = UINT64_C(1) << 40; /* long after any warm-up */
    t->sum = calloc(count ? count : 1, sizeof(float));
    bool short_of = !t->sum;
    for (uint32_t r = 0; r < gw_codec_rounds(&t->setup); r++) {
        t->call.round = r;
        t->capacity[r] = gw_codec_bound(&t->setup, &t->call, whole);
        t->payload[r] = malloc(t->capacity[r] + 1);
        if (t->payload[r]) memset(t->payload[r], 0, t->capacity[r]);
        short_of |= !t->payload[r];
    }
    if (!short_of) return GW_OK;
    trial_free(t);
    return gw_fail(error, GW_MEMORY, "%s: no memory for %llu elements", text, (unsigned long long)count);
}

static void set_round(trial *t, uint32_t round) {
    t->call.round = round;
    t->call.reduced = round ? t->payload[round - 1] : NULL;
    t->call.reduced_bytes = round ? t->bytes[round - 1] : 0;
}

static gw_status encode_once(trial *t, gw_codec_report *report, gw_error *error) {
    gw_codec_range whole = gw_codec_whole(&t->tensor);
    gw_status status = GW_OK;
    t->call.step++;
    gw_codec_prepare(&t->setup, &t->call, &t->tensor, &t->state, t->gradient);
    for (uint32_t r = 0; !status && r < gw_codec_rounds(&t->setup); r++) {
        set_round(t, r);
        status = gw_codec_encode(&t->setup, &t->call, whole, &t->state, t->gradient, t->payload[r], t->capacity[r],
                                 &t->bytes[r], report, error);
    }
    return status;
}

static gw_status decode_once(trial *t, gw_error *error) {
    uint32_t last = gw_codec_rounds(&t->setup) - 1;
    set_round(t, last);
    return gw_codec_decode_add(&t->setup, &t->call, gw_codec_whole(&t->tensor), t->payload[last], t->bytes[last], 1.0f,
                               t->sum, error);
}

/* A first step with new state, without residual: the loss that the encoder reports must be the difference between the
 * gradient and the decoded values. */
static gw_status check_once(trial *t, double *relative, gw_error *error) {
    gw_codec_report report = {0};
    gw_status status = encode_once(t, &report, error);
    if (!status) status = decode_once(t, error);
    if (status) return status;
    double lost = 0;
    for (uint64_t i = 0; i < t->tensor.count; i++) {
        double d = (double)t->gradient[i] - (double)t->sum[i];
        lost += d * d;
    }
    *relative = report.input > 0 ? sqrt(lost / report.input) : 0;
    double said = report.input > 0 ? sqrt(report.error / report.input) : 0;
    if (fabs(said - *relative) <= 1e-3) return GW_OK;
    return gw_fail(error, GW_PROTOCOL, "%s says that it lost %g of the gradient, and %g is missing",
                   t->setup.codec->technique.name, said, *relative);
}

static double seconds_since(gw_time start) { return (double)(gw_clock_now() - start) / (double)GW_SECOND; }

static gw_status measure(trial *t, float *copy, int repeats, result *out, gw_error *error) {
    double copied[REPEATS_MAX], encoded[REPEATS_MAX], decoded[REPEATS_MAX];
    size_t input = t->tensor.count * sizeof(float), sent = 0;
    gw_status status = check_once(t, &out->error, error);
    for (int i = -1; !status && i < repeats; i++) { /* the first warms up */
        int slot = i < 0 ? 0 : i;
        gw_time start = gw_clock_now();
        memcpy(copy, t->gradient, input);
        copied[slot] = seconds_since(start);
        start = gw_clock_now();
        status = encode_once(t, NULL, error);
        encoded[slot] = seconds_since(start);
        start = gw_clock_now();
        if (!status) status = decode_once(t, error);
        decoded[slot] = seconds_since(start);
    }
    if (status) return status;
    for (uint32_t r = 0; r < gw_codec_rounds(&t->setup); r++) sent += t->bytes[r];
    out->memcpy_gbs = (double)input / median(copied, repeats) / 1e9;
    out->encode_gbs = (double)input / median(encoded, repeats) / 1e9;
    out->decode_gbs = (double)input / median(decoded, repeats) / 1e9;
    out->ratio = sent ? (double)input / (double)sent : 0;
    return GW_OK;
}

static void print_json(const char *codec, size_t bytes, const result *r) {
    fputs("{\"codec\": ", stdout);
    gw_json_string(stdout, codec);
    printf(", \"bytes\": %zu, \"encode_gbs\": %s, \"decode_gbs\": %s, \"memcpy_gbs\": %s, \"ratio\": %s, "
           "\"error\": %s}\n",
           bytes, GW_JSON_FIXED(r->encode_gbs, 3), GW_JSON_FIXED(r->decode_gbs, 3), GW_JSON_FIXED(r->memcpy_gbs, 3),
           GW_JSON_FIXED(r->ratio, 2), GW_JSON_DIGITS(r->error, 6));
}

static void print_row(gw_table *table, const char *codec, size_t bytes, const result *r) {
    char text[8][GW_UNIT_TEXT];
    snprintf(text[1], GW_UNIT_TEXT, "%.2f", r->encode_gbs);
    snprintf(text[2], GW_UNIT_TEXT, "%.2f", r->encode_gbs / r->memcpy_gbs);
    snprintf(text[3], GW_UNIT_TEXT, "%.2f", r->decode_gbs);
    snprintf(text[4], GW_UNIT_TEXT, "%.2f", r->decode_gbs / r->memcpy_gbs);
    snprintf(text[5], GW_UNIT_TEXT, "%.2f", r->memcpy_gbs);
    snprintf(text[6], GW_UNIT_TEXT, "%.1f", r->ratio);
    snprintf(text[7], GW_UNIT_TEXT, "%.4f", r->error);
    gw_table_row(table, (const char *const[]){codec, gw_bytes_format(bytes, text[0]), text[1], text[2], text[3],
                                              text[4], text[5], text[6], text[7]});
}

static int bench_size(uint64_t bytes, const char *const *codecs, int repeats, gw_table *table) {
    uint64_t count = bytes / sizeof(float);
    float *gradient = malloc(bytes ? bytes : 1), *copy = malloc(bytes ? bytes : 1);
    int code = gradient && copy ? 0 : GW_EXIT_FAILED;
    if (code)
        fprintf(stderr, "gradwire bench codec: no memory for two buffers of %llu bytes\n", (unsigned long long)bytes);
    else fill(gradient, count, 7);
    for (int i = 0; !code && codecs[i]; i++) {
        trial t;
        result r = {0};
        gw_error error = {0};
        gw_status status = trial_make(&t, codecs[i], gradient, count, &error);
        if (!status) {
            status = measure(&t, copy, repeats, &r, &error);
            trial_free(&t);
        }
        if (status == GW_UNSUPPORTED) continue;
        if (status) {
            fprintf(stderr, "gradwire bench codec: %s\n", error.text);
            code = GW_EXIT_FAILED;
        } else if (table) print_row(table, codecs[i], count * sizeof(float), &r);
        else print_json(codecs[i], count * sizeof(float), &r);
    }
    free(copy);
    free(gradient);
    return code;
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
         .highest = REPEATS_MAX,
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
                           {.title = "DECODE GB/s", .right = true},
                           {.title = "OF MEMCPY", .right = true},
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
        printf("one core, %s; f32 input, medians of %d\n", gw_cpu_name(gw_cpu()), (int)repeats);
        gw_table_header(&table);
    }
    for (int i = 0; !code && i < (only ? 1 : 3); i++) {
        code = bench_size(only ? only : sizes[i], codecs, (int)repeats, json ? NULL : &table);
    }
    return code;
}
