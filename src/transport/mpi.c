/* mpi.c - see mpi.h. */
#include "transport/mpi_inside.h"
#include "transport/mpi_load.h"

#include "base/descriptor.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#define NAP_NS 50000 /* between looks while no peer has begun */

static void break_off(mpi *m, int number, gw_status status, const char *detail) {
    peer *p = &m->peers[number];
    if (p->broken || p->lost) return;
    p->broken = status;
    snprintf(p->detail, sizeof p->detail, "%.*s", (int)sizeof p->detail - 1, detail);
    m->unsettled = true;
}

/* MPI does not say whom it is about. */
static void break_off_all(mpi *m, gw_status status, const char *detail) {
    for (int r = 0; r < m->world; r++)
        if (r != m->rank) break_off(m, r, status, detail);
}

/* ---- sending ---- */

letter *gw_mpi_letter(mpi *m, int to) {
    letter *l = m->spare_letters;
    if (l) m->spare_letters = l->next;
    else l = malloc(sizeof *l);
    if (!l) return NULL;
    l->next = NULL;
    l->to = to;
    l->packet = NULL;
    l->head_done = l->body_done = true;
    return l;
}

/* bytes of l->bytes, and the payload of l->packet if there is one. */
void gw_mpi_post_letter(mpi *m, letter *l, size_t bytes) {
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->send(m->mpi, l->bytes, bytes, l->to, m->tag, &l->head, why);
    l->head_done = status != GW_OK;
    if (!status && l->packet) {
        const gw_packet *packet = l->packet;
        status = m->table->send(m->mpi, packet->data, packet->frame.length, l->to, m->tag + BODY_TAG, &l->body, why);
        l->body_done = status != GW_OK;
    }
    if (status) break_off(m, l->to, status, why);
    *m->last_letter = l;
    m->last_letter = &l->next;
}

static void mpi_send(gw_transport *transport, int to, gw_packet *packet) {
    mpi *m = (mpi *)transport;
    assert(to >= 0 && to < m->world && to != m->rank);
    if (m->stuck) break_off(m, to, GW_UNSUPPORTED, "MPI could not be brought back to order after an error");
    if (m->peers[to].lost || m->peers[to].broken) return;
    letter *l = gw_mpi_letter(m, to);
    if (!l) {
        break_off(m, to, GW_MEMORY, "out of memory for a message");
        return;
    }
    bool small = packet->frame.length <= SMALL_BYTES;
    gw_frame_write(&packet->frame, l->bytes);
    if (small && packet->frame.length) memcpy(l->bytes + GW_FRAME_BYTES, packet->data, packet->frame.length);
    if (!small) l->packet = packet;
    gw_mpi_post_letter(m, l, GW_FRAME_BYTES + (small ? packet->frame.length : 0));
    if (small) m->base.sink.sent(m->base.sink.ctx, to, packet);
}

bool gw_mpi_test(mpi *m, gw_mpi_request *request, int number) {
    bool done = false;
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->test(request, &done, NULL, why);
    if (status) break_off(m, number, status, why);
    return done;
}

/* True when MPI has let go of it. */
bool gw_mpi_letter_gone(mpi *m, letter *l) {
    if (!l->head_done) l->head_done = gw_mpi_test(m, &l->head, l->to);
    if (!l->body_done) l->body_done = gw_mpi_test(m, &l->body, l->to);
    return l->head_done && l->body_done;
}

static bool finish_letters(mpi *m) {
    bool moved = false;
    for (letter **at = &m->letters; *at;) {
        letter *l = *at;
        if (!gw_mpi_letter_gone(m, l)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (!l->next) m->last_letter = at;
        l->next = m->spare_letters;
        m->spare_letters = l;
        if (l->packet && !m->peers[l->to].broken) m->base.sink.sent(m->base.sink.ctx, l->to, l->packet);
        moved = true;
    }
    return moved;
}

/* ---- receiving ---- */

void gw_mpi_post_mail(mpi *m, mail *slot) {
    char why[GW_MPI_WHY_BYTES] = "";
    gw_status status = m->table->receive(m->mpi, slot->bytes, MAIL_BYTES, -1, m->tag, &slot->request, why);
    slot->posted = status == GW_OK;
    if (status) break_off_all(m, status, why);
}

/* A payload of its own is to follow. */
static void expect(mpi *m, int from, const gw_frame *frame) {
    char why[GW_MPI_WHY_BYTES] = "";
    void *landing = frame->kind == GW_FRAME_DATA ? m->base.sink.landing(m->base.sink.ctx, from, frame) : NULL;
    if (!landing) {
        break_off(m, from, GW_PROTOCOL, "a frame announced bytes that have no place here");
        return;
    }
    parcel *p = m->spare_parcels;
    if (p) m->spare_parcels = p->next;
    else p = malloc(sizeof *p);
    if (!p) {
        break_off(m, from, GW_MEMORY, "out of memory for a message");
        return;
    }
    *p = (parcel){.from = from, .frame = *frame, .landing = landing};
    gw_status status = m->table->receive(m->mpi, landing, frame->length, from, m->tag + BODY_TAG, &p->request, why);
    if (status) {
        p->next = m->spare_parcels;
        m->spare_parcels = p;
        break_off(m, from, status, why);
        return;
    }
    *m->last_parcel = p;
    m->last_parcel = &p->next;
    m->peers[from].parcels++;
}

static void open_mail(mpi *m, const mail *slot, const gw_mpi_message *message) {
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

/* Messages meet receives in the order in which these were posted, so only the first has to be asked. */
bool gw_mpi_take_mail(mpi *m) {
    bool moved = false;
    for (int i = 0; i < MAILS; i++) {
        mail *slot = &m->mails[m->next_mail];
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
        open_mail(m, slot, &message);
        gw_mpi_post_mail(m, slot);
        m->next_mail = (m->next_mail + 1) % MAILS;
    }
    return moved;
}

static bool take_parcels(mpi *m) {
    bool moved = false;
    for (parcel **at = &m->parcels; *at;) {
        parcel *p = *at;
        if (!gw_mpi_test(m, &p->request, p->from)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (!p->next) m->last_parcel = at;
        peer *from = &m->peers[p->from];
        from->parcels--;
        m->unsettled |= from->left;
        if (!from->broken && !from->lost)
            m->base.sink.arrived(m->base.sink.ctx, p->from, &p->frame, p->landing, 0);
        p->next = m->spare_parcels;
        m->spare_parcels = p;
        moved = true;
    }
    return moved;
}

/* ---- MPI's own all-reduce ---- */

/* MPI has no half precision, and averages of integers would overflow in its sum. Its bytes are not to be trusted: sums
 * of Open MPI 4.1.4 saturate, and MPICH 4.0.2 compares unsigned ones as signed. */
static bool native_carries(gw_dtype dtype, gw_redop op) {
    bool real = dtype == GW_F32 || dtype == GW_F64;
    return real || ((dtype == GW_I32 || dtype == GW_I64) && op != GW_AVG);
}

static gw_native_task *native_start(gw_transport *transport, const void *in, void *out, size_t count, gw_dtype dtype,
                                    gw_redop op, gw_error *error) {
    mpi *m = (mpi *)transport;
    char why[GW_MPI_WHY_BYTES]; /* not cleared: that is a part of what a small call costs */
    gw_native_task *task = m->spare_tasks;
    if (task) m->spare_tasks = task->next;
    else task = malloc(sizeof *task);
    if (!task) {
        gw_fail(error, GW_MEMORY, "out of memory for an all-reduce");
        return NULL;
    }
    *task = (gw_native_task){.reduction = {dtype, op, m->world}, .out = out, .count = count};
    gw_status status = GW_UNSUPPORTED;
    if (m->stuck) snprintf(why, sizeof why, "it could not be brought back to order after an error");
    else
        status = m->table->allreduce(m->mpi, in, out, count, dtype, op == GW_AVG ? GW_SUM : op, &task->request, why);
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
    char why[GW_MPI_WHY_BYTES]; /* not cleared, as above */
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
        if (m->peers[r].left && m->peers[r].parcels == 0)
            break_off(m, r, GW_PEER_LOST, "it left the job (gw_finalize)");
    m->unsettled = false; /* before anybody is told, for more may break from within */
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
    bool moved = gw_mpi_take_mail(m);
    moved |= take_parcels(m);
    moved |= finish_letters(m);
    return settle(m) || moved;
}

static int mpi_wait_fd(gw_transport *transport) { return ((mpi *)transport)->timer; }

static bool mpi_arm(gw_transport *transport, bool sleeping) {
    mpi *m = (mpi *)transport;
    struct itimerspec nap = {.it_value.tv_nsec = sleeping ? NAP_NS : 0};
    if (sleeping && !m->stuck && (m->letters || m->parcels || m->tasks || m->unsettled)) {
        sched_yield();
        return true;
    }
    if (!m->stuck) timerfd_settime(m->timer, 0, &nap, NULL);
    return false;
}

static void mpi_gone(gw_transport *transport, int number) { ((mpi *)transport)->peers[number].gone = true; }

static void mpi_release(gw_transport *transport, int number, uint64_t ticket) {
    (void)transport, (void)number, (void)ticket; /* payloads are landed, or shown only while arrived() runs */
}

static const gw_native native = {.carries = native_carries, .start = native_start, .done = native_done};

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
    m->last_parcel = &m->parcels;
    m->last_letter = &m->letters;
    m->timer = gw_fd_keep(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    m->peers = calloc((size_t)m->world, sizeof *m->peers);
    m->mails = aligned_alloc(64, MAILS * sizeof *m->mails);
    if (m->timer < 0) status = gw_fail(error, GW_SYSTEM, "mpi: no timer: %s", strerror(errno));
    if (!m->peers || !m->mails) status = gw_fail(error, GW_MEMORY, "mpi: no memory for %d peers", m->world);
    if (status == GW_OK) status = gw_mpi_load(options->library, &m->table, error);
    if (status == GW_OK) {
        memset(m->mails, 0, MAILS * sizeof *m->mails);
        status = m->table->open(&m->mpi, m->rank, m->world, (double)options->deadline / (double)GW_SECOND, why);
        if (status) gw_fail(error, status, "transport=mpi: %s", why);
    }
    if (status) {
        gw_mpi_close(&m->base);
        return status;
    }
    for (int i = 0; i < MAILS; i++) gw_mpi_post_mail(m, &m->mails[i]);
    *out = &m->base;
    return GW_OK;
}
