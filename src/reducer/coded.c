/* coded.c - the calls of gradwire/coded.h: runs, and the saved state. coded_open.c makes a coded collective. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "reducer/coded_internal.h"
#include "reducer/reducer_internal.h"
#include "reducer/step_engine_internal.h"

/* Checks. */

static gw_status check(const gw_coded *c, const char *call) {
    if (!c) return gw_invalid("%s: the coded collective is NULL", call);
    return gw_comm_forked(c->comm) ? GW_INVALID : GW_OK;
}

/* For calls that need one that is not running. */
static gw_status check_idle(const gw_coded *c, const char *call) {
    gw_status status = check(c, call);
    if (status) return status;
    if (c->started)
        return gw_invalid("%s: a run of the %s has been started and not waited for: call gw_coded_wait first", call,
                          c->facts.text);
    return atomic_load(&c->comm->failed) ? gw_comm_set_last_error(&c->comm->error) : GW_OK;
}

static gw_status check_buffer(const gw_coded *c, const void *buffer, size_t count, const char *call,
                              const char *which) {
    if (!count || (buffer && gw_memory_is_readable(c->comm, buffer))) return GW_OK;
    return gw_invalid("%s: the %s buffer of the %s, at %p, is not memory that this process can read", call, which,
                      c->facts.text, buffer);
}

/* Runs. */

/* A reducer works in place: in the output. */
static gw_status begin_reducer(gw_coded *c, const void *in, void *out) {
    if (c->in_count && in != out) memcpy(out, in, c->in_count * gw_dtype_bytes(c->options.dtype));
    gw_context_lock(c->comm->context);
    if (out != c->out) gw_step_engine_move_tensor(c->reducer->step_engine, 0, out);
    gw_context_unlock(c->comm->context);
    c->out = out;
    return gw_reducer_begin_step(c->reducer);
}

static gw_status begin(gw_coded *c, const void *in, void *out, const char *call) {
    gw_status status = check_idle(c, call);
    if (!status) status = check_buffer(c, in, c->in_count, call, "input");
    if (!status) status = check_buffer(c, out, c->out_count, call, "output");
    if (status) return status;
    if (c->reducer) {
        status = begin_reducer(c, in, out);
    } else {
        gw_context_lock(c->comm->context);
        gw_coded_parts_begin(c->parts, c->step, in, out);
        gw_context_unlock(c->comm->context);
    }
    c->started = !status;
    c->step += !status;
    return status;
}

static bool failed(const gw_coded *c) {
    return atomic_load(&c->comm->failed) || (c->reducer && gw_step_engine_error(c->reducer->step_engine)->status);
}

/* The machine of parts is over only when none of its operations uses the caller's buffers. */
static bool over(void *ctx) {
    const gw_coded *c = ctx;
    return c->parts ? gw_coded_parts_over(c->parts) : failed(c) || gw_step_engine_usable(c->reducer->step_engine, 0);
}

/* Of a run that is over. */
static gw_status finish(gw_coded *c) {
    c->started = false;
    if (c->reducer) return gw_reducer_wait(c->reducer, 0);
    const gw_error *error = gw_coded_parts_error(c->parts);
    return error->status ? gw_comm_set_failure(c->comm, error) : GW_OK;
}

gw_status gw_coded_wait(gw_coded *c) {
    gw_status status = check(c, "gw_coded_wait");
    if (status || !c->started) return status;
    gw_context_lock_to_drive(c->comm->context);
    gw_context_drive_until(c->comm->context, over, c);
    gw_context_unlock(c->comm->context);
    return finish(c);
}

gw_status gw_coded_test(gw_coded *c, bool *done) {
    gw_status status = check(c, "gw_coded_test");
    if (status) return status;
    if (!done) return gw_invalid("gw_coded_test: the place for the answer is NULL");
    gw_context *context = c->comm->context;
    gw_context_lock(context);
    if (c->started && !over(c) && !context->driven) gw_core_poll(context->core, gw_clock_now());
    *done = !c->started || over(c);
    gw_context_unlock(context);
    return *done && c->started ? finish(c) : GW_OK;
}

gw_status gw_coded_start(gw_coded *c, const void *in, void *out) {
    gw_status status = begin(c, in, out, "gw_coded_start");
    if (!status) gw_context_notify(c->comm->context);
    return status;
}

gw_status gw_coded_run(gw_coded *c, const void *in, void *out) {
    gw_status status = begin(c, in, out, "gw_coded_run");
    return status ? status : gw_coded_wait(c);
}

/* Closing. */

static void close_parts(gw_coded *c) {
    if (!c->comm) return;
    gw_context_lock(c->comm->context);
    if (c->callback.ctx) gw_core_detach(c->comm->context->core, &c->callback);
    gw_coded_parts_close(c->parts);
    gw_context_unlock(c->comm->context);
    if (c->host) gw_free(c->host, c->by_lane);
    for (int l = 0; l < c->lane_count; l++) gw_finalize(c->lanes[l]);
    gw_finalize(c->host);
    gw_finalize(c->comm);
}

void gw_coded_close(gw_coded *c) {
    if (!c || gw_context_forked(c->given->context)) return;
    if (c->started) gw_coded_wait(c);
    if (c->options.collective == GW_COLL_ALLREDUCE) gw_reducer_close(c->reducer);
    else close_parts(c);
    free(c->lanes);
    free(c->counts);
    free(c);
}

/* What it does. */

size_t gw_coded_sent_bytes(const gw_coded *c) {
    if (!c || gw_comm_forked(c->comm)) return 0;
    gw_context_lock(c->comm->context);
    size_t bytes = c->parts ? gw_coded_parts_sent_bytes(c->parts) : gw_step_engine_sent_bytes(c->reducer->step_engine);
    gw_context_unlock(c->comm->context);
    return bytes;
}

/* "reduce-scatter in each host, then all-to-all of payloads between hosts" */
static void route_of_parts(const gw_coded *c, char *text, size_t size) {
    bool reduces = c->options.collective == GW_COLL_REDUCE_SCATTER, two_levels = c->host != NULL;
    const char *plain = reduces ? "reduce-scatter" : "all-gather";
    const char *coded = reduces ? "all-to-all of payloads" : "all-gather of payloads";
    snprintf(text, size, "%s%s%s %s%s%s", reduces && two_levels ? plain : "",
             reduces && two_levels ? " in each host, then " : "", c->route.coded ? coded : plain,
             two_levels ? "between hosts" : "among all ranks", !reduces && two_levels ? ", then " : "",
             !reduces && two_levels ? "all-gather in each host" : "");
}

static void route_of_allreduce(const gw_coded *c, char *text, size_t size) {
    size_t used = 0;
    for (int hop = 0; hop < c->route.count && used < size; hop++) {
        char one[64];
        gw_hop_text(&c->route, hop, one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%s%s", hop ? ", then " : "", one);
    }
}

static int exact_parts(const gw_coded *c, int *all) {
    int exact = 0;
    if (c->parts) *all = gw_coded_parts_encoded(c->parts, &exact);
    else *all = c->route.coded, exact = c->route.coded && c->reducer->step_engine->coded[0].exact;
    return exact;
}

int gw_coded_describe(const gw_coded *c, char *text, size_t size) {
    char route[256] = "", exact[64] = "";
    int all, left_out;
    if (!c || gw_comm_forked(c->comm)) return snprintf(text, size, "%s", "");
    if (c->route.count == 0) snprintf(route, sizeof route, "nothing is sent");
    else if (c->parts) route_of_parts(c, route, sizeof route);
    else route_of_allreduce(c, route, sizeof route);
    if ((left_out = exact_parts(c, &all)) > 0)
        snprintf(exact, sizeof exact, "; %d of %d parts are sent exact", left_out, all);
    return snprintf(text, size, "%s: %s%s", c->facts.text, route, exact);
}

/* State: a head, then that of the reducer or of the parts. */

#define MAGIC UINT64_C(0x3165646f63777767) /* "gwwcode1" */

typedef struct saved_head {
    uint64_t magic, bytes, step;
    uint32_t rank, world;
    gw_coded_facts facts;
} saved_head;

static size_t inner_bytes(const gw_coded *c) {
    return c->parts ? gw_coded_parts_state_bytes(c->parts) : gw_reducer_state_bytes(c->reducer);
}

size_t gw_coded_state_bytes(const gw_coded *c) { return c ? sizeof(saved_head) + inner_bytes(c) : 0; }

gw_status gw_coded_state_save(const gw_coded *c, void *memory) {
    gw_status status = check_idle(c, "gw_coded_state_save");
    if (status) return status;
    if (!memory) return gw_invalid("gw_coded_state_save: the memory is NULL");
    saved_head head = {.magic = MAGIC, .bytes = gw_coded_state_bytes(c), .step = c->step,
                       .rank = (uint32_t)c->comm->rank, .world = (uint32_t)c->comm->size, .facts = c->facts};
    uint8_t *inner = (uint8_t *)memory + sizeof head;
    memcpy(memory, &head, sizeof head);
    if (c->reducer) return gw_reducer_state_save(c->reducer, inner);
    gw_coded_parts_state_save(c->parts, inner);
    return GW_OK;
}

static gw_status wrong(gw_error *error, const gw_coded *c, const char *why) {
    return gw_fail(error, GW_MISMATCH, "gw_coded_state_restore: the saved state is not one of the %s: %s",
                   c->facts.text, why);
}

static gw_status read_head(const gw_coded *c, const void *memory, size_t bytes, saved_head *head, gw_error *error) {
    if (!memory || bytes < sizeof *head) return wrong(error, c, "it is cut short");
    memcpy(head, memory, sizeof *head);
    if (head->magic != MAGIC) return wrong(error, c, "it was not saved by gw_coded_state_save");
    if (memcmp(&head->facts, &c->facts, sizeof c->facts) != 0) return wrong(error, c, "it has other options");
    if (head->rank != (uint32_t)c->comm->rank || head->world != (uint32_t)c->comm->size)
        return wrong(error, c, "it is of another rank, or of another number of ranks");
    if (head->bytes != bytes || bytes != gw_coded_state_bytes(c)) return wrong(error, c, "it has another size");
    return GW_OK;
}

static gw_status restore(gw_coded *c, const saved_head *head, const void *memory, gw_error *error) {
    const uint8_t *inner = (const uint8_t *)memory + sizeof *head;
    size_t bytes = head->bytes - sizeof *head;
    if (c->parts) return gw_coded_parts_state_restore(c->parts, inner, bytes, error);
    gw_status status = gw_reducer_copy_last_error(gw_reducer_state_restore(c->reducer, inner, bytes), error);
    if (!status) gw_reducer_continue_at(c->reducer, head->step);
    return status;
}

gw_status gw_coded_state_restore(gw_coded *c, const void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    saved_head head = {.step = 0};
    gw_status status = check_idle(c, "gw_coded_state_restore");
    if (status) return status;
    status = read_head(c, memory, bytes, &head, &error);
    uint64_t first = head.step; /* of rank 0; if its state is refused, all get that reason */
    gw_status sent = gw_broadcast(c->comm, &first, &first, sizeof first, GW_U8, 0);
    if (sent) return sent;
    if (!status && first != head.step)
        status =
            gw_fail(&error, GW_MISMATCH,
                    "gw_coded_state_restore: this state of the %s was saved before run %llu, that of rank 0 before "
                    "run %llu",
                    c->facts.text, (unsigned long long)head.step, (unsigned long long)first);
    status = gw_reducer_agree(c->comm, status, &error);
    if (!status) status = gw_reducer_agree(c->comm, restore(c, &head, memory, &error), &error);
    if (!status) c->step = head.step;
    return status ? gw_comm_set_failure(c->comm, &error) : GW_OK;
}
