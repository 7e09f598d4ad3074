/* doctor_print.c - see doctor_print.h. */
#include "cli/doctor/doctor_print.h"

#include <string.h>

#include "base/units.h"
#include "cli/common/json.h"
#include "cli/common/table.h"

enum { MATRIX_MAX = 20, CELL_BYTES = 32 }; /* MATRIX_MAX: hosts that fit on a line */

static void print_hosts(const gw_doctor_report *r, FILE *out) {
    gw_column columns[] = {{"#", true, 0},          {"host", false, 0}, {"address", false, 0},
                           {"interface", false, 0}, {"mtu", true, 0},   {"memory", true, 0}};
    gw_table table;
    gw_table_start(&table, out, columns, 6);
    for (int pass = 0; pass < 2; pass++) {
        if (pass) gw_table_header(&table);
        for (int i = 0; i < r->count; i++) {
            const gw_doctor_host *h = &r->hosts[i];
            char number[CELL_BYTES], mtu[CELL_BYTES], memory[GW_UNIT_TEXT];
            snprintf(number, sizeof number, "%d", i);
            snprintf(mtu, sizeof mtu, "%d", h->mtu);
            const char *const cells[] = {number,
                                         h->name,
                                         h->lost ? "-" : h->address,
                                         h->lost ? "-" : h->interface,
                                         h->lost ? "-" : mtu,
                                         h->memory > 0 ? gw_bandwidth_format(h->memory, memory) : "-"};
            if (pass) gw_table_row(&table, cells);
            else gw_table_fit(&table, cells);
        }
    }
}

typedef void (*cell_text)(const gw_doctor_link *link, char text[CELL_BYTES]);

static void bandwidth_cell(const gw_doctor_link *link, char text[CELL_BYTES]) {
    double megabits = link->bandwidth * 8e-6;
    snprintf(text, CELL_BYTES, megabits < 10 ? "%.2f" : "%.0f", megabits);
}

static void latency_cell(const gw_doctor_link *link, char text[CELL_BYTES]) {
    double microseconds = link->latency * 1e6;
    snprintf(text, CELL_BYTES, microseconds < 10 ? "%.1f" : "%.0f", microseconds);
}

static void fill_row(const gw_doctor_report *r, int from, cell_text write, char text[][CELL_BYTES],
                     const char **cells) {
    snprintf(text[0], CELL_BYTES, "%d", from);
    for (int to = 0; to < r->count; to++) {
        const gw_doctor_link *link = gw_doctor_link_of(r, from, to);
        if (from != to && link->measured) write(link, text[to + 1]);
        else strcpy(text[to + 1], from == to ? "-" : "?");
    }
    for (int i = 0; i <= r->count; i++) cells[i] = text[i];
}

static void print_matrix(const gw_doctor_report *r, const char *title, cell_text write, FILE *out) {
    char titles[MATRIX_MAX + 1][CELL_BYTES], text[MATRIX_MAX + 1][CELL_BYTES];
    const char *cells[MATRIX_MAX + 1];
    gw_column columns[MATRIX_MAX + 1];
    gw_table table;
    strcpy(titles[0], "#");
    for (int i = 0; i < r->count; i++) snprintf(titles[i + 1], CELL_BYTES, "%d", i);
    for (int i = 0; i <= r->count; i++) columns[i] = (gw_column){.title = titles[i], .right = true};
    gw_table_start(&table, out, columns, r->count + 1);
    for (int i = 0; i < r->count; i++) {
        fill_row(r, i, write, text, cells);
        gw_table_fit(&table, cells);
    }
    fprintf(out, "\n%s\n", title);
    gw_table_header(&table);
    for (int i = 0; i < r->count; i++) {
        fill_row(r, i, write, text, cells);
        gw_table_row(&table, cells);
    }
}

/* ---- transports ---- */

/* The state of a transport on a host; NULL: the host's gradwire does not have it. */
static const gw_transport_probe *transport_of(const gw_doctor_host *h, const char *name) {
    for (int i = 0; i < h->transport_count; i++)
        if (strcmp(h->transports[i].name, name) == 0) return &h->transports[i];
    return NULL;
}

/* The first host where the transport cannot be used, and why; -1: it works on all. */
static int first_without(const gw_doctor_report *r, const char *name, const char **why) {
    for (int i = 0; i < r->count; i++) {
        if (!r->hosts[i].transport_count) continue;
        const gw_transport_probe *transport = transport_of(&r->hosts[i], name);
        *why = transport ? transport->detail : "its gradwire was built without it";
        if (!transport || !transport->usable) return i;
    }
    return -1;
}

static const gw_doctor_host *first_with_transports(const gw_doctor_report *r) {
    for (int i = 0; i < r->count; i++)
        if (r->hosts[i].transport_count) return &r->hosts[i];
    return NULL;
}

static int machines_with_transports(const gw_doctor_report *r) {
    int count = 0;
    for (int i = 0; i < r->count; i++) count += r->hosts[i].transport_count > 0;
    return count;
}

static void print_transports(const gw_doctor_report *r, FILE *out) {
    const gw_doctor_host *first = first_with_transports(r);
    gw_column columns[] = {{"transport", false, 0}, {"usable", false, 0}, {"", false, 0}};
    gw_table table;
    if (!first) return;
    fputc('\n', out);
    gw_table_start(&table, out, columns, 3);
    for (int pass = 0; pass < 2; pass++) {
        if (pass) gw_table_header(&table);
        for (int i = 0; i < first->transport_count; i++) {
            const char *why = "";
            char detail[GW_DOCTOR_NAME_BYTES + 2 + sizeof first->transports[0].detail];
            int without = first_without(r, first->transports[i].name, &why);
            bool tell_host = without >= 0 && machines_with_transports(r) > 1;
            snprintf(detail, sizeof detail, "%.255s%s%.511s", tell_host ? r->hosts[without].name : "",
                     tell_host ? ": " : "", without >= 0 ? why : first->transports[i].detail);
            const char *const cells[] = {first->transports[i].name, without < 0 ? "yes" : "no", detail};
            if (pass) gw_table_row(&table, cells);
            else gw_table_fit(&table, cells);
        }
    }
}

static void print_verdict(const gw_findings *findings, FILE *out) {
    bool colour = gw_colour_wanted(out);
    if (!findings->count) {
        fprintf(out, "\n%sall is well%s\n", colour ? "\033[32m" : "", colour ? "\033[0m" : "");
        return;
    }
    fputc('\n', out);
    for (int i = 0; i < findings->count; i++)
        fprintf(out, "%swrong:%s %s\n", colour ? "\033[31m" : "", colour ? "\033[0m" : "", findings->list[i].text);
    if (findings->left_out) fprintf(out, "and %d more findings\n", findings->left_out);
}

void gw_doctor_print(const gw_doctor_report *r, const gw_findings *findings, FILE *out) {
    print_hosts(r, out);
    print_transports(r, out);
    if (r->count > 1 && r->count <= MATRIX_MAX) {
        print_matrix(r, "bandwidth in Mbit/s, from the row's host to the column's", bandwidth_cell, out);
        print_matrix(r, "one-way latency in us", latency_cell, out);
    } else if (r->count > 1) {
        fprintf(out, "\n(the tables of %d hosts are too wide for a terminal: --json prints them, -o writes them)\n",
                r->count);
    }
    print_verdict(findings, out);
}

/* ---- JSON ---- */

static void text_field(FILE *out, const char *name, const char *text) {
    fprintf(out, ", \"%s\": ", name);
    gw_json_string(out, text);
}

static void json_host(const gw_doctor_host *h, FILE *out) {
    fputs("{\"host\": ", out);
    gw_json_string(out, h->name);
    fprintf(out, ", \"examined\": %s", h->lost ? "false" : "true");
    text_field(out, "address", h->address);
    text_field(out, "interface", h->interface);
    fprintf(out, ", \"mtu\": %d, \"memory_gbs\": %s, \"ports\": [", h->mtu, GW_JSON_DIGITS(h->memory / 1e9, 4));
    for (int i = 0; i < h->port_count; i++) fprintf(out, "%s%d", i ? ", " : "", h->ports[i]);
    fputs("]}\n", out);
}

static void json_transports(const gw_doctor_host *h, FILE *out) {
    for (int i = 0; i < h->transport_count; i++) {
        fputs("{\"transport\": ", out);
        gw_json_string(out, h->transports[i].name);
        text_field(out, "host", h->name);
        fprintf(out, ", \"usable\": %s", h->transports[i].usable ? "true" : "false");
        text_field(out, "detail", h->transports[i].detail);
        fputs("}\n", out);
    }
}

static void json_link(const gw_doctor_report *r, int from, int to, FILE *out) {
    const gw_doctor_link *link = gw_doctor_link_of(r, from, to);
    bool first = true;
    fputs("{\"from\": ", out);
    gw_json_string(out, r->hosts[from].name);
    text_field(out, "to", r->hosts[to].name);
    if (link->measured) {
        fprintf(out, ", \"latency_us\": %s, \"bandwidth_mbit\": %s, \"path_mtu\": %d, \"skew_s\": %s",
                GW_JSON_DIGITS(link->latency * 1e6, 4), GW_JSON_DIGITS(link->bandwidth * 8e-6, 5), link->path_mtu,
                GW_JSON_FIXED(link->skew, 6));
        text_field(out, "local", link->local);
        text_field(out, "seen_as", link->seen);
    }
    fputs(", \"ports_closed\": [", out);
    for (int i = 0; i < r->hosts[to].port_count; i++) {
        if (!(link->closed >> i & 1)) continue;
        fprintf(out, "%s%d", first ? "" : ", ", r->hosts[to].ports[i]);
        first = false;
    }
    fputs("]}\n", out);
}

void gw_doctor_print_json(const gw_doctor_report *r, const gw_findings *findings, FILE *out) {
    for (int i = 0; i < r->count; i++) json_host(&r->hosts[i], out);
    for (int i = 0; i < r->count; i++) json_transports(&r->hosts[i], out);
    for (int from = 0; from < r->count; from++)
        for (int to = 0; to < r->count; to++)
            if (from != to && !r->hosts[from].lost && !r->hosts[to].lost) json_link(r, from, to, out);
    for (int i = 0; i < findings->count; i++) {
        const gw_finding *f = &findings->list[i];
        fprintf(out, "{\"finding\": \"%s\"", gw_finding_name(f->kind));
        text_field(out, "host", r->hosts[f->host].name);
        if (f->peer >= 0) text_field(out, "peer", r->hosts[f->peer].name);
        text_field(out, "text", f->text);
        fputs("}\n", out);
    }
}
