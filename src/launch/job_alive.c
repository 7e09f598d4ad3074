/* job_alive.c - whether the hosts of a job are there: each is sent a ping now and then, and answers. A host that is
 * silent for too long is lost: its link is cut, or its machine or supervisor is stopped. */
#include <signal.h>
#include <stdio.h>

#include "launch/job_inside.h"

/* This machine is not lost as long as the launcher runs on it. */
static bool is_watched(const gw_job *j, const gw_outpost *outpost) {
    return j->options->silence && !outpost->host->local && outpost->ordered && !outpost->done && outpost->from >= 0;
}

void gw_job_heard(gw_outpost *outpost) { gw_silence_heard(&outpost->silence, gw_clock_now()); }

/* What happens then is what happens when the remote shell ends. */
void gw_job_give_up(gw_outpost *outpost) {
    gw_outpost_close_fd(&outpost->from);
    outpost->closed_at = gw_clock_now();
    if (outpost->pid) kill(-outpost->pid, SIGKILL); /* where that is the supervisor it takes its ranks along */
}

/* Where the launcher does not read, because its own output is not read, it hears nothing. */
static void look_at_host(gw_job *j, gw_outpost *outpost, bool reads, gw_time now) {
    if (!reads) gw_job_heard(outpost);
    if (gw_silence_look(&outpost->silence, now, j->options->silence) < j->options->silence) {
        if (!gw_buffer_size(&outpost->out)) gw_wire_put(&outpost->out, GW_WIRE_PING, 0, 0, NULL, 0);
        return;
    }
    outpost->silent = true;
    gw_job_give_up(outpost);
}

void gw_job_look_at_hosts(gw_job *j, bool reads, gw_time now) {
    if (gw_job_ending(j) || now < j->look_at) return;
    j->look_at = now + gw_silence_period(j->options->silence ? j->options->silence : 60 * GW_SECOND);
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (is_watched(j, &j->outposts[i])) look_at_host(j, &j->outposts[i], reads, now);
}

/* Ctrl-Z: the hosts must not take it for the end of the launcher. The first ping tells them that it goes on. */
void gw_job_pause(gw_job *j) {
    gw_job_tell_all(j, GW_WIRE_PAUSE, NULL, 0);
    for (int i = 0; i < gw_job_hosts(j); i++) {
        struct pollfd to = {.fd = j->outposts[i].to, .events = POLLOUT};
        if (poll(&to, 1, 0) > 0) gw_buffer_write(&j->outposts[i].out, j->outposts[i].to);
    }
    raise(SIGSTOP);
}

void gw_job_rank_hung(gw_job *j, const gw_outpost *outpost, const gw_wire_frame *frame) {
    char text[GW_ERROR_TEXT_BYTES];
    gw_rank_text who = gw_rank_name(outpost->host->first_rank + frame->rank, j->workers);
    double seconds = gw_wire_number(frame, 0) / 1000.0;
    if (frame->detail)
        snprintf(text, sizeof text, "%s on host %s has had no heartbeat for %.1f s, but a debugger holds it (process "
                 "%u): it is not ended, and the others wait for it", who.text, outpost->host->name, seconds,
                 gw_wire_number(frame, 1));
    else
        snprintf(text, sizeof text, "%s on host %s has had no heartbeat for %.1f s: it is stopped, or its progress "
                 "thread hangs. It is killed (--no-heartbeat turns this off)", who.text, outpost->host->name, seconds);
    gw_console_say(&j->console, text);
}
