/* job_elastic.c - continues an elastic job after ranks have ended or a host was lost. */
#include <stdio.h>
#include <string.h>

#include "launch/job_internal.h"
#include "launch/subreaper.h"

enum { EXIT_USAGE = 2 };

static const gw_time servers_budget = GW_SECOND; /* for servers to exit after the last worker */
static const gw_time orphans_budget = GW_SECOND; /* for killed children of a lost supervisor to die */

void gw_job_send_all(gw_job *j, gw_launch_kind kind, const char *text, size_t bytes) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (j->connections[i].spec_sent && !j->connections[i].over)
            gw_launch_put(&j->connections[i].out, kind, 0, 0, text, (uint32_t)bytes);
}

static void send_roster(gw_job *j) {
    char text[GW_ROSTER_TEXT];
    gw_job_send_all(j, GW_LAUNCH_ROSTER, text, gw_roster_write(&j->options->elastic->roster, text));
}

void gw_job_take_address(gw_job *j, int rank, const gw_launch_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    if (elastic && gw_elastic_set_address(elastic, rank, frame->payload, frame->bytes)) send_roster(j);
}

void gw_job_workers_over(gw_job *j) {
    if (j->options->elastic) gw_job_send_all(j, GW_LAUNCH_NO_MORE_STARTS, NULL, 0);
    j->workers_left = 0;
    j->servers_until = gw_clock_now() + servers_budget;
}

static void say_fate(gw_job *j, const char *why, gw_elastic_fate fate, gw_time backoff) {
    const gw_elastic *elastic = j->options->elastic;
    char text[GW_ERROR_TEXT_BYTES + 128];
    if (fate == GW_ELASTIC_RESTART)
        snprintf(text, sizeof text, "%s; it is started again in %.1f s (%d more may be)", why,
                 (double)backoff / (double)GW_SECOND, elastic->restarts);
    else snprintf(text, sizeof text, "%s; the other %d go on without it", why, elastic->roster.world);
    gw_console_say(&j->console, text);
}

/* A rank that exited with a usage error is not restarted: it would fail again. */
bool gw_job_replace(gw_job *j, gw_host_connection *connection, int rank, const gw_launch_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    gw_verdict why = {0};
    int status = (int)gw_launch_number(frame, 0);
    gw_time up = gw_launch_number(frame, 1) * GW_MILLISECOND, backoff = 0;
    gw_rank_text who = gw_rank_name(rank, j->workers);
    bool well = !gw_verdict_exited(&why, who.text, connection->host->name, status, gw_launch_number(frame, 1));
    if (!well && why.code == EXIT_USAGE) return false;
    gw_elastic_fate fate = gw_elastic_ended(elastic, rank, well);
    if (fate == GW_ELASTIC_FINISHED && gw_elastic_over(elastic)) gw_job_workers_over(j);
    if (fate == GW_ELASTIC_FINISHED) return true;
    if (fate == GW_ELASTIC_NOBODY || fate == GW_ELASTIC_UNSERVED) return false;
    if (fate == GW_ELASTIC_RESTART) {
        backoff = gw_elastic_backoff(elastic, rank, up);
        j->restart_at[rank] = gw_clock_now() + backoff;
    }
    say_fate(j, why.text, fate, backoff);
    send_roster(j);
    return true;
}

/* If the lost supervisor ran on this machine, the launcher has adopted its children and kills them. */
static void end_orphans(const gw_job *j, const gw_host_connection *connection) {
    char host[32];
    char *const *token = j->options->env;
    while (*token && strncmp(*token, "GRADWIRE_TOKEN=", 15) != 0) token++;
    if (!*token) return;
    snprintf(host, sizeof host, "GROUP_RANK=%d", (int)(connection - j->connections));
    gw_subreaper_kill_marked((const char *const[]){*token, host, NULL}, orphans_budget);
}

bool gw_job_go_on_without(gw_job *j, const gw_host_connection *connection, const gw_verdict *why) {
    gw_elastic *elastic = j->options->elastic;
    const gw_host *host = connection->host;
    for (int rank = host->first_rank; rank < host->first_rank + host->ranks; rank++) j->restart_at[rank] = GW_NEVER;
    end_orphans(j, connection);
    gw_elastic_fate fate = gw_elastic_host_lost(elastic, host);
    if (fate == GW_ELASTIC_FINISHED) return true;
    if (fate != GW_ELASTIC_WITHOUT) return false;
    say_fate(j, why->text, fate, 0);
    send_roster(j);
    return true;
}

static gw_host_connection *host_connection_of(gw_job *j, int rank) {
    int i = 0;
    while (rank >= j->connections[i].host->first_rank + j->connections[i].host->ranks) i++;
    return &j->connections[i];
}

static void kill_late_rank(gw_job *j, int rank) {
    gw_host_connection *connection = host_connection_of(j, rank);
    char text[GW_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "%s on host %s does not come to gw_regroup, where the others wait. It is killed "
             "(--no-heartbeat turns this off)",
             gw_rank_name(rank, j->workers).text, connection->host->name);
    gw_console_say(&j->console, text);
    gw_launch_put(&connection->out, GW_LAUNCH_KILL, 0, rank - connection->host->first_rank, NULL, 0);
}

void gw_job_answer_ranks(gw_job *j, gw_time now) {
    int which = -1;
    gw_elastic *elastic = j->options->elastic;
    gw_elastic_answer answer = elastic ? gw_elastic_answer_all(elastic, now, &which) : GW_ELASTIC_NOTHING;
    if (answer == GW_ELASTIC_REGROUPED) send_roster(j);
    if (answer == GW_ELASTIC_LATE) kill_late_rank(j, which);
    if (answer != GW_ELASTIC_CUT || j->connections[which].cut) return;
    j->connections[which].cut = true;
    gw_job_give_up(&j->connections[which]);
}

gw_time gw_job_next_restart(const gw_job *j) {
    gw_time next = GW_NEVER;
    for (int rank = 0; rank < j->world; rank++)
        if (j->restart_at[rank] < next) next = j->restart_at[rank];
    return next;
}

void gw_job_restart_ranks(gw_job *j, gw_time now) {
    if (gw_job_ending(j) || now < gw_job_next_restart(j)) return;
    for (int i = 0; i < gw_job_hosts(j); i++) {
        gw_host_connection *connection = &j->connections[i];
        for (int local = 0; local < connection->host->ranks; local++) {
            gw_time *at = &j->restart_at[connection->host->first_rank + local];
            if (now < *at) continue;
            *at = GW_NEVER;
            gw_launch_put(&connection->out, GW_LAUNCH_RESTART, 0, local, NULL, 0);
        }
    }
}
