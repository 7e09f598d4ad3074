/* control_wait.c - wait diagnosis: who waits for whom, and who is to blame. A rank may wait for several others at once,
 * but reports only one. It first reports any of them. A little later, when the others have reported too, it reports one
 * that does not wait itself. */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

static bool waits_itself(const gw_control *control, int rank) {
    const gw_control_member *who = &control->members[rank];
    return who->waits_for >= 0 || !who->in || who->left;
}

static int choose_awaited(const gw_control *control, const int *awaited, int count) {
    for (int i = 0; i < count; i++)
        if (!waits_itself(control, awaited[i])) return awaited[i];
    return count ? awaited[0] : -1;
}

void gw_control_waiting(gw_control *control, const int *awaited, int count, const char *what, gw_time deadline,
                        gw_time now) {
    bool waits = what[0] != 0;
    int first = count ? awaited[0] : -1;
    if (count) memcpy(control->awaited, awaited, (size_t)count * sizeof *awaited);
    control->awaited_count = count;
    control->members[control->rank].waits_for = first;
    control->wait_began = waits ? now : 0;
    control->wait_deadline = deadline;
    control->wait_chosen = control->wait_reported = false;
    snprintf(control->wait_what, sizeof control->wait_what, "%s", what);
    gw_control_flood(control, GW_CONTROL_WAIT, first, what);
}

static void flood_chosen(gw_control *control) {
    int chosen = choose_awaited(control, control->awaited, control->awaited_count);
    control->wait_chosen = true;
    if (chosen == control->members[control->rank].waits_for) return;
    control->members[control->rank].waits_for = chosen;
    gw_control_flood(control, GW_CONTROL_WAIT, chosen, control->wait_what);
}

static bool silent(const gw_control *control, int rank, gw_time now) {
    const gw_control_member *who = &control->members[rank];
    return who->is_neighbour && now > who->heard_at + 3 * control->beat_every;
}

bool gw_control_hears(const gw_control *control, int rank, gw_time now) {
    return control->members[rank].is_neighbour && !silent(control, rank, now);
}

/* The waits form a cycle. The rank that blocks all others is one that some rank waits for, or one that is silent. */
static int root_of_cycle(const gw_control *control, int awaited, gw_time now) {
    for (int r = 0; r < control->world; r++) {
        int root = control->members[r].waits_for;
        if (root >= 0 && root != control->rank && !waits_itself(control, root)) return root;
    }
    for (int r = 0; r < control->world; r++)
        if (!waits_itself(control, r) && silent(control, r, now)) return r;
    return awaited;
}

/* Follows the waits from `awaited` to a rank that waits for nobody. */
static int root_of_wait(const gw_control *control, int awaited, gw_time now) {
    int rank = awaited;
    for (int steps = 0; steps < control->world; steps++) {
        int next = control->members[rank].waits_for;
        if (next < 0) return rank;
        if (next == control->rank || next == awaited) break;
        rank = next;
    }
    return root_of_cycle(control, awaited, now);
}

static const char *alive_text(const gw_control *control, int rank, gw_time now, char text[80]) {
    const gw_control_member *who = &control->members[rank];
    gw_time silent = now > who->heard_at ? now - who->heard_at : 0;
    bool beats = silent <= 3 * control->beat_every;
    if (!who->is_neighbour) snprintf(text, 80, "it has not been reported dead");
    else
        snprintf(text, 80, beats ? "it is alive (heard %.1f s ago), but late" : "nothing heard of it for %.1f s",
                 (double)silent / (double)GW_SECOND);
    return text;
}

/* The lowest of the waiting ranks reports for all. */
static bool reports_for_all(const gw_control *control) {
    for (int r = 0; r < control->rank; r++)
        if (control->members[r].waits_for >= 0 && !control->members[r].lost) return false;
    return true;
}

/* Until choose_at, the other ranks report a rank that they wait for. Until report_at, they report the rank that they
 * choose. */
static gw_time choose_at(const gw_control *control) { return control->wait_began + control->wait_deadline / 24; }
static gw_time report_at(const gw_control *control) { return control->wait_began + control->wait_deadline / 12; }

void gw_control_report_slow(gw_control *control, gw_time now) {
    int awaited = control->members[control->rank].waits_for;
    if (!control->wait_began) return;
    if (!control->wait_chosen && now >= choose_at(control)) {
        flood_chosen(control);
        return;
    }
    if (control->wait_reported || awaited < 0 || now < report_at(control)) return;
    control->wait_reported = true;
    if (!reports_for_all(control)) return;
    int slow = root_of_wait(control, awaited, now);
    char text[GW_CONTROL_TEXT + 256], alive[80];
    snprintf(text, sizeof text, "rank %d on %s is slow: rank %d has waited %.1f s for %s; %s; the deadline is %.1f s",
             slow, control->events.host_name(control->events.ctx, slow), control->rank,
             (double)(now - control->wait_began + control->wait_deadline / 3) / (double)GW_SECOND, control->wait_what,
             alive_text(control, slow, now, alive), (double)control->wait_deadline / (double)GW_SECOND);
    control->events.slow(control->events.ctx, text);
}

void gw_control_overdue(gw_control *control, const int *awaited, int count, const char *what, gw_time deadline,
                        gw_time now) {
    int chosen = choose_awaited(control, awaited, count);
    int blamed = chosen < 0 ? -1 : root_of_wait(control, chosen, now);
    char alive[80];
    gw_error error = {.rank = -1};
    if (blamed < 0)
        gw_fail(&error, GW_TIMEOUT, "no progress for %.1f s (the deadline) on rank %d on %s: %s",
                (double)deadline / (double)GW_SECOND, control->rank,
                control->events.host_name(control->events.ctx, control->rank), what);
    else
        gw_fail_rank(&error, GW_TIMEOUT, blamed,
                     "rank %d on %s held up the job for %.1f s (the deadline): rank %d on %s waited for %s; %s", blamed,
                     control->events.host_name(control->events.ctx, blamed), (double)deadline / (double)GW_SECOND,
                     control->rank, control->events.host_name(control->events.ctx, control->rank), what,
                     alive_text(control, blamed, now, alive));
    gw_control_abort(control, &error);
}

gw_time gw_control_next_report(const gw_control *control) {
    if (!control->wait_began || control->wait_reported) return UINT64_MAX;
    return control->wait_chosen ? report_at(control) : choose_at(control);
}
