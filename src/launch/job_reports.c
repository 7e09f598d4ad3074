/* job_reports.c - handles the reports of the hosts: output, exits, heartbeat problems, addresses, completion. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launch/host_spec.h"
#include "launch/job_internal.h"

/* Lines of servers always have a prefix, even if those of ranks have none. */
static void print_lines(gw_job *j, int rank, int stream, const char *data, size_t bytes) {
    gw_console_lines(&j->console, &j->lines[rank][stream], stream, gw_job_serves(j, rank) ? -1 : rank,
                     gw_rank_name(rank, j->workers).text, data, bytes);
}

static void flush_lines(gw_job *j, int rank) {
    for (int stream = 0; stream < 2; stream++)
        gw_console_flush_line(&j->console, &j->lines[rank][stream], stream, gw_job_serves(j, rank) ? -1 : rank,
                              gw_rank_name(rank, j->workers).text);
}

/* Workers can go on without other workers, but not without a server. */
static void add_remedy(gw_verdict *verdict) {
    size_t used = strlen(verdict->text);
    snprintf(verdict->text + used, sizeof verdict->text - used,
             ", and no other takes its place: --restarts N starts a server again");
}

static void rank_exited(gw_job *j, gw_host_connection *connection, const gw_launch_frame *frame) {
    int rank = connection->host->first_rank + frame->rank;
    int status = (int)gw_launch_number(frame, 0);
    flush_lines(j, rank);
    if (gw_job_ending(j)) return;
    if (gw_job_serves(j, rank) && j->workers_left == 0) return; /* its work is done; its status does not matter */
    if (j->options->elastic && gw_job_replace(j, connection, rank, frame)) return;
    if (!gw_job_serves(j, rank) && status == 0 && --j->workers_left == 0) gw_job_workers_over(j);
    gw_rank_text who = gw_rank_name(rank, j->workers);
    gw_verdict_weight known = j->verdict.weight;
    if (!gw_verdict_exited(&j->verdict, who.text, connection->host->name, status, gw_launch_number(frame, 1))) return;
    if (j->options->elastic && gw_job_serves(j, rank) && j->verdict.weight > known) add_remedy(&j->verdict);
    gw_job_settle(j);
}

static void host_done(gw_job *j, gw_host_connection *connection, int left) {
    char text[GW_ERROR_TEXT_BYTES];
    connection->done = true;
    if (left == 0) return;
    snprintf(text, sizeof text, "%d processes on host %s could not be ended", left, connection->host->name);
    gw_console_say(&j->console, text);
}

static char *const *argv_of(const gw_job *j, const gw_host *host) {
    return host->serves ? j->options->server_argv : j->options->argv;
}

static void take_frame(gw_job *j, gw_host_connection *connection, const gw_launch_frame *frame) {
    int rank = connection->host->first_rank + frame->rank, stream = frame->detail - 1;
    switch (frame->kind) {
    case GW_LAUNCH_OUTPUT:
        if (stream != 0 && stream != 1) return;
        print_lines(j, rank, stream, frame->payload, frame->bytes);
        return;
    case GW_LAUNCH_EXITED: rank_exited(j, connection, frame); return;
    case GW_LAUNCH_NO_START:
        if (gw_job_ending(j)) return;
        gw_verdict_no_start(&j->verdict, gw_rank_name(rank, j->workers).text, connection->host->name,
                            (gw_start_step)frame->detail, (int)gw_launch_number(frame, 0),
                            argv_of(j, connection->host)[0], j->options->directory);
        gw_job_end(j, SIGKILL, 0);
        return;
    case GW_LAUNCH_DONE: host_done(j, connection, (int)gw_launch_number(frame, 0)); return;
    case GW_LAUNCH_HUNG: gw_job_rank_hung(j, connection, frame); return;
    case GW_LAUNCH_REGROUPS:
        if (j->options->elastic)
            gw_elastic_wants_generation(j->options->elastic, rank, (int)gw_launch_number(frame, 0),
                                        (int)gw_launch_number(frame, 1) - 1);
        return;
    case GW_LAUNCH_ADDRESS: gw_job_take_address(j, rank, frame); return;
    case GW_LAUNCH_PONG:
    case GW_LAUNCH_PING:
    case GW_LAUNCH_PAUSE:
    case GW_LAUNCH_KILL:
    case GW_LAUNCH_HOST_SPEC:
    case GW_LAUNCH_END:
    case GW_LAUNCH_ROSTER:
    case GW_LAUNCH_RESTART:
    case GW_LAUNCH_NO_MORE_STARTS: return;
    }
}

static void take_frames(gw_job *j, gw_host_connection *connection) {
    gw_launch_frame frame;
    for (;;) {
        gw_launch_state state = gw_launch_peek(&connection->in, &frame);
        if (state == GW_LAUNCH_PARTIAL) return;
        if (state == GW_LAUNCH_BROKEN || frame.rank >= connection->host->ranks) {
            gw_host_connection_close_fd(&connection->from); /* not our supervisor: treated as a lost host */
            connection->closed_at = gw_clock_now();
            return;
        }
        take_frame(j, connection, &frame);
        gw_launch_take(&connection->in, &frame);
    }
}

static void send_spec(gw_job *j, gw_host_connection *connection) {
    const gw_host *host = connection->host;
    int silence_ms = (int)(j->options->silence / GW_MILLISECOND);
    gw_host_spec spec = {
        .first_rank = host->first_rank,
        .local_ranks = host->ranks,
        .world = j->workers,
        .group = (int)(connection - j->connections),
        .listen_fd = host->first_rank == 0 ? j->options->host_connection.listen_fd : -1,
        .elastic = j->options->elastic != NULL,
        .heartbeat_ms = silence_ms,
        .silence_ms = host->local ? 0 : silence_ms, /* on this machine, the pipe of a dead launcher closes */
        .grace_ms = (int)(j->options->grace / GW_MILLISECOND),
        .directory = j->options->directory,
        .argv = argv_of(j, host),
        .env = j->options->env,
    };
    gw_buffer bytes = {0};
    gw_host_spec_pack(&spec, &bytes);
    gw_launch_put(&connection->out, GW_LAUNCH_HOST_SPEC, 0, 0, gw_buffer_head(&bytes),
                  (uint32_t)gw_buffer_size(&bytes));
    gw_buffer_free(&bytes);
    connection->spec_sent = true;
    gw_job_host_answered(connection);
}

/* No host starts ranks before every host has answered. */
static void start_when_all_greeted(gw_job *j) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (!j->connections[i].greeted) return;
    j->greet_until = GW_NEVER;
    for (int i = 0; i < gw_job_hosts(j); i++) send_spec(j, &j->connections[i]);
}

void gw_job_read_frames(gw_job *j, gw_host_connection *connection) {
    gw_job_host_answered(connection);
    if (gw_buffer_read(&connection->in, connection->from) == 0) {
        gw_host_connection_close_fd(&connection->from);
        connection->closed_at = gw_clock_now();
    }
    if (!connection->greeted) {
        gw_host_connection_greet(connection, &j->console);
        if (connection->greeted && !gw_job_ending(j)) start_when_all_greeted(j);
    }
    if (connection->greeted) take_frames(j, connection);
}

void gw_job_read_errors(gw_job *j, gw_host_connection *connection) {
    gw_buffer text = {0};
    long bytes;
    while ((bytes = gw_buffer_read(&text, connection->errors)) > 0) continue;
    if (gw_buffer_size(&text))
        gw_console_lines(&j->console, &connection->error_line, 1, -1, connection->host->name, gw_buffer_head(&text),
                         gw_buffer_size(&text));
    if (bytes == 0) gw_host_connection_close_fd(&connection->errors);
    gw_buffer_free(&text);
}
