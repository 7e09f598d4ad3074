/* job_host_liveness.c - detects lost hosts: the launcher pings each supervisor, which answers. A host that is silent
 * for too long is given up: its network is cut, or its machine or supervisor has stopped. */
#include <signal.h>
#include <stdio.h>

#include "launch/job_internal.h"

/* This machine is not watched: the launcher itself runs on it. */
static bool is_watched(const gw_job *j, const gw_host_connection *connection) {
    return j->options->silence && !connection->host->local && connection->spec_sent && !connection->done &&
           connection->from >= 0;
}

void gw_job_host_answered(gw_host_connection *connection) { gw_silence_heard(&connection->silence, gw_clock_now()); }

/* The launcher then continues as if the remote shell had ended. */
void gw_job_give_up(gw_host_connection *connection) {
    gw_host_connection_close_fd(&connection->from);
    connection->closed_at = gw_clock_now();
    if (connection->pid) kill(-connection->pid, SIGKILL); /* if it is the supervisor itself, its ranks die with it */
}

/* While the launcher's own output is blocked it reads nothing from hosts, so their silence does not count. */
static void check_host(gw_job *j, gw_host_connection *connection, bool reads, gw_time now) {
    if (!reads) gw_job_host_answered(connection);
    if (gw_silence_look(&connection->silence, now, j->options->silence) < j->options->silence) {
        if (!gw_buffer_size(&connection->out)) gw_launch_put(&connection->out, GW_LAUNCH_PING, 0, 0, NULL, 0);
        return;
    }
    connection->silent = true;
    gw_job_give_up(connection);
}

void gw_job_check_hosts(gw_job *j, bool reads, gw_time now) {
    if (gw_job_ending(j) || now < j->check_at) return;
    j->check_at = now + gw_silence_period(j->options->silence ? j->options->silence : 60 * GW_SECOND);
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (is_watched(j, &j->connections[i])) check_host(j, &j->connections[i], reads, now);
}

/* Ctrl-Z: the hosts must not mistake it for a lost launcher. The first ping afterwards ends the pause. */
void gw_job_pause(gw_job *j) {
    gw_job_send_all(j, GW_LAUNCH_PAUSE, NULL, 0);
    for (int i = 0; i < gw_job_hosts(j); i++) {
        struct pollfd to = {.fd = j->connections[i].to, .events = POLLOUT};
        if (poll(&to, 1, 0) > 0) gw_buffer_write(&j->connections[i].out, j->connections[i].to);
    }
    raise(SIGSTOP);
}

void gw_job_rank_hung(gw_job *j, const gw_host_connection *connection, const gw_launch_frame *frame) {
    char text[GW_ERROR_TEXT_BYTES];
    gw_rank_text who = gw_rank_name(connection->host->first_rank + frame->rank, j->workers);
    double seconds = gw_launch_number(frame, 0) / 1000.0;
    if (frame->detail)
        snprintf(text, sizeof text,
                 "%s on host %s has had no heartbeat for %.1f s, but a debugger holds it (process "
                 "%u): it is not ended, and the others wait for it",
                 who.text, connection->host->name, seconds, gw_launch_number(frame, 1));
    else
        snprintf(text, sizeof text,
                 "%s on host %s has had no heartbeat for %.1f s: it is stopped, or its progress "
                 "thread hangs. It is killed (--no-heartbeat turns this off)",
                 who.text, connection->host->name, seconds);
    gw_console_say(&j->console, text);
}
