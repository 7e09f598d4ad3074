/* plan_memory.h - the ranks of plan_machine.h: their plans, how far each stream is, and their marked memory. */
#ifndef GW_TEST_PLAN_MEMORY_H
#define GW_TEST_PLAN_MEMORY_H

#include "plan/plan.h"
#include "test.h"

#define MARK (UINT64_C(0xA5C31E77) << 32)

typedef enum combine { COMBINE_SUM, COMBINE_ORDER } combine; /* ORDER neither commutes nor associates */

static uint32_t combined(combine op, uint32_t a, uint32_t b) {
    return op == COMBINE_SUM ? a + b : a * 31 + (b ^ 77) * 17;
}
static uint32_t finished(uint32_t value) { return value * 3 + 1; }

typedef struct packet {
    struct packet *next;
    gw_action step;
    unsigned char data[];
} packet;

typedef struct cursor {
    gw_stream stream;
    int rank;
    uint32_t number;               /* of the stream in its plan */
    struct cursor *other;          /* the other end */
    uint64_t posted, landed, done; /* send streams: posted are started */
    bool eager;                    /* send streams: read at once */
    packet *head, **tail;          /* eager messages in flight */
    gw_action step[2];             /* cached: at `posted` and at `done` */
    uint64_t cached[2];            /* their indices + 1 */
    uint64_t snapshot;             /* of the oldest started, not yet moved source */
    uint16_t *depth;               /* messages in a row, through step i */
} cursor;

typedef struct member {
    gw_plan plan;
    unsigned char *in, *out, *work;
    size_t in_count, out_count;
    cursor *cursors;
} member;

typedef struct machine {
    int world;
    combine op;
    bool in_place, depths;
    uint64_t random;
    member *members;
    cursor *cursors;
    size_t cursor_count;
    gw_cost spent;
    const member *absent; /* a rank that does nothing, or NULL */
    int failures;
} machine;

static uint64_t machine_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#define ENSURE(m, condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            if (!(m)->failures) printf("    %s:%d: %s\n", __FILE__, __LINE__, #condition);                             \
            (m)->failures++;                                                                                           \
        }                                                                                                              \
    } while (0)

/* --- memory --- */

static unsigned char *place(machine *m, int rank, gw_slot slot) {
    member *r = &m->members[rank];
    switch (slot.space) {
    case GW_SPACE_IN: ENSURE(m, slot.offset + slot.count <= r->in_count); return r->in + 4 * slot.offset;
    case GW_SPACE_OUT: ENSURE(m, slot.offset + slot.count <= r->out_count); return r->out + 4 * slot.offset;
    case GW_SPACE_WORK: ENSURE(m, slot.offset + slot.count <= r->plan.work_count); return r->work + 8 * slot.offset;
    default: ENSURE(m, slot.count == 0); return r->work;
    }
}

static uint32_t load(machine *m, const unsigned char *at, bool wide, size_t i) {
    if (!wide) {
        uint32_t raw;
        memcpy(&raw, at + 4 * i, 4);
        return raw;
    }
    uint64_t value;
    memcpy(&value, at + 8 * i, 8);
    ENSURE(m, (value & ~UINT64_C(0xFFFFFFFF)) == MARK);
    return (uint32_t)value;
}

static void store(unsigned char *at, bool wide, size_t i, uint32_t value) {
    uint64_t marked = MARK | value;
    if (wide) memcpy(at + 8 * i, &marked, 8);
    else memcpy(at + 4 * i, &value, 4);
}

/* A raw message that is reduced lands at the end of its wide slot, as in the executor. */
static unsigned char *recv_buffer(machine *m, int rank, const gw_action *step) {
    unsigned char *at = place(m, rank, step->land);
    bool at_end = step->kind == GW_ACTION_RECV_REDUCE && !step->wide && step->land.space == GW_SPACE_WORK;
    return at_end ? at + 4 * step->land.count : at;
}

static size_t message_bytes(const gw_action *step, size_t count) { return count * (step->wide ? 8 : 4); }

static uint64_t source_sum(machine *m, int rank, const gw_action *step) {
    const unsigned char *at = place(m, rank, step->src);
    uint64_t sum = UINT64_C(1469598103934665603);
    for (size_t i = 0; i < message_bytes(step, step->src.count); i++) sum = (sum ^ at[i]) * UINT64_C(1099511628211);
    return sum;
}

#endif
