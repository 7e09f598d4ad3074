/* machine.c - see machine.h. */
#include "predict/machine.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/suggest.h"
#include "base/text_file.h"
#include "base/units.h"
#include "compress/compress.h"

#define VERSION "1"

static const struct {
    const char *name;
    size_t offset;
    bool positive;
} figures[] = {
    {"latency", offsetof(gw_machine, latency), false}, {"rate", offsetof(gw_machine, rate), true},
    {"burst", offsetof(gw_machine, burst), false},     {"queue", offsetof(gw_machine, queue), false},
    {"ahead", offsetof(gw_machine, ahead), false},     {"message", offsetof(gw_machine, message), false},
    {"memory", offsetof(gw_machine, memory), true},    {"memory_latency", offsetof(gw_machine, memory_latency), false},
    {"reduce", offsetof(gw_machine, reduce), true},    {"multiply", offsetof(gw_machine, multiply), true},
    {"compute", offsetof(gw_machine, compute), true},  {"interference", offsetof(gw_machine, interference), false},
    {"update", offsetof(gw_machine, update), false},   {"decide", offsetof(gw_machine, decide), false},
    {"at_once", offsetof(gw_machine, at_once), false}, {"error", offsetof(gw_machine, error), false},
};

#define FIGURES (sizeof figures / sizeof figures[0])

static double *figure(gw_machine *m, size_t i) { return (double *)(void *)((char *)m + figures[i].offset); }

double *gw_machine_figure(gw_machine *machine, const char *name) {
    for (size_t i = 0; i < FIGURES; i++)
        if (strcmp(figures[i].name, name) == 0) return figure(machine, i);
    return NULL;
}

gw_machine gw_machine_default(void) {
    gw_machine m = {
        .latency = 50e-6, .rate = 10e9 / 8, .memory = 10e9, .memory_latency = 1e-6, .reduce = 5e9, .multiply = 9e9,
        .compute = 1};
    for (const gw_codec *const *c = gw_codecs; *c; c++)
        if ((*c)->encode_rate > 0) gw_machine_set_codec(&m, (*c)->technique.name, (*c)->encode_rate, (*c)->decode_rate);
    return m;
}

static gw_codec_speed *find(gw_machine *m, const char *name) {
    for (int i = 0; i < m->codec_count; i++)
        if (strcmp(m->codecs[i].name, name) == 0) return &m->codecs[i];
    return NULL;
}

gw_codec_speed gw_machine_codec(const gw_machine *machine, const char *name) {
    gw_machine copy = *machine;
    gw_codec_speed *known = find(&copy, name);
    return known ? *known : (gw_codec_speed){.encode = machine->memory, .decode = machine->memory};
}

bool gw_machine_set_codec(gw_machine *m, const char *name, double encode, double decode) {
    gw_codec_speed *at = find(m, name);
    if (strlen(name) >= sizeof at->name || (!at && m->codec_count == GW_MACHINE_CODECS_MAX)) return false;
    if (!at) at = &m->codecs[m->codec_count++];
    strcpy(at->name, name);
    at->encode = encode;
    at->decode = decode;
    return true;
}

gw_arch_speed gw_machine_arch(const gw_machine *m, const char *name) {
    for (int i = 0; i < m->arch_count; i++)
        if (strcmp(m->archs[i].name, name) == 0) return m->archs[i];
    return (gw_arch_speed){.latency = m->latency, .rate = m->rate};
}

bool gw_machine_set_arch(gw_machine *m, const gw_arch_speed *speed) {
    int at = 0;
    while (at < m->arch_count && strcmp(m->archs[at].name, speed->name) != 0) at++;
    if (at == GW_MACHINE_ARCHS_MAX) return false;
    m->archs[at] = *speed;
    if (at == m->arch_count) m->arch_count++;
    return true;
}

int gw_machine_link_hosts(const gw_machine *m) {
    int hosts = 0;
    for (int i = 0; i < m->link_count; i++) {
        if (m->links[i].from >= hosts) hosts = m->links[i].from + 1;
        if (m->links[i].to >= hosts) hosts = m->links[i].to + 1;
    }
    return hosts;
}

void gw_machine_print(const gw_machine *machine, FILE *out) {
    gw_machine copy = *machine;
    fputs("gradwire-machines " VERSION "\n", out);
    for (size_t i = 0; i < FIGURES; i++) fprintf(out, "%s %.6g\n", figures[i].name, *figure(&copy, i));
    for (int i = 0; i < copy.arch_count; i++)
        fprintf(out, "arch %s %.6g %.6g\n", copy.archs[i].name, copy.archs[i].latency, copy.archs[i].rate);
    for (int i = 0; i < copy.link_count; i++)
        fprintf(out, "link %d %d %.6g %.6g\n", copy.links[i].from, copy.links[i].to, copy.links[i].latency,
                copy.links[i].rate);
    for (int i = 0; i < copy.codec_count; i++)
        fprintf(out, "codec %s %.4g %.4g\n", copy.codecs[i].name, copy.codecs[i].encode, copy.codecs[i].decode);
    fputs("end\n", out);
}

static void write_machine(const void *machine, FILE *out) {
    fputs("# written by gradwire fit\n", out);
    gw_machine_print(machine, out);
}

gw_status gw_machine_write(const gw_machine *machine, const char *path, gw_error *error) {
    return gw_file_replace(path, write_machine, machine, error);
}

/* Reading. */

static gw_status read_codec(const gw_text *lines, gw_machine *m) {
    double encode, decode;
    if (lines->count != 4 || strlen(lines->fields[1]) >= sizeof m->codecs[0].name ||
        !gw_text_decimal(lines->fields[2], 1e15, &encode) || !gw_text_decimal(lines->fields[3], 1e15, &decode) ||
        encode <= 0 || decode <= 0)
        return gw_text_wrong(lines, "a codec is: codec NAME ENCODE DECODE, in bytes per second");
    if (!gw_machine_set_codec(m, lines->fields[1], encode, decode))
        return gw_text_wrong(lines, "there are more than %d codecs", GW_MACHINE_CODECS_MAX);
    return GW_OK;
}

static gw_status read_arch(const gw_text *lines, gw_machine *m) {
    gw_arch_speed speed = {.rate = 0};
    if (lines->count != 4 || strlen(lines->fields[1]) >= sizeof speed.name ||
        !gw_text_decimal(lines->fields[2], 1e6, &speed.latency) ||
        !gw_text_decimal(lines->fields[3], 1e15, &speed.rate) || speed.rate <= 0)
        return gw_text_wrong(lines, "an architecture is: arch NAME LATENCY RATE, in seconds and bytes per second");
    strcpy(speed.name, lines->fields[1]);
    if (!gw_machine_set_arch(m, &speed))
        return gw_text_wrong(lines, "there are more than %d architectures", GW_MACHINE_ARCHS_MAX);
    return GW_OK;
}

static gw_status read_link(const gw_text *lines, gw_machine *m) {
    int64_t from, to;
    gw_fabric_pair link = {.rate = 0};
    if (lines->count != 5 || !gw_integer_parse(lines->fields[1], 0, 65535, &from) ||
        !gw_integer_parse(lines->fields[2], 0, 65535, &to) || from == to ||
        !gw_text_decimal(lines->fields[3], 1e6, &link.latency) ||
        !gw_text_decimal(lines->fields[4], 1e15, &link.rate) || link.rate <= 0)
        return gw_text_wrong(lines, "a link is: link FROM TO LATENCY RATE, hosts by number, seconds, bytes per second");
    if (m->link_count == GW_MACHINE_LINKS_MAX)
        return gw_text_wrong(lines, "there are more than %d links", GW_MACHINE_LINKS_MAX);
    link.from = (int)from;
    link.to = (int)to;
    m->links[m->link_count++] = link;
    return GW_OK;
}

static gw_status read_figure(const gw_text *lines, gw_machine *m) {
    const char *names[FIGURES + 4] = {"codec", "arch", "link"};
    char hint[GW_HINT_BYTES], quoted[GW_QUOTE_BYTES];
    for (size_t i = 0; i < FIGURES; i++) {
        names[i + 3] = figures[i].name;
        if (strcmp(lines->fields[0], figures[i].name) != 0) continue;
        double value;
        bool number = lines->count == 2 && gw_text_decimal(lines->fields[1], 1e18, &value);
        if (number && (value > 0 || !figures[i].positive)) {
            *figure(m, i) = value;
            return GW_OK;
        }
        return gw_text_wrong(lines, "%s is followed by one %s number", figures[i].name,
                             figures[i].positive ? "positive" : "non-negative");
    }
    return gw_text_wrong(lines, "unknown word %s (%s)", gw_suggest_quote(lines->fields[0], quoted),
                         gw_suggest_hint(lines->fields[0], names, hint));
}

static gw_status read_line(const gw_text *lines, gw_machine *m) {
    if (strcmp(lines->fields[0], "codec") == 0) return read_codec(lines, m);
    if (strcmp(lines->fields[0], "link") == 0) return read_link(lines, m);
    return strcmp(lines->fields[0], "arch") == 0 ? read_arch(lines, m) : read_figure(lines, m);
}

gw_status gw_machine_parse(const char *bytes, size_t size, const char *name, gw_machine *machine, gw_error *error) {
    gw_text lines = {.at = bytes, .end = bytes + size, .name = name, .separator = ' ', .error = error};
    gw_machine made = gw_machine_default();
    bool more, head = false, ended = false;
    for (;;) {
        gw_status status = gw_text_next(&lines, &more);
        if (status) return status;
        if (!more) break;
        if (!head) {
            if (lines.count != 2 || strcmp(lines.fields[0], "gradwire-machines") != 0 ||
                strcmp(lines.fields[1], VERSION) != 0)
                return gw_text_wrong(&lines, "it begins with gradwire-machines " VERSION);
            head = true;
        } else if (ended) {
            return gw_text_wrong(&lines, "nothing follows the end");
        } else if (lines.count == 1 && strcmp(lines.fields[0], "end") == 0) {
            ended = true;
        } else {
            status = read_line(&lines, &made);
            if (status) return status;
        }
    }
    if (!ended) return gw_fail(error, GW_INVALID, "%s is cut off: it closes with the line end", name);
    *machine = made;
    return GW_OK;
}

gw_status gw_machine_read(const char *path, gw_machine *machine, gw_error *error) {
    char *bytes;
    size_t size;
    gw_status status = gw_file_read(path, GW_TEXT_FILE_MAX, &bytes, &size, error);
    if (status) return status;
    status = gw_machine_parse(bytes, size, path, machine, error);
    free(bytes);
    return status;
}
