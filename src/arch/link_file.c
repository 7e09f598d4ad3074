/* link_file.c - see link_file.h. */
#include "arch/link_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/units.h"

enum { VERSION = 1, LINE_BYTES = 512, FIELDS_MAX = 6, MTU_MAX = 1 << 24 };

/* ---- writing ---- */

/* Whether a link has a latency and a bandwidth. */
static bool known(const gw_doctor_link *link) { return link->measured && link->bandwidth > 0; }

static void write_report(const void *ctx, FILE *file) {
    const gw_doctor_report *r = ctx;
    fprintf(file, "gradwire-doctor %d\nhosts %d\n", VERSION, r->count);
    for (int i = 0; i < r->count; i++) {
        const gw_doctor_host *host = &r->hosts[i];
        fprintf(file, "host %d %s %s %d %.4g\n", i, host->name, host->address[0] ? host->address : "-", host->mtu,
                host->memory);
    }
    for (int from = 0; from < r->count; from++) {
        for (int to = 0; to < r->count; to++) {
            const gw_doctor_link *link = gw_doctor_link_of(r, from, to);
            if (from == to || !known(link)) continue;
            fprintf(file, "link %d %d %.6g %.6g\n", from, to, link->latency, 1 / link->bandwidth);
        }
    }
    fputs("end\n", file);
}

static gw_status allocate(gw_doctor_table *table, int count, gw_error *error) {
    size_t n = (size_t)count;
    *table = (gw_doctor_table){.count = count, .nodes = calloc(n, sizeof *table->nodes)};
    table->alpha = calloc(n * n, sizeof *table->alpha);
    table->beta = calloc(n * n, sizeof *table->beta);
    if (table->nodes && table->alpha && table->beta) return GW_OK;
    gw_doctor_table_free(table);
    return gw_fail(error, GW_MEMORY, "no memory for the links of %d hosts", count);
}

gw_status gw_doctor_tabulate(const gw_doctor_report *r, gw_doctor_table *table, gw_error *error) {
    gw_status status = allocate(table, r->count, error);
    if (status) return status;
    for (int i = 0; i < r->count; i++) {
        gw_doctor_table_host *host = &table->nodes[i];
        snprintf(host->name, sizeof host->name, "%s", r->hosts[i].name);
        snprintf(host->address, sizeof host->address, "%s", r->hosts[i].address);
        host->mtu = r->hosts[i].mtu;
        host->memory = r->hosts[i].memory;
    }
    for (int i = 0; i < r->count * r->count; i++) {
        const gw_doctor_link *link = &r->links[i];
        if (i / r->count == i % r->count || !known(link)) continue;
        table->alpha[i] = link->latency;
        table->beta[i] = 1 / link->bandwidth;
    }
    return GW_OK;
}

gw_status gw_doctor_write(const gw_doctor_report *report, const char *path, gw_error *error) {
    return gw_file_replace(path, write_report, report, error);
}

/* ---- reading ---- */

typedef struct reader {
    const char *at, *end; /* the text that is not read yet */
    const char *name;
    int number; /* of the line last read */
    char line[LINE_BYTES];
    char *fields[FIELDS_MAX];
    int count; /* of fields */
    gw_error *error;
} reader;

static gw_status wrong(const reader *in, const char *wanted) {
    return gw_fail(in->error, GW_INVALID, "%s line %d is not what gradwire doctor writes: %s; write it again with -o",
                   in->name, in->number, wanted);
}

static bool printable(const char *text) {
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

/* Splits a line at single blanks. */
static gw_status next_line(reader *in) {
    const char *newline = in->at < in->end ? memchr(in->at, '\n', (size_t)(in->end - in->at)) : NULL;
    in->number++;
    if (!newline) return wrong(in, in->at == in->end ? "it ends too early" : "its last line has no end");
    size_t length = (size_t)(newline - in->at);
    if (length >= sizeof in->line) return wrong(in, "the line is too long");
    memcpy(in->line, in->at, length);
    in->line[length] = 0;
    in->at = newline + 1;
    char *rest = in->line, *field;
    if (strlen(in->line) != length) return wrong(in, "there is a zero byte in it");
    for (in->count = 0; (field = strsep(&rest, " "));) {
        if (in->count == FIELDS_MAX) return wrong(in, "it has too many fields");
        if (!field[0] || !printable(field)) return wrong(in, "fields are printable and stand one blank apart");
        in->fields[in->count++] = field;
    }
    return GW_OK;
}

static bool is(const reader *in, const char *word, int fields) {
    return in->count == fields && strcmp(in->fields[0], word) == 0;
}

static bool integer(const char *text, int low, int high, int *value) {
    int64_t number;
    if (!gw_integer_parse(text, low, high, &number)) return false;
    *value = (int)number;
    return true;
}

static bool decimal(const char *text, double *value) {
    char *end;
    if (text[strspn(text, "0123456789.e+-")] != 0) return false;
    double number = strtod(text, &end);
    if (*end || !isfinite(number) || number < 0 || text[0] == '-') return false;
    *value = number;
    return true;
}

static gw_status read_head(reader *in, int *count) {
    gw_status status = next_line(in);
    int version;
    if (status) return status;
    if (!is(in, "gradwire-doctor", 2) || !integer(in->fields[1], 1, 1 << 30, &version))
        return wrong(in, "it begins with gradwire-doctor 1");
    if (version != VERSION)
        return gw_fail(in->error, GW_INVALID, "%s has version %d of the doctor's format; this program reads version %d",
                       in->name, version, VERSION);
    status = next_line(in);
    if (status) return status;
    if (is(in, "hosts", 2) && integer(in->fields[1], 1, GW_DOCTOR_HOSTS_MAX, count)) return GW_OK;
    return wrong(in, "the second line is hosts and their number");
}

static gw_status read_node(reader *in, int number, gw_doctor_table_host *node) {
    gw_status status = next_line(in);
    int index;
    if (status) return status;
    if (!is(in, "host", 6) || !integer(in->fields[1], number, number, &index) ||
        strlen(in->fields[2]) >= sizeof node->name || strlen(in->fields[3]) >= sizeof node->address ||
        !integer(in->fields[4], 0, MTU_MAX, &node->mtu) || !decimal(in->fields[5], &node->memory))
        return wrong(in, "a host is: host NUMBER NAME ADDRESS MTU MEMORY, numbers in order");
    strcpy(node->name, in->fields[2]);
    strcpy(node->address, in->fields[3]);
    return GW_OK;
}

static gw_status read_link(reader *in, gw_doctor_table *table) {
    int from, to;
    double alpha, beta;
    if (!is(in, "link", 5) || !integer(in->fields[1], 0, table->count - 1, &from) ||
        !integer(in->fields[2], 0, table->count - 1, &to) || from == to || !decimal(in->fields[3], &alpha) ||
        !decimal(in->fields[4], &beta) || beta <= 0)
        return wrong(in, "a link is: link FROM TO ALPHA BETA, between two of the hosts");
    size_t at = (size_t)(from * table->count + to);
    if (table->beta[at] > 0) return wrong(in, "this link was there before");
    table->alpha[at] = alpha;
    table->beta[at] = beta;
    return GW_OK;
}

static gw_status read_links(reader *in, gw_doctor_table *table) {
    for (;;) {
        gw_status status = next_line(in);
        if (status) return status;
        if (is(in, "end", 1)) return in->at == in->end ? GW_OK : wrong(in, "nothing follows the end");
        status = read_link(in, table);
        if (status) return status;
    }
}

gw_status gw_doctor_parse(const char *bytes, size_t size, const char *name, gw_doctor_table *table, gw_error *error) {
    reader in = {.at = bytes, .end = bytes + size, .name = name, .error = error};
    gw_doctor_table made = {0};
    gw_status status = read_head(&in, &made.count);
    if (status) return status;
    status = allocate(&made, made.count, error);
    for (int i = 0; i < made.count && !status; i++) status = read_node(&in, i, &made.nodes[i]);
    if (!status) status = read_links(&in, &made);
    if (status) gw_doctor_table_free(&made);
    else *table = made;
    return status;
}

gw_status gw_doctor_read(const char *path, gw_doctor_table *table, gw_error *error) {
    char *bytes = NULL;
    size_t size = 0;
    gw_status status = gw_file_read(path, GW_DOCTOR_FILE_BYTES_MAX, &bytes, &size, error);
    if (!status) status = gw_doctor_parse(bytes, size, path, table, error);
    free(bytes);
    return status;
}

void gw_doctor_table_free(gw_doctor_table *table) {
    free(table->nodes);
    free(table->alpha);
    free(table->beta);
    *table = (gw_doctor_table){0};
}
