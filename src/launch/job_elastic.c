/* job_elastic.c - how an elastic job goes on when ranks have ended or a host was lost. */
#include <stdio.h>
#include <string.h>

#include "launch/family.h"
#include "launch/job_inside.h"

enum { EXIT_USAGE = 2 };

static const gw_time servers_budget = GW_SECOND; /* for servers to end after the last worker has */
static const gw_time orphans_budget = GW_SECOND; /* for the kernel to end what a lost supervisor left behind */

void gw_job_tell_all(gw_job *j, gw_wire_kind kind, const char *text, size_t bytes) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (j->outposts[i].ordered && !j->outposts[i].over)
            gw_wire_put(&j->outposts[i].out, kind, 0, 0, text, (uint32_t)bytes);
}

static void call_roll(gw_job *j) {
    char text[GW_ROLL_TEXT];
    gw_job_tell_all(j, GW_WIRE_ROLL, text, gw_roll_write(&j->options->elastic->roll, text));
}

void gw_job_met(gw_job *j, int rank, const gw_wire_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    if (elastic && gw_elastic_met(elastic, rank, frame->payload, frame->bytes)) call_roll(j);
}

void gw_job_workers_over(gw_job *j) {
    if (j->options->elastic) gw_job_tell_all(j, GW_WIRE_REST, NULL, 0);
    j->workers_left = 0;
    j->servers_until = gw_clock_now() + servers_budget;
}

static void say_fate(gw_job *j, const char *why, gw_elastic_fate fate, gw_time backoff) {
    const gw_elastic *elastic = j->options->elastic;
    char text[GW_ERROR_TEXT_BYTES + 128];
    if (fate == GW_ELASTIC_AGAIN)
        snprintf(text, sizeof text, "%s; it is started again in %.1f s (%d more may be)", why,
                 (double)backoff / (double)GW_SECOND, elastic->restarts);
    else
        snprintf(text, sizeof text, "%s; the other %d go on without it", why, elastic->roll.world);
    gw_console_say(&j->console, text);
}

/* An elastic job goes on. A rank that was called wrongly would be so again. */
bool gw_job_replace(gw_job *j, gw_outpost *outpost, int rank, const gw_wire_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    gw_verdict why = {0};
    int status = (int)gw_wire_number(frame, 0);
    gw_time up = gw_wire_number(frame, 1) * GW_MILLISECOND, backoff = 0;
    gw_rank_text who = gw_rank_name(rank, j->workers);
    bool well = !gw_verdict_exited(&why, who.text, outpost->host->name, status, gw_wire_number(frame, 1));
    if (!well && why.code == EXIT_USAGE) return false;
    gw_elastic_fate fate = gw_elastic_ended(elastic, rank, well);
    if (fate == GW_ELASTIC_FINISHED && gw_elastic_over(elastic)) gw_job_workers_over(j);
    if (fate == GW_ELASTIC_FINISHED) return true;
    if (fate == GW_ELASTIC_NOBODY || fate == GW_ELASTIC_UNSERVED) return false;
    if (fate == GW_ELASTIC_AGAIN) {
        backoff = gw_elastic_backoff(elastic, rank, up);
        j->again_at[rank] = gw_clock_now() + backoff;
    }
    say_fate(j, why.text, fate, backoff);
    call_roll(j);
    return true;
}

/* Where the supervisor ran on this machine, what it leaves behind is ours. */
static void end_orphans(const gw_job *j, const gw_outpost *outpost) {
    char host[32];
    char *const *token = j->options->env;
    while (*token && strncmp(*token, "GRADWIRE_TOKEN=", 15) != 0) token++;
    if (!*token) return;
    snprintf(host, sizeof host, "GROUP_RANK=%d", (int)(outpost - j->outposts));
    gw_family_end_marked((const char *const[]){*token, host, NULL}, orphans_budget);
}

bool gw_job_go_on_without(gw_job *j, const gw_outpost *outpost, const gw_verdict *why) {
    gw_elastic *elastic = j->options->elastic;
    const gw_host *host = outpost->host;
    for (int rank = host->first_rank; rank < host->first_rank + host->ranks; rank++) j->again_at[rank] = GW_NEVER;
    end_orphans(j, outpost);
    gw_elastic_fate fate = gw_elastic_host_lost(elastic, host);
    if (fate == GW_ELASTIC_FINISHED) return true;
    if (fate != GW_ELASTIC_WITHOUT) return false;
    say_fate(j, why->text, fate, 0);
    call_roll(j);
    return true;
}

static gw_outpost *outpost_of(gw_job *j, int rank) {
    int i = 0;
    while (rank >= j->outposts[i].host->first_rank + j->outposts[i].host->ranks) i++;
    return &j->outposts[i];
}

static void kill_late_rank(gw_job *j, int rank) {
    gw_outpost *outpost = outpost_of(j, rank);
    char text[GW_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s on host %s does not come to gw_regroup, where the others wait. It is killed "
             "(--no-heartbeat turns this off)", gw_rank_name(rank, j->workers).text, outpost->host->name);
    gw_console_say(&j->console, text);
    gw_wire_put(&outpost->out, GW_WIRE_KILL, 0, rank - outpost->host->first_rank, NULL, 0);
}

void gw_job_answer_ranks(gw_job *j, gw_time now) {
    int which = -1;
    gw_elastic *elastic = j->options->elastic;
    gw_elastic_answer answer = elastic ? gw_elastic_answer_all(elastic, now, &which) : GW_ELASTIC_NOTHING;
    if (answer == GW_ELASTIC_CALLED) call_roll(j);
    if (answer == GW_ELASTIC_LATE) kill_late_rank(j, which);
    if (answer != GW_ELASTIC_CUT || j->outposts[which].cut) return;
    j->outposts[which].cut = true;
    gw_job_give_up(&j->outposts[which]);
}

gw_time gw_job_next_start(const gw_job *j) {
    gw_time next = GW_NEVER;
    for (int rank = 0; rank < j->world; rank++)
        if (j->again_at[rank] < next) next = j->again_at[rank];
    return next;
}

void gw_job_start_again(gw_job *j, gw_time now) {
    if (gw_job_ending(j) || now < gw_job_next_start(j)) return;
    for (int i = 0; i < gw_job_hosts(j); i++) {
        gw_outpost *outpost = &j->outposts[i];
        for (int local = 0; local < outpost->host->ranks; local++) {
            gw_time *at = &j->again_at[outpost->host->first_rank + local];
            if (now < *at) continue;
            *at = GW_NEVER;
            gw_wire_put(&outpost->out, GW_WIRE_AGAIN, 0, local, NULL, 0);
        }
    }
}
