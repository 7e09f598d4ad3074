/* mpi_end.c - how what is under way comes to an end: reset, and leaving the job.
 *
 * A send cannot be taken back, and MPIs read a large message out of the sender's memory when the receiver takes it: one
 * that hears of an error later than the sender, whose user has given that memory back, is ended by its own MPI (UCX
 * calls abort). So who ends a generation tells every peer from which it takes nothing more, and does not return before
 * the peers that may still read what it sent have said the same, or are gone. */
#include "transport/mpi_inside.h"

#include "base/descriptor.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE (100 * GW_MILLISECOND)  /* how long reset() waits for receives that cannot be taken back */
#define PATIENCE (500 * GW_MILLISECOND) /* and for peers that may still read what was sent */
#define LINGER (1000 * GW_MILLISECOND) /* how long close() waits for what was sent last */
#define GOODBYE (50 * GW_MILLISECOND)  /* and for others that leave too */

/* Tests everything that writes into memory; true when nothing is left. */
static bool quiet(mpi *m) {
    bool all = true;
    for (int i = 0; i < MAILS; i++) {
        mail *slot = &m->mails[i];
        if (slot->posted && gw_mpi_test(m, &slot->request, m->rank)) slot->posted = false;
        all &= !slot->posted;
    }
    for (parcel **at = &m->parcels; *at;) {
        parcel *p = *at;
        if (!gw_mpi_test(m, &p->request, p->from)) {
            all = false;
            at = &p->next;
            continue;
        }
        *at = p->next;
        m->peers[p->from].parcels--;
        p->next = m->spare_parcels;
        m->spare_parcels = p;
    }
    m->last_parcel = &m->parcels; /* valid only when all is true, and used only then */
    for (gw_native_task *task = m->tasks, *next; task; task = next) {
        next = task->next;
        if (gw_mpi_test(m, &task->request, m->rank)) gw_mpi_drop_task(m, task);
        else all = false;
    }
    return all;
}

static void cancel_receives(mpi *m) {
    for (int i = 0; i < MAILS; i++)
        if (m->mails[i].posted) m->table->cancel(&m->mails[i].request);
    for (parcel *p = m->parcels; p; p = p->next) m->table->cancel(&p->request);
}

/* ---- the end of a generation, together ---- */

/* To every peer from which nothing is awaited any more. */
static void tell_ends(mpi *m) {
    char why[GW_MPI_WHY_BYTES];
    for (int r = 0; r < m->world; r++) {
        peer *p = &m->peers[r];
        if (r == m->rank || p->told || p->gone || p->parcels) continue;
        p->told = true;
        letter *l = gw_mpi_letter(m, r);
        if (!l) continue;
        l->head_done = m->table->send(m->mpi, l->bytes, 0, r, m->tag + END_TAG, &l->head, why) != GW_OK;
        l->next = m->letters;
        if (!m->letters) m->last_letter = &l->next;
        m->letters = l;
    }
}

typedef struct ear {
    gw_mpi_request request;
    bool posted;
    uint8_t nothing[1];
} ear;

static void hear_ends(mpi *m, ear *e) {
    char why[GW_MPI_WHY_BYTES];
    for (bool done = true; done;) {
        gw_mpi_message message = {.source = -1};
        if (!e->posted)
            e->posted = m->table->receive(m->mpi, e->nothing, 0, -1, m->tag + END_TAG, &e->request, why) == GW_OK;
        if (!e->posted) return;
        gw_status status = m->table->test(&e->request, &done, &message, why);
        e->posted = !done;
        if (done && !status && message.source >= 0) m->peers[message.source].heard = true;
        if (status) return;
    }
}

/* An ear that nobody speaks to any more. It has no memory that MPI could write to. */
static void stop_hearing(mpi *m, ear *e) {
    char why[GW_MPI_WHY_BYTES];
    bool done = !e->posted;
    if (e->posted) m->table->cancel(&e->request);
    for (int i = 0; i < 10 && !done; i++) m->table->test(&e->request, &done, NULL, why);
}

/* What the letters lend has been read, or its receiver has ended the generation as well, or is no more. */
static bool nobody_reads(mpi *m) {
    bool nobody = true;
    for (letter *l = m->letters; l; l = l->next)
        if (!gw_mpi_letter_gone(m, l) && !l->body_done) nobody &= m->peers[l->to].heard || m->peers[l->to].gone;
    return nobody;
}

/* False: some receive cannot be taken back, and MPI must not be called again. */
static bool end_generation(mpi *m) {
    bool own = false, others = false;
    gw_time begun = gw_clock_now(), now = begun;
    ear e = {.posted = false};
    cancel_receives(m);
    while ((!own && now < begun + SETTLE) || (!others && now < begun + PATIENCE)) {
        own = quiet(m);
        tell_ends(m);
        hear_ends(m, &e);
        others = nobody_reads(m);
        if (!own || !others) usleep(50);
        now = gw_clock_now();
    }
    stop_hearing(m, &e);
    return own;
}

/* Unfinished sends of an earlier generation meet no receive, and so nothing reads what they lend. */
static void set_letters_aside(mpi *m) {
    while (m->letters) {
        letter *l = m->letters;
        m->letters = l->next;
        letter **list = gw_mpi_letter_gone(m, l) ? &m->spare_letters : &m->orphans;
        l->packet = NULL;
        l->next = *list;
        *list = l;
    }
    m->last_letter = &m->letters;
}

void gw_mpi_reset(gw_transport *transport, uint32_t generation) {
    mpi *m = (mpi *)transport;
    m->table->doubt();
    if (!m->stuck && !end_generation(m)) {
        m->stuck = true;
        m->table->abandon();
        gw_log(GW_LOG_WARN, m->rank, "MPI did not let go of what was under way: it is not used any more");
    }
    if (!m->stuck) set_letters_aside(m);
    for (int r = 0; r < m->world; r++) m->peers[r] = (peer){.gone = m->peers[r].gone || m->peers[r].left};
    m->unsettled = false;
    m->tag = TAGS * (int)(generation % (uint32_t)(m->table->tag_max(m->mpi) / TAGS));
    m->next_mail = 0;
    for (int i = 0; i < MAILS && !m->stuck; i++) gw_mpi_post_mail(m, &m->mails[i]);
}

/* The last word to everyone: a message of nothing. */
static void take_leave(mpi *m) {
    for (int r = 0; r < m->world; r++) {
        letter *l = r == m->rank || m->peers[r].left ? NULL : gw_mpi_letter(m, r);
        if (l) gw_mpi_post_letter(m, l, 0);
    }
    for (gw_time until = gw_clock_now() + LINGER; m->letters && gw_clock_now() < until;) {
        for (letter **at = &m->letters; *at;) {
            letter *l = *at;
            if (!gw_mpi_letter_gone(m, l)) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            free(l);
        }
        if (m->letters) usleep(50);
    }
    if (m->letters) m->table->abandon();
}

/* Receives that are still posted: true when MPI has given them up. */
static bool take_back(mpi *m) {
    cancel_receives(m);
    bool done = quiet(m);
    for (gw_time until = gw_clock_now() + SETTLE; !done && gw_clock_now() < until; done = quiet(m)) usleep(50);
    return done;
}

/* Goodbyes that nobody hears are found by some MPIs when they end, and complained about. */
static void hear_goodbyes(mpi *m) {
    bool all = false;
    for (gw_time until = gw_clock_now() + GOODBYE; !all && gw_clock_now() < until;) {
        while (gw_mpi_take_mail(m)) {}
        all = true;
        for (int r = 0; r < m->world; r++) all &= r == m->rank || m->peers[r].left;
        if (!all) usleep(50);
    }
}

static void free_letters(letter *l) {
    while (l) {
        letter *next = l->next;
        if (l->head_done) free(l); /* else MPI still reads it */
        l = next;
    }
}

static void free_rest(mpi *m) {
    free_letters(m->letters);
    free_letters(m->orphans);
    free_letters(m->spare_letters);
    while (m->spare_parcels) {
        parcel *next = m->spare_parcels->next;
        free(m->spare_parcels);
        m->spare_parcels = next;
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
    bool ours = !m->mpi || (running && take_back(m)); /* else MPI keeps the memory of receives */
    if (!ours) m->table->abandon();
    free_rest(m);
    if (ours) free(m->mails);
    if (m->mpi) m->table->close(m->mpi);
    gw_fd_close(m->timer);
    free(m->peers);
    free(m);
}
