/* mpi_end.c - how what is under way comes to an end: reset, and leaving the job. */
#include "transport/mpi_inside.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE (100 * GW_MILLISECOND)  /* how long reset() waits for what cannot be taken back */
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

/* Takes back every receive. False: some cannot be, and MPI must not be called again. */
static bool take_back(mpi *m) {
    for (int i = 0; i < MAILS; i++)
        if (m->mails[i].posted) m->table->cancel(&m->mails[i].request);
    for (parcel *p = m->parcels; p; p = p->next) m->table->cancel(&p->request);
    bool done = quiet(m);
    for (gw_time until = gw_clock_now() + SETTLE; !done && gw_clock_now() < until;) {
        for (letter *l = m->letters; l; l = l->next) gw_mpi_letter_gone(m, l); /* a peer may wait for the rest of it */
        usleep(50);
        done = quiet(m);
    }
    return done;
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
    if (!m->stuck && !take_back(m)) {
        m->stuck = true;
        m->table->abandon();
        gw_log(GW_LOG_WARN, m->rank, "MPI did not let go of what was under way: it is not used any more");
    }
    if (!m->stuck) set_letters_aside(m);
    memset(m->peers, 0, (size_t)m->world * sizeof *m->peers);
    m->unsettled = false;
    m->tag = 2 * (int)(generation % (uint32_t)(m->table->tag_max(m->mpi) / 2));
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
    if (m->timer >= 0) close(m->timer);
    free(m->peers);
    free(m);
}
