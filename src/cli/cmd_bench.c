/* cmd_bench.c - gradwire bench: times collectives and checks results, with the flags and columns of nccl-tests. */
#include "cli/bench/bench.h"
#include "cli/bench/bench_codec.h"
#include "cli/bench/bench_step.h"
#include "compress/compress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/suggest.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/host_options.h"

enum { RANKS_MAX = 1024, CALLS_DEFAULT_MAX = 1000, CALLS_DEFAULT_MIN = 5 };

#define CALLS_BUDGET (GW_SECOND / 2) /* for the timed calls of one baseline at one size, without --iters */

static const char *const collectives[] = {"allreduce", "reduce_scatter", "allgather", "reduce",  "broadcast",
                                          "gather",    "scatter",        "alltoall",  "barrier", NULL};
static const char *const memories[] = {"malloc", "gw_alloc", "register", NULL}; /* gw_bench_memory */

gw_status gw_bench_strategy(const gw_bench_settings *s, const char *arch, gw_strategy *strategy, gw_error *error) {
    char text[64];
    if (!arch) arch = s->arch;
    gw_status status = gw_strategy_resolve(s->strategy, strategy, error);
    if (!status && arch) {
        snprintf(text, sizeof text, "arch=%.40s", arch);
        status = gw_strategy_overlay(strategy, text, "--arch", error);
    }
    if (!status && s->transport) {
        snprintf(text, sizeof text, "transport=%.*s", (int)strcspn(s->transport, " ") % 48, s->transport);
        status = gw_strategy_overlay(strategy, text, "--transport", error);
    }
    return status;
}

bool gw_bench_next_size(const gw_bench_settings *s, int world, gw_bench_case *c, uint64_t *bytes) {
    bool first = *bytes == UINT64_MAX;
    if (c->collective == GW_COLL_BARRIER) {
        *bytes = 0;
        return first;
    }
    *bytes = first ? s->from : *bytes ? *bytes * (uint64_t)s->factor : gw_dtype_bytes(c->dtype) * (uint64_t)world;
    c->count = gw_bench_count(c->collective, c->dtype, world, *bytes);
    return *bytes <= s->to;
}

int gw_bench_calls(const gw_bench_settings *s, uint64_t call_ns) {
    if (s->iterations) return (int)s->iterations;
    uint64_t calls = CALLS_BUDGET / (call_ns + 1);
    if (calls > CALLS_DEFAULT_MAX) return CALLS_DEFAULT_MAX;
    return calls < CALLS_DEFAULT_MIN ? CALLS_DEFAULT_MIN : (int)calls;
}

static int wrong_word(const char *what, const char *word, const char *const *names) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    return gw_usage_error(&gw_command_bench, "unknown %s %s (%s)", what, gw_suggest_quote(word, quoted),
                          gw_suggest_hint(word, names, hint));
}

static int check_collective(gw_bench_settings *s, int argc, char **argv) {
    if (argc < 2)
        return gw_usage_error(&gw_command_bench, "which collective? (usage: gradwire bench %s)",
                              gw_command_bench.usage);
    for (int i = 0; collectives[i]; i++)
        if (strcmp(argv[1], collectives[i]) == 0 && gw_collective_parse(argv[1], &s->first.collective)) return -1;
    return wrong_word("collective", argv[1], collectives);
}

static int check_sizes(const gw_bench_settings *s) {
    if (s->from > s->to)
        return gw_usage_error(&gw_command_bench, "-b is larger than -e: the sizes go from -b to -e, times -f each");
    if (s->to > (uint64_t)1 << 40) return gw_usage_error(&gw_command_bench, "-e cannot be more than 1024G");
    return -1;
}

static int check_strategy(const gw_bench_settings *s) {
    gw_error error = {0};
    gw_strategy strategy;
    const char *arch = s->arch && strcmp(s->arch, "all") == 0 ? "auto" : s->arch;
    if (gw_bench_strategy(s, arch, &strategy, &error) == GW_OK) return -1;
    return gw_usage_error(&gw_command_bench, "%s", error.text);
}

static int check_against(const gw_bench_settings *s) {
    char word[64];
    for (const char *at = s->against; at && *at;) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < 63 ? length : 63), at);
        if (!gw_baseline_known(word)) return wrong_word("library in --against", word, gw_baseline_names);
        at += length + (at[length] == ',');
    }
    if (s->against && strstr(s->against, "bound") && s->first.collective != GW_COLL_ALLREDUCE)
        return gw_usage_error(&gw_command_bench, "the memory bound is known for allreduce only");
    if (s->against && (s->first.dtype != GW_F32 || s->first.op != GW_SUM))
        return gw_usage_error(&gw_command_bench, "--against compares f32 sums only");
    return -1;
}

static int check_compress(const gw_bench_settings *s) {
    gw_error error = {0};
    gw_codec_setup setup;
    char word[64];
    for (const char *at = s->compress; at && *at;) {
        size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)(length < 63 ? length : 63), at);
        if (length && gw_codec_parse(word, &setup, &error) != GW_OK)
            return gw_usage_error(&gw_command_bench, "%s", error.text);
        at += length + (at[length] == ' ');
    }
    bool possible = s->first.collective == GW_COLL_ALLREDUCE && s->first.dtype == GW_F32 && s->first.op == GW_SUM;
    if (s->compress && !possible) return gw_usage_error(&gw_command_bench, "--compress is for allreduce of f32 sums");
    return -1;
}

/* Refuses to record several jobs, because all would write to the same file. -1, or an exit code. */
static int check_recording(const gw_bench_settings *s) {
    bool several = s->compress || (s->arch && strcmp(s->arch, "all") == 0);
    if (several && (s->timeline || s->capture))
        return gw_usage_error(&gw_command_bench, "--timeline and --capture record one job, but --arch all and "
                                                 "--compress "
                                                 "run several; give one --arch, or none");
    return -1;
}

static int check_lab(gw_bench_settings *s) {
    gw_error error = {0};
    if (!s->lab_text) return -1;
    if (gw_lab_parse(s->lab_text, &s->lab, &error) != GW_OK) return gw_usage_error(&gw_command_bench, "%s", error.text);
    if (!s->ranks) s->ranks = s->lab.hosts;
    if (s->ranks < s->lab.hosts)
        return gw_usage_error(&gw_command_bench, "-n %d ranks are too few for a lab of %d hosts", (int)s->ranks,
                              s->lab.hosts);
    return -1;
}

static int check_operation(const gw_bench_settings *s) {
    const char *why = gw_redop_refuses(s->first.dtype, s->first.op);
    if (!why || !gw_bench_reduces(s->first.collective)) return -1;
    return gw_usage_error(&gw_command_bench, "the %s of %s is not possible: %s", gw_redop_name(s->first.op),
                          gw_dtype_name(s->first.dtype), why);
}

static int check(gw_bench_settings *s, int argc, char **argv) {
    int code = check_collective(s, argc, argv);
    if (s->dtype) gw_dtype_parse(s->dtype, &s->first.dtype);
    if (s->op) gw_redop_parse(s->op, &s->first.op);
    s->first.root = (int)s->root;
    s->first.check = s->check;
    while (strcmp(s->memory, memories[s->first.memory])) s->first.memory++;
    if (code < 0) code = check_operation(s);
    if (code < 0) code = check_sizes(s);
    if (code < 0) code = check_strategy(s);
    if (code < 0) code = check_against(s);
    if (code < 0) code = check_compress(s);
    if (code < 0) code = check_recording(s);
    if (code < 0) code = check_lab(s);
    if (code < 0 && s->root >= (s->ranks ? s->ranks : 2) && !getenv("WORLD_SIZE"))
        code = gw_usage_error(&gw_command_bench, "--root %d is not one of the ranks", (int)s->root);
    return code;
}

/* A launcher started this process as a rank of a job. */
bool gw_bench_is_rank(void) {
    static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i])) return true;
    return false;
}

static int as_rank(const gw_bench_settings *s) {
    if (s->against || s->lab.hosts || s->ranks || (s->arch && strcmp(s->arch, "all") == 0))
        return gw_usage_error(&gw_command_bench, "this process is a rank of a job already, so -n, --against, --lab and "
                                                 "--arch all cannot be given");
    return gw_bench_alone(s);
}

static int run(int argc, char **argv) {
    static const char *dtypes[GW_DTYPES + 1], *ops[GW_REDOPS + 1];
    for (int i = 0; i < GW_DTYPES; i++) dtypes[i] = gw_dtype_name((gw_dtype)i);
    for (int i = 0; i < GW_REDOPS; i++) ops[i] = gw_redop_name((gw_redop)i);
    if (argc > 1 && strcmp(argv[1], "codec") == 0) return gw_cmd_bench_codec(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "step") == 0) return gw_cmd_bench_step(argc - 1, argv + 1);
    const char *side = getenv(GW_BENCH_VARIABLE);
    if (side && argc == 1) return gw_bench_serve(side);
    gw_bench_settings s = {.from = 4096, .to = 64 << 20, .factor = 4, .memory = memories[GW_BENCH_OWN],
                           .first = {.dtype = GW_F32, .op = GW_SUM}};
    const gw_option options[] = {
        /* clang-format off */
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &s.ranks, .lowest = 1,
         .highest = RANKS_MAX, .about = "number of ranks (default: 2, or one for each host of the lab)"},
        {.name = "minbytes", .letter = 'b', .kind = GW_OPTION_BYTES, .bytes = &s.from,
         .about = "smallest message size (default: 4K)"},
        {.name = "maxbytes", .letter = 'e', .kind = GW_OPTION_BYTES, .bytes = &s.to,
         .about = "largest message size (default: 64M)"},
        {.name = "stepfactor", .letter = 'f', .kind = GW_OPTION_INTEGER, .integer = &s.factor, .lowest = 2,
         .highest = 1 << 20, .about = "factor from one size to the next (default: 4)"},
        {.name = "dtype", .letter = 'd', .kind = GW_OPTION_CHOICE, .string = &s.dtype, .choices = dtypes,
         .about = "element type (default: f32)"},
        {.name = "op", .letter = 'o', .kind = GW_OPTION_CHOICE, .string = &s.op, .choices = ops,
         .about = "reduction operation (default: sum)"},
        {.name = "root", .letter = 'r', .kind = GW_OPTION_INTEGER, .integer = &s.root, .lowest = 0,
         .highest = RANKS_MAX - 1, .about = "root rank, for collectives that have one (default: 0)"},
        {.name = "iters", .kind = GW_OPTION_INTEGER, .integer = &s.iterations, .lowest = 1,
         .highest = GW_BENCH_CALLS_MAX, .about = "timed calls (default: as many as take half a second, 5 to 1000)"},
        {.name = "warmup", .letter = 'w', .kind = GW_OPTION_INTEGER, .integer = &s.warmup, .lowest = 1,
         .highest = 1000, .about = "warm-up calls; their results are always checked (default: 5, or 1 above 4M)"},
        {.name = "check", .letter = 'c', .kind = GW_OPTION_FLAG, .flag = &s.check,
         .about = "also check the results of the timed calls"},
        {.name = "arch", .kind = GW_OPTION_STRING, .value = "NAME", .string = &s.arch,
         .about = "architecture, see gradwire list arch; all: compare all that support the collective"},
        {.name = "transport", .kind = GW_OPTION_STRING, .value = "'A B'", .string = &s.transport,
         .about = "transport, see gradwire list transport; several, separated by blanks, are compared in turns"},
        {.name = "strategy", .kind = GW_OPTION_STRING, .value = "LINE", .string = &s.strategy,
         .about = "strategy line; --arch and --transport override it"},
        {.name = "memory", .kind = GW_OPTION_CHOICE, .string = &s.memory, .choices = memories,
         .about = "memory of the buffers (default: gw_alloc; register: malloc and gw_register)"},
        {.name = "against", .kind = GW_OPTION_STRING, .value = "A,B", .string = &s.against,
         .about = "compare with baselines, in turns: openmpi, openmpi-tuned, mpich, gloo"},
        GW_OPTION_LAB(&s.lab_text),
        {.name = "compress", .kind = GW_OPTION_STRING, .value = "'A B'", .string = &s.compress,
         .about = "compare with codecs, separated by blanks: 'onebit topk:ratio=0.01' (docs/reference/codecs.md)"},
        {.name = "timeline", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.timeline,
         .about = "record a timeline that Perfetto opens (docs/reference/recording.md)"},
        {.name = "capture", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.capture,
         .about = "record every message, for gradwire trace"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &s.json, .about = "print one JSON object per line"},
        /* clang-format on */
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_bench, options, &argc, argv);
    if (code < 0) code = check(&s, argc, argv);
    if (code >= 0) return code;
    gw_set_recording(s.timeline, s.capture);
    if (gw_bench_is_rank()) return as_rank(&s);
    if (!s.ranks) s.ranks = 2;
    return gw_bench_drive(&s);
}

const gw_command gw_command_bench = {
    .name = "bench",
    .about = "times collectives and checks their results",
    .usage = "COLLECTIVE|codec|step [OPTIONS]",
    .example = "gradwire bench allreduce -n 4 -b 4K -e 128M -f 4\n"
               "gradwire bench allreduce -n 4 -b 64M -e 64M --arch all\n"
               "gradwire bench allreduce -n 2 --against openmpi,mpich --transport shm\n"
               "gradwire bench codec\n"
               "gradwire bench step --model bench/profiles/vgg16.csv -n 4 --lab rate=1gbit --shrink 16 --ratio 1",
    .operands_max = 1,
    .run = run,
};
