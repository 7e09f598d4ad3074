/* mpi_drain.c - ending transfers that are under way: reset, and leaving the job.
 *
 * A send cannot be cancelled, and an MPI may read a large message from the sender's memory only when the receiver takes
 * it. If the sender's user has freed that memory after an error that the receiver has not noticed yet, the receiver's
 * MPI ends its process (UCX calls abort). So a rank that ends a generation sends END to every peer whose payloads it no
 * longer receives. Then it waits until every peer that may still read its messages has sent END or is gone. */
#include "transport/mpi/mpi_internal.h"

#include "base/fork_descriptors.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE (100 * GW_MILLISECOND)   /* reset() waits this long for receives that cannot be cancelled */
#define PATIENCE (500 * GW_MILLISECOND) /* and this long for peers that may still read its messages */
#define LINGER (1000 * GW_MILLISECOND)  /* close() waits this long for the last messages to leave */
#define GOODBYE (50 * GW_MILLISECOND)   /* and this long for the goodbyes of other ranks */

/* Tests all requests that write into memory; true when none is left. */
static bool quiet(mpi *m) {
    bool all = true;
    for (int i = 0; i < RECV_SLOTS; i++) {
        recv_slot *slot = &m->recv_slots[i];
        if (slot->posted && gw_mpi_test(m, &slot->request, m->rank)) slot->posted = false;
        all &= !slot->posted;
    }
    for (body_slot **at = &m->bodies; *at;) {
        body_slot *p = *at;
        if (!gw_mpi_test(m, &p->request, p->from)) {
            all = false;
            at = &p->next;
            continue;
        }
        *at = p->next;
        m->peers[p->from].bodies--;
        p->next = m->spare_bodies;
        m->spare_bodies = p;
    }
    m->last_body_slot = &m->bodies; /* valid only when all is true, and used only then */
    for (gw_native_task *task = m->tasks, *next; task; task = next) {
        next = task->next;
        if (gw_mpi_test(m, &task->request, m->rank)) gw_mpi_drop_task(m, task);
        else all = false;
    }
    return all;
}

static void cancel_receives(mpi *m) {
    for (int i = 0; i < RECV_SLOTS; i++)
        if (m->recv_slots[i].posted) m->table->cancel(&m->recv_slots[i].request);
    for (body_slot *p = m->bodies; p; p = p->next) m->table->cancel(&p->request);
}

/* ---- the end of a generation, together ---- */

/* Sends END to every peer from which no payload is expected any more. */
static void send_ends(mpi *m) {
    char why[GW_MPI_WHY_BYTES];
    for (int r = 0; r < m->world; r++) {
        peer *p = &m->peers[r];
        if (r == m->rank || p->end_sent || p->gone || p->bodies) continue;
        p->end_sent = true;
        send_slot *l = gw_mpi_new_send(m, r);
        if (!l) continue;
        l->head_done = m->table->send(m->mpi, l->bytes, 0, r, m->tag + END_TAG, &l->head, why) != GW_OK;
        l->next = m->sends;
        if (!m->sends) m->last_send_slot = &l->next;
        m->sends = l;
    }
}

typedef struct end_receive {
    gw_mpi_request request;
    bool posted;
    uint8_t nothing[1];
} end_receive;

static void receive_ends(mpi *m, end_receive *e) {
    char why[GW_MPI_WHY_BYTES];
    for (bool done = true; done;) {
        gw_mpi_message message = {.source = -1};
        if (!e->posted)
            e->posted = m->table->receive(m->mpi, e->nothing, 0, -1, m->tag + END_TAG, &e->request, why) == GW_OK;
        if (!e->posted) return;
        gw_status status = m->table->test(&e->request, &done, &message, why);
        e->posted = !done;
        if (done && !status && message.source >= 0) m->peers[message.source].end_received = true;
        if (status) return;
    }
}

/* Cancels the receive. It has no memory that MPI could write to. */
static void cancel_end_receive(mpi *m, end_receive *e) {
    char why[GW_MPI_WHY_BYTES];
    bool done = !e->posted;
    if (e->posted) m->table->cancel(&e->request);
    for (int i = 0; i < 10 && !done; i++) m->table->test(&e->request, &done, NULL, why);
}

/* Every lent payload has been read, or its receiver has ended the generation too, or is gone. */
static bool nobody_reads(mpi *m) {
    bool nobody = true;
    for (send_slot *l = m->sends; l; l = l->next)
        if (!gw_mpi_send_done(m, l) && !l->body_done) nobody &= m->peers[l->to].end_received || m->peers[l->to].gone;
    return nobody;
}

/* False: some receive cannot be cancelled, and MPI must not be called again. */
static bool end_generation(mpi *m) {
    bool own = false, others = false;
    gw_time begun = gw_clock_now(), now = begun;
    end_receive e = {.posted = false};
    cancel_receives(m);
    while ((!own && now < begun + SETTLE) || (!others && now < begun + PATIENCE)) {
        own = quiet(m);
        send_ends(m);
        receive_ends(m, &e);
        others = nobody_reads(m);
        if (!own || !others) usleep(50);
        now = gw_clock_now();
    }
    cancel_end_receive(m, &e);
    return own;
}

/* Unfinished sends of an earlier generation match no receive, so nobody reads their payloads. */
static void set_sends_aside(mpi *m) {
    while (m->sends) {
        send_slot *l = m->sends;
        m->sends = l->next;
        send_slot **list = gw_mpi_send_done(m, l) ? &m->spare_sends : &m->orphans;
        l->packet = NULL;
        l->next = *list;
        *list = l;
    }
    m->last_send_slot = &m->sends;
}

void gw_mpi_reset(gw_transport *transport, uint32_t generation) {
    mpi *m = (mpi *)transport;
    m->table->doubt();
    if (!m->stuck && !end_generation(m)) {
        m->stuck = true;
        m->table->abandon();
        gw_log(GW_LOG_WARN, m->rank, "MPI did not end the transfers that were running: gradwire no longer calls it");
    }
    if (!m->stuck) set_sends_aside(m);
    for (int r = 0; r < m->world; r++) m->peers[r] = (peer){.gone = m->peers[r].gone || m->peers[r].left};
    m->unsettled = false;
    m->tag = TAGS * (int)(generation % (uint32_t)(m->table->tag_max(m->mpi) / TAGS));
    m->next_recv_slot = 0;
    for (int i = 0; i < RECV_SLOTS && !m->stuck; i++) gw_mpi_post_receive(m, &m->recv_slots[i]);
}

/* The goodbye to all peers: an empty message. */
static void take_leave(mpi *m) {
    for (int r = 0; r < m->world; r++) {
        send_slot *l = r == m->rank || m->peers[r].left ? NULL : gw_mpi_new_send(m, r);
        if (l) gw_mpi_post_send(m, l, 0);
    }
    for (gw_time until = gw_clock_now() + LINGER; m->sends && gw_clock_now() < until;) {
        for (send_slot **at = &m->sends; *at;) {
            send_slot *l = *at;
            if (!gw_mpi_send_done(m, l)) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            free(l);
        }
        if (m->sends) usleep(50);
    }
    if (m->sends) m->table->abandon();
}

/* Cancels all posted receives: true when MPI has dropped them. */
static bool take_back(mpi *m) {
    cancel_receives(m);
    bool done = quiet(m);
    for (gw_time until = gw_clock_now() + SETTLE; !done && gw_clock_now() < until; done = quiet(m)) usleep(50);
    return done;
}

/* Receives the goodbyes of other ranks: some MPIs complain in MPI_Finalize about messages that were not received. */
static void hear_goodbyes(mpi *m) {
    bool all = false;
    for (gw_time until = gw_clock_now() + GOODBYE; !all && gw_clock_now() < until;) {
        while (gw_mpi_poll_receives(m)) {}
        all = true;
        for (int r = 0; r < m->world; r++) all &= r == m->rank || m->peers[r].left;
        if (!all) usleep(50);
    }
}

static void free_sends(send_slot *l) {
    while (l) {
        send_slot *next = l->next;
        if (l->head_done) free(l); /* else MPI still reads it */
        l = next;
    }
}

static void free_rest(mpi *m) {
    free_sends(m->sends);
    free_sends(m->orphans);
    free_sends(m->spare_sends);
    while (m->spare_bodies) {
        body_slot *next = m->spare_bodies->next;
        free(m->spare_bodies);
        m->spare_bodies = next;
    }
    while (m->spare_tasks) {
        gw_native_task *next = m->spare_tasks->next;
        free(m->spare_tasks);
        m->spare_tasks = next;
    }
}

void gw_mpi_close(gw_transport *transport) {
    mpi *m = (mpi *)transport;
    bool running = m->mpi && !m->stuck;
    m->closing = true;
    if (running) take_leave(m);
    if (running) hear_goodbyes(m);
    bool ours = !m->mpi || (running && take_back(m)); /* else MPI still uses the receive slots */
    if (!ours) m->table->abandon();
    free_rest(m);
    if (ours) free(m->recv_slots);
    if (m->mpi) m->table->close(m->mpi);
    gw_fd_close(m->timer);
    free(m->peers);
    free(m);
}
