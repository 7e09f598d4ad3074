/* job_news.c - what the hosts of a job report: output, ends, and that they are done. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launch/job_inside.h"
#include "launch/order.h"

/* Servers speak under their name, whether or not ranks have a prefix. */
static void print_lines(gw_job *j, int rank, int stream, const char *data, size_t bytes) {
    gw_console_lines(&j->console, &j->lines[rank][stream], stream, gw_job_serves(j, rank) ? -1 : rank,
                     gw_rank_name(rank, j->workers).text, data, bytes);
}

static void flush_lines(gw_job *j, int rank) {
    for (int stream = 0; stream < 2; stream++)
        gw_console_flush_line(&j->console, &j->lines[rank][stream], stream, gw_job_serves(j, rank) ? -1 : rank,
                              gw_rank_name(rank, j->workers).text);
}

/* Workers cannot go on without one of their servers, as they do without each other. */
static void add_remedy(gw_verdict *verdict) {
    size_t used = strlen(verdict->text);
    snprintf(verdict->text + used, sizeof verdict->text - used,
             ", and no other takes its place: --restarts N starts a server again");
}

static void rank_exited(gw_job *j, gw_outpost *outpost, const gw_wire_frame *frame) {
    int rank = outpost->host->first_rank + frame->rank;
    int status = (int)gw_wire_number(frame, 0);
    flush_lines(j, rank);
    if (gw_job_ending(j)) return;
    if (gw_job_serves(j, rank) && j->workers_left == 0) return; /* its work is done, however it ended */
    if (j->options->elastic && gw_job_replace(j, outpost, rank, frame)) return;
    if (!gw_job_serves(j, rank) && status == 0 && --j->workers_left == 0) gw_job_workers_over(j);
    gw_rank_text who = gw_rank_name(rank, j->workers);
    gw_verdict_weight known = j->verdict.weight;
    if (!gw_verdict_exited(&j->verdict, who.text, outpost->host->name, status, gw_wire_number(frame, 1))) return;
    if (j->options->elastic && gw_job_serves(j, rank) && j->verdict.weight > known) add_remedy(&j->verdict);
    gw_job_settle(j);
}

static void host_done(gw_job *j, gw_outpost *outpost, int left) {
    char text[GW_ERROR_TEXT_BYTES];
    outpost->done = true;
    if (left == 0) return;
    snprintf(text, sizeof text, "%d processes on host %s could not be ended", left, outpost->host->name);
    gw_console_say(&j->console, text);
}

static char *const *argv_of(const gw_job *j, const gw_host *host) {
    return host->serves ? j->options->server_argv : j->options->argv;
}

static void take_frame(gw_job *j, gw_outpost *outpost, const gw_wire_frame *frame) {
    int rank = outpost->host->first_rank + frame->rank, stream = frame->detail - 1;
    switch (frame->kind) {
    case GW_WIRE_OUTPUT:
        if (stream != 0 && stream != 1) return;
        print_lines(j, rank, stream, frame->payload, frame->bytes);
        return;
    case GW_WIRE_EXITED:
        rank_exited(j, outpost, frame);
        return;
    case GW_WIRE_NO_START:
        if (gw_job_ending(j)) return;
        gw_verdict_no_start(&j->verdict, gw_rank_name(rank, j->workers).text, outpost->host->name,
                            (gw_start_step)frame->detail, (int)gw_wire_number(frame, 0),
                            argv_of(j, outpost->host)[0], j->options->directory);
        gw_job_end(j, SIGKILL, 0);
        return;
    case GW_WIRE_DONE:
        host_done(j, outpost, (int)gw_wire_number(frame, 0));
        return;
    case GW_WIRE_HUNG:
        gw_job_rank_hung(j, outpost, frame);
        return;
    case GW_WIRE_ASKS:
        if (j->options->elastic)
            gw_elastic_asked(j->options->elastic, rank, (int)gw_wire_number(frame, 0),
                             (int)gw_wire_number(frame, 1) - 1);
        return;
    case GW_WIRE_MET:
        gw_job_met(j, rank, frame);
        return;
    case GW_WIRE_PONG:
    case GW_WIRE_PING:
    case GW_WIRE_PAUSE:
    case GW_WIRE_KILL:
    case GW_WIRE_ORDER:
    case GW_WIRE_END:
    case GW_WIRE_ROLL:
    case GW_WIRE_AGAIN:
    case GW_WIRE_REST:
        return;
    }
}

static void take_frames(gw_job *j, gw_outpost *outpost) {
    gw_wire_frame frame;
    for (;;) {
        gw_wire_state state = gw_wire_peek(&outpost->in, &frame);
        if (state == GW_WIRE_PARTIAL) return;
        if (state == GW_WIRE_BROKEN || frame.rank >= outpost->host->ranks) {
            gw_outpost_close_fd(&outpost->from); /* no supervisor of ours; ends as a lost host */
            outpost->closed_at = gw_clock_now();
            return;
        }
        take_frame(j, outpost, &frame);
        gw_wire_take(&outpost->in, &frame);
    }
}

static void give_order(gw_job *j, gw_outpost *outpost) {
    const gw_host *host = outpost->host;
    int silence_ms = (int)(j->options->silence / GW_MILLISECOND);
    gw_order order = {
        .first_rank = host->first_rank,
        .local_ranks = host->ranks,
        .world = j->workers,
        .group = (int)(outpost - j->outposts),
        .listen_fd = host->first_rank == 0 ? j->options->outpost.listen_fd : -1,
        .elastic = j->options->elastic != NULL,
        .heartbeat_ms = silence_ms,
        .silence_ms = host->local ? 0 : silence_ms, /* here its pipe tells */
        .grace_ms = (int)(j->options->grace / GW_MILLISECOND),
        .directory = j->options->directory,
        .argv = argv_of(j, host),
        .env = j->options->env,
    };
    gw_buffer bytes = {0};
    gw_order_pack(&order, &bytes);
    gw_wire_put(&outpost->out, GW_WIRE_ORDER, 0, 0, gw_buffer_head(&bytes), (uint32_t)gw_buffer_size(&bytes));
    gw_buffer_free(&bytes);
    outpost->ordered = true;
    gw_job_heard(outpost);
}

/* Nothing is started before every host has answered. */
static void start_when_all_greeted(gw_job *j) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (!j->outposts[i].greeted) return;
    j->greet_until = GW_NEVER;
    for (int i = 0; i < gw_job_hosts(j); i++) give_order(j, &j->outposts[i]);
}

void gw_job_hear(gw_job *j, gw_outpost *outpost) {
    gw_job_heard(outpost);
    if (gw_buffer_read(&outpost->in, outpost->from) == 0) {
        gw_outpost_close_fd(&outpost->from);
        outpost->closed_at = gw_clock_now();
    }
    if (!outpost->greeted) {
        gw_outpost_greet(outpost, &j->console);
        if (outpost->greeted && !gw_job_ending(j)) start_when_all_greeted(j);
    }
    if (outpost->greeted) take_frames(j, outpost);
}

void gw_job_hear_errors(gw_job *j, gw_outpost *outpost) {
    gw_buffer text = {0};
    long bytes;
    while ((bytes = gw_buffer_read(&text, outpost->errors)) > 0) continue;
    if (gw_buffer_size(&text))
        gw_console_lines(&j->console, &outpost->error_line, 1, -1, outpost->host->name, gw_buffer_head(&text),
                         gw_buffer_size(&text));
    if (bytes == 0) gw_outpost_close_fd(&outpost->errors);
    gw_buffer_free(&text);
}

