/* mpi_transport.c - see mpi_transport.h. */
#include "transport/mpi/mpi_internal.h"
#include "transport/mpi/mpi_load.h"

#include "base/fork_descriptors.h"
#include "transport/transport_registry.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#define NAP_NS 50000 /* between polls while no peer has begun */

static void break_off(mpi *m, int number, gw_status status, const char *detail) {
    peer *p = &m->peers[number];
    if (p->broken || p->lost) return;
    p->broken = status;
    snprintf(p->detail, sizeof p->detail, "%.*s", (int)sizeof p->detail - 1, detail);
    m->unsettled = true;
}

/* For errors where MPI does not name the peer. */
static void break_off_all(mpi *m, gw_status status, const char *detail) {
    for (int r = 0; r < m->world; r++)
        if (r != m->rank) break_off(m, r, status, detail);
}

/* ---- sending ---- */

send_slot *gw_mpi_new_send(mpi *m, int to) {
    send_slot *l = m->spare_sends;
    if (l) m->spare_sends = l->next;
    else l = malloc(sizeof *l);
    if (!l) return NULL;
    l->next = NULL;
    l->to = to;
    l->packet = NULL;
    l->head_done = l->body_done = true;
    return l;
}

void gw_mpi_post_send(mpi *m, send_slot *l, size_t bytes) {
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->send(m->mpi, l->bytes, bytes, l->to, m->tag, &l->head, why);
    l->head_done = status != GW_OK;
    if (!status && l->packet) {
        const gw_packet *packet = l->packet;
        status = m->table->send(m->mpi, packet->data, packet->frame.length, l->to, m->tag + BODY_TAG, &l->body, why);
        l->body_done = status != GW_OK;
    }
    if (status) break_off(m, l->to, status, why);
    *m->last_send_slot = l;
    m->last_send_slot = &l->next;
}

static void mpi_send(gw_transport *transport, int to, gw_packet *packet) {
    mpi *m = (mpi *)transport;
    assert(to >= 0 && to < m->world && to != m->rank);
    if (m->stuck) break_off(m, to, GW_UNSUPPORTED, "MPI could not be brought back to order after an error");
    if (m->peers[to].lost || m->peers[to].broken) return;
    send_slot *l = gw_mpi_new_send(m, to);
    if (!l) {
        break_off(m, to, GW_MEMORY, "out of memory for a message");
        return;
    }
    bool small = packet->frame.length <= SMALL_BYTES;
    gw_frame_write(&packet->frame, l->bytes);
    if (small && packet->frame.length) memcpy(l->bytes + GW_FRAME_BYTES, packet->data, packet->frame.length);
    if (!small) l->packet = packet;
    gw_mpi_post_send(m, l, GW_FRAME_BYTES + (small ? packet->frame.length : 0));
    if (small) m->base.sink.sent(m->base.sink.ctx, to, packet);
}

bool gw_mpi_test(mpi *m, gw_mpi_request *request, int number) {
    bool done = false;
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->test(request, &done, NULL, why);
    if (status) break_off(m, number, status, why);
    return done;
}

bool gw_mpi_send_done(mpi *m, send_slot *l) {
    if (!l->head_done) l->head_done = gw_mpi_test(m, &l->head, l->to);
    if (!l->body_done) l->body_done = gw_mpi_test(m, &l->body, l->to);
    return l->head_done && l->body_done;
}

static bool finish_sends(mpi *m) {
    bool moved = false;
    for (send_slot **at = &m->sends; *at;) {
        send_slot *l = *at;
        if (!gw_mpi_send_done(m, l)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (!l->next) m->last_send_slot = at;
        l->next = m->spare_sends;
        m->spare_sends = l;
        if (l->packet && !m->peers[l->to].broken) m->base.sink.sent(m->base.sink.ctx, l->to, l->packet);
        moved = true;
    }
    return moved;
}

/* ---- receiving ---- */

void gw_mpi_post_receive(mpi *m, recv_slot *slot) {
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->receive(m->mpi, slot->bytes, RECV_SLOT_BYTES, -1, m->tag, &slot->request, why);
    slot->posted = status == GW_OK;
    if (status) break_off_all(m, status, why);
}

/* A payload follows in a message of its own. */
static void expect(mpi *m, int from, const gw_frame *frame) {
    char why[GW_MPI_WHY_BYTES] = "";
    void *recv_buffer = frame->kind == GW_FRAME_DATA ? m->base.sink.recv_buffer(m->base.sink.ctx, from, frame) : NULL;
    if (!recv_buffer) {
        break_off(m, from, GW_PROTOCOL, "a frame announced bytes that have no place here");
        return;
    }
    body_slot *p = m->spare_bodies;
    if (p) m->spare_bodies = p->next;
    else p = malloc(sizeof *p);
    if (!p) {
        break_off(m, from, GW_MEMORY, "out of memory for a message");
        return;
    }
    *p = (body_slot){.from = from, .frame = *frame, .recv_buffer = recv_buffer};
    gw_status status = m->table->receive(m->mpi, recv_buffer, frame->length, from, m->tag + BODY_TAG, &p->request, why);
    if (status) {
        p->next = m->spare_bodies;
        m->spare_bodies = p;
        break_off(m, from, status, why);
        return;
    }
    *m->last_body_slot = p;
    m->last_body_slot = &p->next;
    m->peers[from].bodies++;
}

static void open_recv_slot(mpi *m, const recv_slot *slot, const gw_mpi_message *message) {
    gw_frame frame;
    gw_error error = {0};
    int from = message->source;
    if (from < 0 || from >= m->world || from == m->rank) return;
    if (message->bytes == 0) m->peers[from].left = m->unsettled = true;
    if (message->bytes == 0 || m->closing || m->peers[from].lost || m->peers[from].broken) return;
    if (message->bytes < GW_FRAME_BYTES) {
        break_off(m, from, GW_PROTOCOL, "a message was too short for its header");
        return;
    }
    if (gw_frame_read(&frame, slot->bytes, &error) != GW_OK) {
        break_off(m, from, GW_PROTOCOL, error.text);
        return;
    }
    uint64_t came = message->bytes - GW_FRAME_BYTES;
    if (frame.length > SMALL_BYTES && came == 0) expect(m, from, &frame);
    else if (frame.length != came) break_off(m, from, GW_PROTOCOL, "a frame brought other bytes than it announced");
    else m->base.sink.arrived(m->base.sink.ctx, from, &frame, came ? slot->bytes + GW_FRAME_BYTES : NULL, 0);
}

/* MPI matches receives in the order in which they were posted, so only the oldest must be tested. */
bool gw_mpi_poll_receives(mpi *m) {
    bool moved = false;
    for (int i = 0; i < RECV_SLOTS; i++) {
        recv_slot *slot = &m->recv_slots[m->next_recv_slot];
        bool done = false;
        gw_mpi_message message = {.source = -1};
        char why[GW_MPI_WHY_BYTES] = "";
        if (!slot->posted) break;
        gw_status status = m->table->test(&slot->request, &done, &message, why);
        if (!done) break;
        slot->posted = false;
        moved = true;
        if (status) {
            break_off_all(m, status, why);
            break;
        }
        open_recv_slot(m, slot, &message);
        gw_mpi_post_receive(m, slot);
        m->next_recv_slot = (m->next_recv_slot + 1) % RECV_SLOTS;
    }
    return moved;
}

static bool take_bodies(mpi *m) {
    bool moved = false;
    for (body_slot **at = &m->bodies; *at;) {
        body_slot *p = *at;
        if (!gw_mpi_test(m, &p->request, p->from)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (!p->next) m->last_body_slot = at;
        peer *from = &m->peers[p->from];
        from->bodies--;
        m->unsettled |= from->left;
        if (!from->broken && !from->lost) m->base.sink.arrived(m->base.sink.ctx, p->from, &p->frame, p->recv_buffer, 0);
        p->next = m->spare_bodies;
        m->spare_bodies = p;
        moved = true;
    }
    return moved;
}

/* ---- MPI's own all-reduce ---- */

/* MPI has no half precision and no type of 8 bits that is rounded as ours, and the sum for an average of integers would
 * overflow. Its byte types are unreliable: sums of Open MPI 4.1.4 saturate, and MPICH 4.0.2 compares unsigned bytes as
 * signed; so all but the signed types that are in wide use are left to our plans. */
static bool native_supports(gw_dtype dtype, gw_redop op) {
    bool real = dtype == GW_F32 || dtype == GW_F64;
    return real || ((dtype == GW_I32 || dtype == GW_I64) && op != GW_AVG);
}

static gw_native_task *native_start(gw_transport *transport, const void *in, void *out, size_t count, gw_dtype dtype,
                                    gw_redop op, gw_error *error) {
    mpi *m = (mpi *)transport;
    char why[GW_MPI_WHY_BYTES]; /* not zeroed: that would slow down a small call */
    gw_native_task *task = m->spare_tasks;
    if (task) m->spare_tasks = task->next;
    else task = malloc(sizeof *task);
    if (!task) {
        gw_fail(error, GW_MEMORY, "out of memory for an all-reduce");
        return NULL;
    }
    *task = (gw_native_task){.reduction = {.dtype = dtype, .op = op, .world = m->world}, .out = out, .count = count};
    gw_status status = GW_UNSUPPORTED;
    if (m->stuck) snprintf(why, sizeof why, "it could not be brought back to order after an error");
    else status = m->table->allreduce(m->mpi, in, out, count, dtype, op == GW_AVG ? GW_SUM : op, &task->request, why);
    task->next = status ? m->spare_tasks : m->tasks;
    *(status ? &m->spare_tasks : &m->tasks) = task;
    if (status) gw_fail(error, status, "MPI cannot start the all-reduce: %s", why);
    return status ? NULL : task;
}

void gw_mpi_drop_task(mpi *m, gw_native_task *task) {
    gw_native_task **at = &m->tasks;
    while (*at != task) at = &(*at)->next;
    *at = task->next;
    task->next = m->spare_tasks;
    m->spare_tasks = task;
}

static bool native_done(gw_transport *transport, gw_native_task *task, gw_error *error) {
    mpi *m = (mpi *)transport;
    bool done = false;
    char why[GW_MPI_WHY_BYTES]; /* not zeroed, as above */
    gw_status status = m->table->test(&task->request, &done, NULL, why);
    if (!done) return false;
    if (status) gw_fail(error, status, "MPI's all-reduce failed: %s", why);
    else if (task->reduction.op == GW_AVG) gw_reduce_finish(task->reduction, task->out, task->out, false, task->count);
    gw_mpi_drop_task(m, task);
    return true;
}

/* ---- polling ---- */

static bool settle(mpi *m) {
    if (!m->unsettled) return false;
    for (int r = 0; r < m->world; r++)
        if (m->peers[r].left && m->peers[r].bodies == 0) break_off(m, r, GW_PEER_LOST, "it left the job (gw_finalize)");
    m->unsettled = false; /* before lost() is called, which may break more peers */
    for (int r = 0; r < m->world; r++) {
        peer *p = &m->peers[r];
        if (!p->broken || p->lost) continue;
        p->lost = true;
        m->base.sink.lost(m->base.sink.ctx, r, p->broken, p->detail);
    }
    return true;
}

static bool mpi_poll(gw_transport *transport, gw_time now) {
    (void)now; /* deadlines are the engine's */
    mpi *m = (mpi *)transport;
    if (m->stuck) return settle(m);
    bool moved = gw_mpi_poll_receives(m);
    moved |= take_bodies(m);
    moved |= finish_sends(m);
    return settle(m) || moved;
}

static int mpi_wait_fd(gw_transport *transport) { return ((mpi *)transport)->timer; }

static bool mpi_arm(gw_transport *transport, bool sleeping) {
    mpi *m = (mpi *)transport;
    struct itimerspec nap = {.it_value.tv_nsec = sleeping ? NAP_NS : 0};
    if (sleeping && !m->stuck && (m->sends || m->bodies || m->tasks || m->unsettled)) {
        sched_yield();
        return true;
    }
    if (!m->stuck) timerfd_settime(m->timer, 0, &nap, NULL);
    return false;
}

static void mpi_gone(gw_transport *transport, int number) { ((mpi *)transport)->peers[number].gone = true; }

static void mpi_release(gw_transport *transport, int number, uint64_t ticket) {
    (void)transport, (void)number, (void)ticket; /* payloads are copied, or valid only while arrived() runs */
}

static const gw_native native = {.supports = native_supports, .start = native_start, .done = native_done};

static const gw_transport_ops ops = {
    .name = "mpi", .ordered = false, .hangs_up = true, .send = mpi_send, .release = mpi_release, .poll = mpi_poll,
    .wait_fd = mpi_wait_fd, .arm = mpi_arm, .reset = gw_mpi_reset, .close = gw_mpi_close, .gone = mpi_gone,
    .native = &native,
};

gw_status gw_mpi_open(gw_transport **out, const gw_mpi_options *options, gw_sink sink, gw_error *error) {
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = GW_OK;
    mpi *m = calloc(1, sizeof *m);
    if (!m) return gw_fail(error, GW_MEMORY, "mpi: no memory for the transport");
    *m = (mpi){.base = {&ops, sink}, .rank = options->rank, .world = options->world};
    m->last_body_slot = &m->bodies;
    m->last_send_slot = &m->sends;
    m->timer = gw_fd_register(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    m->peers = calloc((size_t)m->world, sizeof *m->peers);
    m->recv_slots = aligned_alloc(64, RECV_SLOTS * sizeof *m->recv_slots);
    if (m->timer < 0) status = gw_fail(error, GW_SYSTEM, "mpi: no timer: %s", strerror(errno));
    if (!m->peers || !m->recv_slots) status = gw_fail(error, GW_MEMORY, "mpi: no memory for %d peers", m->world);
    if (status == GW_OK) status = gw_mpi_load(options->library, &m->table, error);
    if (status == GW_OK) {
        memset(m->recv_slots, 0, RECV_SLOTS * sizeof *m->recv_slots);
        status = m->table->open(&m->mpi, m->rank, m->world, (double)options->deadline / (double)GW_SECOND, why);
        if (status) gw_fail(error, status, "transport=mpi: %s", why);
    }
    if (status) {
        gw_mpi_close(&m->base);
        return status;
    }
    for (int i = 0; i < RECV_SLOTS; i++) gw_mpi_post_receive(m, &m->recv_slots[i]);
    *out = &m->base;
    return GW_OK;
}

/* ---- the table's entry ---- */

enum { LIBRARY }; /* of the technique's parameters */

static const char *const libraries[] = {"auto", "openmpi", "mpich", NULL};

static gw_status open_by_table(gw_transport **out, const gw_transport_options *o, gw_error *error) {
    gw_mpi_options options = {.rank = o->rank, .world = o->world, .deadline = o->deadline,
                              .library = libraries[(int)o->values[LIBRARY]]};
    return gw_mpi_open(out, &options, o->sink, error);
}

static int probe(gw_transport_probe *list, int room) {
    int count = 0;
    for (int i = 1; libraries[i] && count < room; i++) { /* without auto */
        gw_transport_probe *found = &list[count++];
        const gw_mpi_table *table;
        gw_error error = {0};
        snprintf(found->name, sizeof found->name, "mpi:library=%s", libraries[i]);
        found->usable = gw_mpi_load(libraries[i], &table, &error) == GW_OK;
        char *aside = strstr(error.text, " ("); /* the loader's own words do not fit into a table */
        if (aside) *aside = '\0';
        snprintf(found->detail, sizeof found->detail, "%s",
                 found->usable ? "where its mpirun or srun starts the ranks" : error.text);
    }
    return count;
}

const gw_transport_type gw_transport_mpi = {
    .technique = {.name = "mpi",
                  .about = "messages of MPI, for fabrics that only MPI knows",
                  .params = GW_PARAMS({.name = "library",
                                       .kind = GW_PARAM_CHOICE,
                                       .choices = libraries,
                                       .about = "which MPI; auto is the one that started the job"},
                                      GW_SECURITY_ABSENT_PARAM)},
    .unprotected = true,
    .native_allreduce = true,
    .launcher = "mpirun",
    .open = open_by_table,
    .probe = probe,
};
