/* order.c - an order as text: every field ends with a zero byte; the numbers, the directory, then the two counted
 * lists. */
#include "launch/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "launch/wire.h"

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

void gw_order_pack(const gw_order *order, gw_buffer *out) {
    put_number(out, order->first_rank);
    put_number(out, order->local_ranks);
    put_number(out, order->world);
    put_number(out, order->group);
    put_number(out, order->listen_fd);
    put_number(out, order->elastic);
    put_number(out, order->heartbeat_ms);
    put_number(out, order->silence_ms);
    put_number(out, order->grace_ms);
    put_text(out, order->directory);
    put_list(out, order->argv);
    put_list(out, order->env);
}

typedef struct reader {
    const char *next;
    const char *end;
    bool bad; /* something was missing; stays set */
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

gw_status gw_order_unpack(gw_order *order, const char *bytes, size_t size, gw_error *error) {
    reader r = {bytes, bytes + size, false};
    gw_order o = {0};
    o.first_rank = get_number(&r, 0, INT32_MAX);
    o.local_ranks = get_number(&r, 1, GW_WIRE_MAX_RANKS);
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
        gw_order_free(&o);
        return gw_fail(error, GW_PROTOCOL, "the launcher's order is damaged; are both sides the same version?");
    }
    *order = o;
    return GW_OK;
}

void gw_order_free(gw_order *order) {
    free((void *)(uintptr_t)order->argv);
    free((void *)(uintptr_t)order->env);
    order->argv = order->env = NULL;
}
