/* host_spec.c - a host spec as text. Every field ends with a zero byte: the numbers, the directory, then the two lists,
 * each after its count. */
#include "launch/host_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "launch/launch_protocol.h"

enum { MAX_STRINGS = 1 << 20 };

static void put_text(gw_buffer *out, const char *text) { gw_buffer_add(out, text, strlen(text) + 1); }

static void put_number(gw_buffer *out, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    put_text(out, text);
}

static void put_list(gw_buffer *out, char *const *list) {
    int count = 0;
    while (list[count]) count++;
    put_number(out, count);
    for (int i = 0; i < count; i++) put_text(out, list[i]);
}

void gw_host_spec_pack(const gw_host_spec *spec, gw_buffer *out) {
    put_number(out, spec->first_rank);
    put_number(out, spec->local_ranks);
    put_number(out, spec->world);
    put_number(out, spec->group);
    put_number(out, spec->listen_fd);
    put_number(out, spec->elastic);
    put_number(out, spec->heartbeat_ms);
    put_number(out, spec->silence_ms);
    put_number(out, spec->grace_ms);
    put_text(out, spec->directory);
    put_list(out, spec->argv);
    put_list(out, spec->env);
}

typedef struct reader {
    const char *next;
    const char *end;
    bool bad; /* a field was missing or invalid; stays set */
} reader;

static const char *get_text(reader *r) {
    const char *text = r->next;
    const char *zero = r->bad ? NULL : memchr(text, 0, (size_t)(r->end - text));
    if (!zero) {
        r->bad = true;
        return "";
    }
    r->next = zero + 1;
    return text;
}

static int get_number(reader *r, int low, int high) {
    int64_t value = low;
    if (!gw_integer_parse(get_text(r), low, high, &value)) r->bad = true;
    return (int)value;
}

static char **get_list(reader *r) {
    int count = get_number(r, 0, MAX_STRINGS);
    if (r->bad) return NULL;
    char **list = calloc((size_t)count + 1, sizeof *list);
    if (!list) {
        r->bad = true;
        return NULL;
    }
    for (int i = 0; i < count; i++) list[i] = (char *)(uintptr_t)get_text(r);
    return list;
}

gw_status gw_host_spec_unpack(gw_host_spec *spec, const char *bytes, size_t size, gw_error *error) {
    reader r = {bytes, bytes + size, false};
    gw_host_spec o = {0};
    o.first_rank = get_number(&r, 0, INT32_MAX);
    o.local_ranks = get_number(&r, 1, GW_LAUNCH_MAX_RANKS);
    o.world = get_number(&r, 1, INT32_MAX);
    o.group = get_number(&r, 0, INT32_MAX);
    o.listen_fd = get_number(&r, -1, INT32_MAX);
    o.elastic = get_number(&r, 0, 1);
    o.heartbeat_ms = get_number(&r, 0, INT32_MAX);
    o.silence_ms = get_number(&r, 0, INT32_MAX);
    o.grace_ms = get_number(&r, 0, INT32_MAX);
    o.directory = get_text(&r);
    o.argv = get_list(&r);
    o.env = get_list(&r);
    if (r.bad || r.next != r.end || !o.argv[0]) {
        gw_host_spec_free(&o);
        return gw_fail(error, GW_PROTOCOL, "the launcher's host spec is damaged; are both sides the same version?");
    }
    *spec = o;
    return GW_OK;
}

void gw_host_spec_free(gw_host_spec *spec) {
    free((void *)(uintptr_t)spec->argv);
    free((void *)(uintptr_t)spec->env);
    spec->argv = spec->env = NULL;
}
