/* job_elastic.c - how a job goes on when a rank has ended. */
#include <stdio.h>

#include "launch/job_inside.h"

enum { EXIT_USAGE = 2 };

static const gw_time servers_budget = GW_SECOND; /* for servers to end after the last worker has */

static void tell_all(gw_job *j, gw_wire_kind kind, const char *text, size_t bytes) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (j->outposts[i].ordered) gw_wire_put(&j->outposts[i].out, kind, 0, 0, text, (uint32_t)bytes);
}

static void call_roll(gw_job *j) {
    char text[GW_ROLL_TEXT];
    tell_all(j, GW_WIRE_ROLL, text, gw_roll_write(&j->options->elastic->roll, text));
}

void gw_job_workers_over(gw_job *j) {
    if (j->options->elastic) tell_all(j, GW_WIRE_REST, NULL, 0);
    j->workers_left = 0;
    j->servers_until = gw_clock_now() + servers_budget;
}

/* An elastic job goes on. A rank that was called wrongly would be so again. */
bool gw_job_replace(gw_job *j, gw_outpost *outpost, int rank, const gw_wire_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    gw_verdict why = {0};
    char text[GW_ERROR_TEXT_BYTES + 128];
    int status = (int)gw_wire_number(frame, 0);
    gw_rank_text who = gw_rank_name(rank, j->workers);
    bool well = !gw_verdict_exited(&why, who.text, outpost->host->name, status, gw_wire_number(frame, 1));
    if (!well && why.code == EXIT_USAGE) return false;
    gw_elastic_fate fate = gw_elastic_ended(elastic, rank, well);
    if (fate == GW_ELASTIC_FINISHED && gw_elastic_over(elastic)) gw_job_workers_over(j);
    if (fate == GW_ELASTIC_FINISHED) return true;
    if (fate == GW_ELASTIC_NOBODY || fate == GW_ELASTIC_UNSERVED) return false;
    if (fate == GW_ELASTIC_AGAIN)
        snprintf(text, sizeof text, "%s; it is started again (%d more may be)", why.text, elastic->restarts);
    else
        snprintf(text, sizeof text, "%s; the other %d go on without it", why.text, elastic->roll.world);
    gw_console_say(&j->console, text);
    call_roll(j);
    if (fate == GW_ELASTIC_AGAIN) gw_wire_put(&outpost->out, GW_WIRE_AGAIN, 0, frame->rank, NULL, 0);
    return true;
}

