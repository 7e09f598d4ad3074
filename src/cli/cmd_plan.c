/* cmd_plan.c - gradwire plan: prints the plan of each rank for a collective, step by step, and its cost. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/job_layout.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "plan/print.h"

#define RANKS_MAX 1024

/* The plan to print. */
typedef struct job {
    const gw_plan_builder *builder;
    gw_plan_request request;
    size_t raw_bytes, wide_bytes; /* of an element; wide: of a partial sum */
    int only;                     /* rank to print, -1: all */
    int host_of[RANKS_MAX], order[RANKS_MAX], rack_of[RANKS_MAX];
} job;

typedef struct visit {
    const gw_plan *plan;
    uint32_t stream;
    uint64_t index;
    const gw_stream *info;
    const gw_action *step;
} visit;

typedef void visitor(void *ctx, const job *j, const visit *v);

/* Calls visit_step for each step of a rank's plan, in an order in which the steps can run. */
static gw_status walk_rank(const job *j, int rank, visitor *visit_step, void *ctx, gw_error *error) {
    gw_plan plan;
    gw_plan_request request = j->request;
    request.rank = rank;
    gw_status status = gw_plan_make(&plan, j->builder, &request, error);
    if (status != GW_OK) return status;
    gw_plan_walk walk = {.plan = &plan, .done = calloc(plan.streams + 1, sizeof *walk.done)};
    if (!walk.done) return gw_fail(error, GW_MEMORY, "no memory for the streams of rank %d", rank);
    gw_stream info;
    gw_action step;
    visit v = {.plan = &plan, .info = &info, .step = &step};
    while (gw_plan_walk_next(&walk, &v.stream, &v.index, &step)) {
        gw_plan_stream(&plan, v.stream, &info);
        visit_step(ctx, j, &v);
    }
    free(walk.done);
    return GW_OK;
}

static uint64_t step_bytes(const job *j, const gw_action *step) {
    return gw_action_count(step) * (step->wide ? j->wide_bytes : j->raw_bytes);
}

static void count(void *cost, const job *j, const visit *v) {
    gw_cost *sum = cost;
    (void)j;
    if (v->step->kind != GW_ACTION_SEND) return;
    sum->messages++;
    if (v->step->wide) sum->wide_elements += gw_action_count(v->step);
    else sum->elements += gw_action_count(v->step);
}

/* --- as text --- */

typedef struct printer {
    gw_table *table;
    void (*row)(gw_table *table, const char *const *cells);
} printer;

static void fit(gw_table *table, const char *const *cells) { gw_table_fit(table, cells); }
static void print(gw_table *table, const char *const *cells) { gw_table_row(table, cells); }

static void text_step(void *ctx, const job *j, const visit *v) {
    const printer *p = ctx;
    char stream[48], peer[16] = "-", bytes[GW_UNIT_TEXT], where[GW_ACTION_TEXT], ready[GW_ACTION_TEXT],
                     free[GW_ACTION_TEXT];
    snprintf(stream, sizeof stream, "#%" PRIu32 ".%" PRIu64, v->stream, v->index);
    if (v->info->peer >= 0) snprintf(peer, sizeof peer, "%d", v->info->peer);
    snprintf(bytes, sizeof bytes, "%" PRIu64, step_bytes(j, v->step));
    p->row(p->table, (const char *const[]){stream, gw_action_kind_name(v->step->kind), peer, bytes,
                                           gw_action_where_text(v->step, where), gw_waits_text(v->step->ready, ready),
                                           gw_waits_text(v->step->free, free)});
}

static gw_status text_rank(const job *j, int rank, gw_error *error) {
    gw_column columns[] = {
        {.title = "STEP"},  {.title = "DO"},    {.title = "PEER", .right = true}, {.title = "BYTES", .right = true},
        {.title = "WHERE"}, {.title = "AFTER"}, {.title = "GRANT AFTER"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 7);
    gw_status status = walk_rank(j, rank, text_step, &(printer){&table, fit}, error);
    if (status != GW_OK) return status;
    printf("rank %d\n", rank);
    gw_table_header(&table);
    status = walk_rank(j, rank, text_step, &(printer){&table, print}, error);
    putchar('\n');
    return status;
}

static void totals_row(const job *j, gw_table *table, bool prints, const char *name, gw_cost cost, bool formula) {
    char cells[5][32] = {"", "", "", "-", "-"};
    snprintf(cells[0], 32, "%" PRIu64, cost.messages);
    snprintf(cells[1], 32, "%" PRIu64, cost.elements * j->raw_bytes);
    snprintf(cells[2], 32, "%" PRIu64, cost.wide_elements * j->wide_bytes);
    if (formula) snprintf(cells[3], 32, "%" PRIu64, cost.coll_elements * j->raw_bytes);
    if (formula) snprintf(cells[4], 32, "%" PRIu64, cost.start_ups);
    const char *row[] = {name, cells[0], cells[1], cells[2], cells[3], cells[4]};
    if (prints) gw_table_row(table, row);
    else gw_table_fit(table, row);
}

static void text_totals(const job *j, gw_cost counted, gw_cost formula) {
    gw_column columns[] = {{.title = "ALL RANKS"},
                           {.title = "MESSAGES", .right = true},
                           {.title = "BYTES", .right = true},
                           {.title = "OF PARTIAL SUMS", .right = true},
                           {.title = "IN SHARED MEMORY", .right = true},
                           {.title = "START-UPS", .right = true}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 6);
    for (int prints = 0; prints < 2; prints++) {
        if (prints) gw_table_header(&table);
        totals_row(j, &table, prints, "counted", counted, false);
        totals_row(j, &table, prints, "by the formula", formula, true);
    }
}

/* --- as JSON --- */

static void json_slot(const char *name, gw_slot slot) {
    if (slot.space == GW_SPACE_NONE) return;
    printf(", \"%s\": {\"space\": \"%s\", \"offset\": %zu, \"count\": %zu}", name, gw_space_name(slot.space),
           slot.offset, slot.count);
}

static void json_waits(const char *name, const gw_waits waits[GW_ACTION_WAITS]) {
    const char *before = "";
    printf(", \"%s\": [", name);
    for (int w = 0; w < GW_ACTION_WAITS; w++) {
        if (waits[w].streams == 0) continue;
        printf("%s{\"first\": %" PRIu32 ", \"streams\": %" PRIu32 ", \"steps\": %" PRIu64 "}", before, waits[w].first,
               waits[w].streams, waits[w].actions);
        before = ", ";
    }
    putchar(']');
}

static void json_step(void *ctx, const job *j, const visit *v) {
    bool *first = ctx;
    printf("%s\n      {\"stream\": %" PRIu32 ", \"index\": %" PRIu64
           ", \"do\": \"%s\", \"peer\": %d, \"bytes\": %" PRIu64,
           *first ? "" : ",", v->stream, v->index, gw_action_kind_name(v->step->kind), v->info->peer,
           step_bytes(j, v->step));
    if (v->step->kind == GW_ACTION_SHM)
        printf(", \"task\": \"%s\", \"lanes\": %d", gw_shm_coll_task_name(v->step->task), v->step->lanes);
    printf(", \"wide\": %s, \"finish\": %s", v->step->wide ? "true" : "false", v->step->finish ? "true" : "false");
    json_slot("from", v->step->src);
    json_slot("to", v->step->dst);
    json_slot("lands", v->step->land);
    json_waits("after", v->step->ready);
    json_waits("lands_after", v->step->free);
    putchar('}');
    *first = false;
}

static gw_status json_rank(const job *j, int rank, bool first_rank, gw_error *error) {
    bool first = true;
    printf("%s\n    {\"rank\": %d, \"steps\": [", first_rank ? "" : ",", rank);
    gw_status status = walk_rank(j, rank, json_step, &first, error);
    fputs("]}", stdout);
    return status;
}

static void json_cost(const char *name, gw_cost cost) {
    printf(",\n  \"%s\": {\"messages\": %" PRIu64 ", \"elements\": %" PRIu64 ", \"wide_elements\": %" PRIu64
           ", \"board_elements\": %" PRIu64 ", \"start_ups\": %" PRIu64 "}",
           name, cost.messages, cost.elements, cost.wide_elements, cost.coll_elements, cost.start_ups);
}

/* --- the command --- */

static gw_status print_ranks(const job *j, bool json, gw_error *error) {
    gw_status status = GW_OK;
    int first = j->only >= 0 ? j->only : 0, end = j->only >= 0 ? j->only + 1 : j->request.topology.world;
    for (int rank = first; rank < end && status == GW_OK; rank++)
        status = json ? json_rank(j, rank, rank == first, error) : text_rank(j, rank, error);
    return status;
}

static gw_status print_job(const job *j, bool json, gw_error *error) {
    gw_cost counted = {0}, formula = gw_plan_cost(j->builder, &j->request);
    for (int rank = 0; rank < j->request.topology.world; rank++) {
        gw_status status = walk_rank(j, rank, count, &counted, error); /* finds all errors before printing */
        if (status != GW_OK) return status;
    }
    if (json) {
        printf("{\"arch\": \"%s\", \"collective\": \"%s\", \"ranks\": [", j->builder->technique.name,
               gw_collective_name(j->request.collective));
        gw_status status = print_ranks(j, true, error);
        fputs("],\n  \"order\": [", stdout);
        for (int i = 0; i < j->request.topology.world; i++)
            printf("%s%d", i ? ", " : "", gw_topology_at(&j->request.topology, i));
        putchar(']');
        json_cost("counted", counted);
        json_cost("formula", formula);
        puts("\n}");
        return status;
    }
    gw_print_ring_order("ring order: ranks ", &j->request.topology, "\n\n");
    gw_status status = print_ranks(j, false, error);
    text_totals(j, counted, formula);
    return status;
}

typedef struct arguments {
    const char *arch, *collective, *dtype, *links;
    int64_t ranks, hosts, rank, root, pipeline;
    uint64_t bytes, chunk;
    bool json;
} arguments;

/* Exit code, -1 to continue. The option table has checked the choices. */
static int fill(job *j, arguments *a) {
    gw_dtype dtype;
    gw_error error = {0};
    if (!gw_collective_parse(a->collective, &j->request.collective) || !gw_dtype_parse(a->dtype, &dtype)) return 2;
    j->raw_bytes = gw_dtype_bytes(dtype);
    j->wide_bytes = gw_dtype_bytes(gw_accumulator(dtype, GW_SUM));
    if (a->bytes % j->raw_bytes)
        return gw_usage_error(&gw_command_plan, "--bytes %" PRIu64 " is not a whole number of %s elements", a->bytes,
                              a->dtype);
    if (a->rank >= a->ranks || a->root >= a->ranks || a->hosts > a->ranks)
        return gw_usage_error(&gw_command_plan,
                              "--rank and --root must be less than the %" PRId64 " ranks, and --hosts not more",
                              a->ranks);
    if (!a->links) a->links = getenv("GRADWIRE_LINKS");
    int hosts = a->hosts ? (int)a->hosts : a->links ? 0 : 1;
    if (gw_job_layout((int)a->ranks, hosts, 0, a->links, j->order, j->host_of, j->rack_of, &j->request.topology,
                      &error))
        return gw_usage_error(&gw_command_plan, "%s", error.text);
    j->request.topology.coll = true;
    j->only = (int)a->rank;
    j->request.count = a->bytes / j->raw_bytes;
    j->request.root = (int)a->root;
    j->request.chunk_count = a->chunk < j->raw_bytes ? 1 : a->chunk / j->raw_bytes;
    j->request.pipeline = (int)a->pipeline;
    bool chooses = strcmp(a->arch, "auto") == 0;
    j->builder = chooses ? gw_arch_choose(a->arch, &j->request, j->raw_bytes) : gw_plan_find(a->arch);
    if (chooses && !a->json) printf("auto selects %s\n\n", j->builder->technique.name);
    return -1;
}

/* Whether the builder supports the collective. Point-to-point plans support none. */
static bool is_listed(const gw_plan_builder *builder, gw_collective collective) {
    gw_plan_request request = {.collective = collective, .topology = {.world = 2, .coll = true, .native = true},
                               .count = 1, .chunk_count = 1, .pipeline = 1};
    int one_host[2] = {0};
    request.topology.host_of = one_host;
    return builder->refuses(&request) == NULL;
}

static void list_archs(const char *archs[GW_PLAN_IDS + 1]) {
    int count = 0;
    archs[count++] = "auto";
    for (int i = 0; gw_plan_builders[i]; i++) {
        bool listed = false;
        for (int c = 0; c < GW_COLL_SEND; c++) listed |= is_listed(gw_plan_builders[i], (gw_collective)c);
        if (listed) archs[count++] = gw_plan_builders[i]->technique.name;
    }
}

/* Exit code, -1 to continue. */
static int parse(arguments *a, int argc, char **argv) {
    const char *archs[GW_PLAN_IDS + 1] = {NULL}, *collectives[GW_COLLECTIVES + 1] = {NULL};
    const char *dtypes[GW_DTYPES + 1] = {NULL};
    list_archs(archs);
    for (int i = 0; i < GW_COLL_SEND; i++) collectives[i] = gw_collective_name((gw_collective)i);
    for (int i = 0; i < GW_DTYPES; i++) dtypes[i] = gw_dtype_name((gw_dtype)i);
    const gw_option options[] = {
        {.name = "arch", .kind = GW_OPTION_CHOICE, .string = &a->arch, .choices = archs,
         .about = "plan builder; auto: the one that arch=auto selects (default: ring)"},
        {.name = "collective",
         .kind = GW_OPTION_CHOICE,
         .string = &a->collective,
         .choices = collectives,
         .about = "collective (default: allreduce)"},
        {.name = "ranks",
         .letter = 'n',
         .kind = GW_OPTION_INTEGER,
         .integer = &a->ranks,
         .lowest = 1,
         .highest = RANKS_MAX,
         .about = "number of ranks (default: 4)"},
        {.name = "hosts",
         .kind = GW_OPTION_INTEGER,
         .integer = &a->hosts,
         .lowest = 1,
         .highest = RANKS_MAX,
         .about = "number of hosts; ranks are placed in blocks (default: 1, or all of --links)"},
        {.name = "links", .kind = GW_OPTION_STRING, .value = "FILE", .string = &a->links,
         .about = "link costs of the hosts, a file of gradwire doctor -o: rings avoid slow links"},
        {.name = "bytes",
         .kind = GW_OPTION_BYTES,
         .bytes = &a->bytes,
         .about = "size of the buffer, or of one rank's part if the collective has parts (default: 1M)"},
        {.name = "dtype",
         .kind = GW_OPTION_CHOICE,
         .string = &a->dtype,
         .choices = dtypes,
         .about = "element type (default: f32)"},
        {.name = "rank",
         .kind = GW_OPTION_INTEGER,
         .integer = &a->rank,
         .highest = RANKS_MAX - 1,
         .about = "print only this rank's steps"},
        {.name = "root", .kind = GW_OPTION_INTEGER, .integer = &a->root, .highest = RANKS_MAX - 1,
         .about = "root rank (default: 0)"},
        {.name = "chunk", .kind = GW_OPTION_BYTES, .bytes = &a->chunk, .about = "largest message (default: 256K)"},
        {.name = "pipeline",
         .kind = GW_OPTION_INTEGER,
         .integer = &a->pipeline,
         .lowest = 1,
         .highest = 64,
         .about = "messages in flight (default: 4)"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &a->json, .about = "print JSON"},
        {.name = NULL},
    };
    return gw_args_parse(&gw_command_plan, options, &argc, argv);
}

static int run(int argc, char **argv) {
    arguments a = {.arch = "ring",
                   .collective = "allreduce",
                   .dtype = "f32",
                   .ranks = 4,
                   .rank = -1,
                   .pipeline = 4,
                   .bytes = 1 << 20,
                   .chunk = 256 << 10};
    job j = {0};
    int code = parse(&a, argc, argv);
    if (code < 0) code = fill(&j, &a);
    if (code >= 0) return code;
    gw_error error = {0};
    if (print_job(&j, a.json, &error) == GW_OK) return 0;
    return gw_usage_error(&gw_command_plan, "%s", error.text);
}

const gw_command gw_command_plan = {
    .name = "plan",
    .about = "prints the plan of each rank for a collective, and its cost",
    .usage = "[--arch NAME] [-n RANKS] [--bytes SIZE] [OPTIONS]",
    .example = "gradwire plan --arch ring -n 4 --bytes 1M\ngradwire plan --arch hierarchical -n 8 --hosts 2 --rank 0",
    .run = run,
};
