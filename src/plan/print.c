/* print.c - see print.h. */
#include "plan/print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static bool hold(const gw_plan_walk *walk, const gw_waits waits[GW_ACTION_WAITS]) {
    for (int w = 0; w < GW_ACTION_WAITS; w++)
        for (uint32_t s = 0; s < waits[w].streams; s++)
            if (walk->done[waits[w].first + s] < waits[w].actions) return false;
    return true;
}

static bool may_run(const gw_plan_walk *walk, uint32_t stream, bool receives, gw_action *step) {
    gw_stream info;
    gw_plan_stream(walk->plan, stream, &info);
    if (walk->done[stream] == info.actions) return false;
    gw_plan_action(walk->plan, stream, walk->done[stream], step);
    return (step->kind == GW_ACTION_RECV) == receives && hold(walk, step->free) && hold(walk, step->ready);
}

/* A plain receive waits for nothing on this rank, but in practice its message comes late: it is taken only when all
 * other streams wait. */
bool gw_plan_walk_next(gw_plan_walk *walk, uint32_t *stream, uint64_t *index, gw_action *step) {
    uint32_t streams = walk->plan->streams;
    for (uint32_t i = 0; i < 2 * streams; i++) {
        uint32_t s = (walk->turn + i) % streams;
        if (!may_run(walk, s, i >= streams, step)) continue;
        *stream = s;
        *index = walk->done[s]++;
        walk->turn = (s + 1) % streams;
        return true;
    }
    return false;
}

const char *gw_stream_kind_name(gw_stream_kind flow) {
    static const char *const names[] = {
        [GW_STREAM_SEND] = "send", [GW_STREAM_RECV] = "recv", [GW_STREAM_LOCAL] = "local"};
    return names[flow];
}

const char *gw_space_name(gw_space space) {
    static const char *const names[] = {
        [GW_SPACE_NONE] = "none", [GW_SPACE_IN] = "in", [GW_SPACE_OUT] = "out", [GW_SPACE_WORK] = "work"};
    return names[space];
}

const char *gw_action_kind_name(gw_action_kind kind) {
    static const char *const names[] = {
        [GW_ACTION_SEND] = "send",    [GW_ACTION_RECV] = "recv", [GW_ACTION_RECV_REDUCE] = "recv_reduce",
        [GW_ACTION_COPY] = "copy",    [GW_ACTION_FOLD] = "fold", [GW_ACTION_SHM] = "shm",
        [GW_ACTION_NATIVE] = "native"};
    return names[kind];
}

const char *gw_shm_coll_task_name(gw_shm_task task) {
    static const char *const names[] = {
        [GW_SHM_TASK_ALLREDUCE] = "allreduce", [GW_SHM_TASK_REDUCE_SCATTER] = "reduce_scatter",
        [GW_SHM_TASK_ALLGATHER] = "allgather", [GW_SHM_TASK_BROADCAST] = "broadcast",
        [GW_SHM_TASK_REDUCE] = "reduce",       [GW_SHM_TASK_GATHER] = "gather",
        [GW_SHM_TASK_SCATTER] = "scatter",     [GW_SHM_TASK_ALLTOALL] = "alltoall",
        [GW_SHM_TASK_BARRIER] = "barrier"};
    return names[task];
}

size_t gw_action_count(const gw_action *step) {
    switch (step->kind) {
    case GW_ACTION_RECV:
    case GW_ACTION_RECV_REDUCE: return step->land.count;
    default: return step->src.count;
    }
}

/* A text that is appended to; text beyond the end of its memory is cut off. */
typedef struct line {
    char *text;
    size_t length;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int written = vsnprintf(l->text + l->length, GW_ACTION_TEXT - l->length, format, args);
    va_end(args);
    if (written > 0) l->length += (size_t)written;
    if (l->length >= GW_ACTION_TEXT) l->length = GW_ACTION_TEXT - 1;
}

static void add_slot(line *l, gw_slot slot) {
    if (slot.space == GW_SPACE_NONE) add(l, "nothing");
    else add(l, "%s[%zu,%zu)", gw_space_name(slot.space), slot.offset, slot.offset + slot.count);
}

static void add_reduce(line *l, const gw_action *step) {
    add_slot(l, step->dst);
    add(l, " = ");
    if (step->landed_first) add(l, "landed op ");
    add_slot(l, step->src);
    add(l, "%s%s", step->landed_first ? "" : " op landed", step->finish ? ", finished" : "");
}

static void add_coll(line *l, const gw_action *step) {
    add(l, "%s", gw_shm_coll_task_name(step->task));
    if (step->task == GW_SHM_TASK_BARRIER) return;
    add(l, " ");
    add_slot(l, step->src);
    add(l, " to ");
    add_slot(l, step->dst);
    add(l, ", %d lanes", step->lanes);
}

const char *gw_action_where_text(const gw_action *step, char text[GW_ACTION_TEXT]) {
    line l = {.text = text};
    text[0] = '\0';
    switch (step->kind) {
    case GW_ACTION_SEND: add_slot(&l, step->src); break;
    case GW_ACTION_RECV: add_slot(&l, step->dst); break;
    case GW_ACTION_RECV_REDUCE: add_reduce(&l, step); break;
    case GW_ACTION_COPY:
    case GW_ACTION_FOLD:
        add_slot(&l, step->dst);
        add(&l, step->kind == GW_ACTION_COPY ? " = " : " = all ranks in order, own ");
        add_slot(&l, step->src);
        if (step->kind == GW_ACTION_FOLD) add(&l, ", others work[%zu + q*%zu]", step->fold_base, step->fold_stride);
        break;
    case GW_ACTION_SHM: add_coll(&l, step); break;
    case GW_ACTION_NATIVE:
        add_slot(&l, step->dst);
        add(&l, " = all ranks, ");
        add_slot(&l, step->src);
        break;
    }
    return text;
}

const char *gw_waits_text(const gw_waits waits[GW_ACTION_WAITS], char text[GW_ACTION_TEXT]) {
    line l = {.text = text};
    text[0] = '\0';
    for (int w = 0; w < GW_ACTION_WAITS; w++) {
        if (waits[w].streams == 0) continue;
        add(&l, "%s#%" PRIu32, l.length ? ", " : "", waits[w].first);
        if (waits[w].streams > 1) add(&l, "..%" PRIu32, waits[w].first + waits[w].streams - 1);
        add(&l, " >= %" PRIu64, waits[w].actions);
    }
    if (l.length == 0) add(&l, "-");
    return text;
}
