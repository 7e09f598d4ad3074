/* job.c - see job.h: its start, its loop and its end. One thread, one poll loop. A job goes through these states: the
 * hosts are greeted, the ranks run, one fails and the others have a second to say what they saw of it, the ranks are
 * ended, all connections are closed. */
#include "launch/job_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/family.h"
#include "launch/signals.h"

enum { BACKLOG_BYTES = 256 << 10, FIXED_POLLS = 2, POLLS_PER_OUTPOST = 3 };

static const gw_time greet_budget = 30 * GW_SECOND; /* for all hosts to answer */
static const gw_time settle_budget = GW_SECOND;     /* for survivors to end with an error of their own */
static const gw_time finish_budget = 5 * GW_SECOND; /* beyond the grace, for hosts to say that they are done */
static const gw_time close_budget = 2 * GW_SECOND;  /* for a remote shell to end after its output did */

static void announce(gw_job *j) {
    if (j->verdict.weight == GW_VERDICT_NONE || j->announced) return;
    j->announced = true;
    if (j->verdict.text[0]) gw_console_say(&j->console, j->verdict.text);
}

/* Hosts without an order have started nothing: their remote shell is all there is to end. */
void gw_job_end(gw_job *j, int number, gw_time grace) {
    gw_time until = gw_clock_now() + grace + finish_budget;
    if (until < j->finish_until) j->finish_until = until;
    j->settle_until = j->greet_until = j->timeout_at = GW_NEVER;
    announce(j);
    for (int i = 0; i < gw_job_hosts(j); i++) {
        gw_outpost *outpost = &j->outposts[i];
        if (outpost->ordered) {
            gw_wire_put_numbers(&outpost->out, GW_WIRE_END, number, 0, (uint32_t)(grace / GW_MILLISECOND), 0);
        } else if (outpost->pid) {
            gw_outpost_close_fd(&outpost->to);
            kill(-outpost->pid, SIGTERM);
        }
    }
}

void gw_job_settle(gw_job *j) {
    if (!gw_job_ending(j) && j->settle_until == GW_NEVER) j->settle_until = gw_clock_now() + settle_budget;
}

/* ---- the ends of things ---- */

static void finish_outpost(gw_job *j, gw_outpost *outpost) {
    bool heard_all = outpost->from < 0 && (outpost->pid == 0 || gw_clock_now() >= outpost->closed_at + close_budget);
    if (outpost->over || !heard_all) return;
    outpost->over = true;
    if (outpost->errors >= 0) gw_job_hear_errors(j, outpost);
    if (!outpost->greeted && gw_buffer_size(&outpost->in))
        gw_console_lines(&j->console, &outpost->error_line, 1, -1, outpost->host->name, gw_buffer_head(&outpost->in),
                         gw_buffer_size(&outpost->in));
    gw_console_flush_line(&j->console, &outpost->error_line, 1, -1, outpost->host->name);
    gw_outpost_close_fd(&outpost->errors);
    gw_outpost_close_fd(&outpost->to);
    if (outpost->done || gw_job_ending(j)) return;
    if (outpost->ordered && j->options->elastic) {
        gw_verdict why = {0};
        gw_verdict_host_lost(&why, outpost, j->options->outpost.remote_path);
        if (gw_job_go_on_without(j, outpost, &why)) return;
    }
    gw_verdict_host_lost(&j->verdict, outpost, j->options->outpost.remote_path);
    if (outpost->greeted)
        gw_job_settle(j);
    else
        gw_job_end(j, SIGTERM, j->options->grace);
}

static int open_outposts(const gw_job *j) {
    int count = 0;
    for (int i = 0; i < gw_job_hosts(j); i++) count += !j->outposts[i].over;
    return count;
}

static void reap(gw_job *j) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int i = 0; i < gw_job_hosts(j); i++) {
            if (j->outposts[i].pid != pid) continue;
            j->outposts[i].pid = 0;
            j->outposts[i].status = status;
        }
    }
}

/* The first signal goes to the ranks, which may end in their own way; the second is meant seriously. */
static void interrupted(gw_job *j, int number) {
    if (++j->interrupts > 1) {
        gw_job_end(j, SIGKILL, 0);
        return;
    }
    if (!gw_job_ending(j))
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + number, "ended by signal %d (%s)", number,
                       strsignal(number));
    gw_job_end(j, number, j->options->grace);
}

static void take_signals(gw_job *j) {
    struct signalfd_siginfo info;
    while (read(j->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGTSTP)
            gw_job_pause(j);
        else if (info.ssi_signo != SIGCHLD)
            interrupted(j, (int)info.ssi_signo);
    reap(j);
}

static void print_some(gw_job *j) {
    int number = gw_console_write(&j->console);
    if (number == 0 || gw_job_ending(j)) return;
    if (number == EPIPE) /* as for any program in front of head(1), there is nothing to say */
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + SIGPIPE, "%s", "");
    else
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "cannot write the output of the ranks: %s", strerror(number));
    gw_job_end(j, SIGTERM, j->options->grace);
}

static bool has_room(const gw_job *j) { return gw_buffer_size(&j->console.bytes) < BACKLOG_BYTES; }

static const char *silent_host(const gw_job *j) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (!j->outposts[i].greeted) return j->outposts[i].host->name;
    return "";
}

/* The program may GW_NEVER have joined the job, and then servers wait for nothing. */
static void end_servers(gw_job *j) {
    j->servers_until = GW_NEVER;
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (j->outposts[i].host->serves && j->outposts[i].ordered)
            gw_wire_put_numbers(&j->outposts[i].out, GW_WIRE_END, SIGTERM, 0,
                                (uint32_t)(j->options->grace / GW_MILLISECOND), 0);
}

static void check_clocks(gw_job *j) {
    gw_time now = gw_clock_now();
    if (now >= j->servers_until) end_servers(j);
    if (!gw_job_ending(j)) gw_job_answer_ranks(j, now);
    gw_job_start_again(j, now);
    gw_job_look_at_hosts(j, has_room(j), now);
    if (now >= j->greet_until) {
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, GW_JOB_HOST_LOST,
                       "host %s did not answer within %d s; try the remote shell by hand", silent_host(j),
                       (int)(greet_budget / GW_SECOND));
        gw_job_end(j, SIGTERM, j->options->grace);
    }
    if (now >= j->timeout_at) {
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, GW_JOB_TIMEOUT, "the job did not end within %g s (--timeout)",
                       (double)j->options->timeout / (double)GW_SECOND);
        gw_job_end(j, SIGTERM, j->options->grace);
    }
    if (now >= j->settle_until) gw_job_end(j, SIGTERM, j->options->grace);
}

/* ---- the loop ---- */

static gw_time next_clock(const gw_job *j) {
    gw_time clocks[] = {j->greet_until, j->settle_until, j->timeout_at, j->finish_until, j->servers_until,
                        gw_job_next_start(j), j->options->silence ? j->look_at : GW_NEVER};
    gw_time next = GW_NEVER;
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++)
        if (clocks[i] < next) next = clocks[i];
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        if (!outpost->over && outpost->closed_at && outpost->closed_at + close_budget < next)
            next = outpost->closed_at + close_budget;
    }
    return next;
}

static int fill_polls(gw_job *j) {
    bool room = has_room(j);
    struct pollfd *p = j->polls;
    *p++ = (struct pollfd){.fd = j->signals, .events = POLLIN};
    *p++ = (struct pollfd){.fd = gw_console_fd(&j->console), .events = POLLOUT};
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        *p++ = (struct pollfd){.fd = room ? outpost->from : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = room ? outpost->errors : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = gw_buffer_size(&outpost->out) ? outpost->to : -1, .events = POLLOUT};
    }
    return (int)(p - j->polls);
}

static void serve_outpost(gw_job *j, gw_outpost *outpost, const struct pollfd *p) {
    if (p[2].revents && !gw_buffer_write(&outpost->out, outpost->to)) gw_outpost_close_fd(&outpost->to);
    if (p[1].revents) gw_job_hear_errors(j, outpost);
    if (p[0].revents) gw_job_hear(j, outpost);
}

static void run_loop(gw_job *j) {
    while (open_outposts(j) && gw_clock_now() < j->finish_until) {
        int count = fill_polls(j);
        int ready = poll(j->polls, (nfds_t)count, gw_clock_poll_ms(next_clock(j)));
        if (ready > 0) {
            if (j->polls[1].revents) print_some(j);
            for (int i = 0; i < gw_job_hosts(j); i++)
                serve_outpost(j, &j->outposts[i], &j->polls[FIXED_POLLS + i * POLLS_PER_OUTPOST]);
            if (j->polls[0].revents) take_signals(j);
        }
        for (int i = 0; i < gw_job_hosts(j); i++) finish_outpost(j, &j->outposts[i]);
        check_clocks(j);
    }
}

/* What is left to print. The reader may be a pager that takes its time, but not after we were told to end. */
static void print_rest(gw_job *j) {
    gw_time until = gw_job_ending(j) ? gw_clock_now() + finish_budget : GW_NEVER;
    while (gw_console_fd(&j->console) >= 0 && gw_clock_now() < until && j->interrupts < 2) {
        struct pollfd polls[2] = {{.fd = j->signals, .events = POLLIN},
                                  {.fd = gw_console_fd(&j->console), .events = POLLOUT}};
        if (poll(polls, 2, gw_clock_poll_ms(until)) <= 0) continue;
        if (polls[1].revents) print_some(j);
        if (polls[0].revents) take_signals(j);
        if (j->interrupts && until == GW_NEVER) until = gw_clock_now() + finish_budget;
    }
}

static void close_all(gw_job *j) {
    char text[GW_ERROR_TEXT_BYTES];
    announce(j);
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        if (outpost->over || outpost->host->local || !outpost->ordered) continue;
        snprintf(text, sizeof text, "host %s did not say that its ranks have ended; look there for what is left",
                 outpost->host->name);
        gw_console_say(&j->console, text);
    }
    gw_family_end(finish_budget);
    print_rest(j);
}

static void open_all(gw_job *j) {
    gw_error error = {0};
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_host *host = &j->options->hosts->list[i];
        gw_outpost_options options = j->options->outpost;
        if (host->first_rank != 0) options.listen_fd = -1;
        if (gw_outpost_open(&j->outposts[i], host, &options, &error) == GW_OK) continue;
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "%s", error.text);
        for (; i < gw_job_hosts(j); i++) j->outposts[i].over = true;
        gw_job_end(j, SIGTERM, 0);
    }
    if (j->options->outpost.listen_fd >= 0) close(j->options->outpost.listen_fd);
}

static bool allocate(gw_job *j) {
    size_t hosts = (size_t)gw_job_hosts(j);
    j->outposts = calloc(hosts, sizeof *j->outposts);
    j->lines = calloc((size_t)j->world, sizeof *j->lines);
    j->polls = calloc(FIXED_POLLS + hosts * POLLS_PER_OUTPOST, sizeof *j->polls);
    for (size_t i = 0; j->outposts && i < hosts; i++)
        j->outposts[i] = (gw_outpost){.host = &j->options->hosts->list[i], .to = -1, .from = -1, .errors = -1};
    j->again_at = calloc((size_t)j->world, sizeof *j->again_at);
    for (int rank = 0; j->again_at && rank < j->world; rank++) j->again_at[rank] = GW_NEVER;
    return j->outposts && j->lines && j->polls && j->again_at;
}

static void free_job(gw_job *j) {
    for (int i = 0; j->outposts && i < gw_job_hosts(j); i++) gw_outpost_free(&j->outposts[i]);
    for (int i = 0; j->lines && i < j->world; i++)
        for (int stream = 0; stream < 2; stream++) gw_buffer_free(&j->lines[i][stream].bytes);
    gw_console_free(&j->console);
    free(j->again_at);
    free(j->polls);
    free(j->lines);
    free(j->outposts);
}

int gw_job_run(const gw_job_options *options) {
    gw_time now = gw_clock_now();
    gw_job j = {.options = options,
             .world = gw_hosts_world(options->hosts),
             .workers = gw_hosts_workers(options->hosts),
             .workers_left = gw_hosts_workers(options->hosts),
             .servers_until = GW_NEVER,
             .console = {.options = options->console},
             .greet_until = now + greet_budget,
             .timeout_at = options->timeout ? now + options->timeout : GW_NEVER,
             .settle_until = GW_NEVER,
             .finish_until = GW_NEVER};
    sigset_t before;
    if (!allocate(&j) || (j.signals = gw_signals_open(true, &before)) < 0) {
        gw_console_say(&j.console, "there is not enough memory to start a job");
        gw_console_write(&j.console);
        free_job(&j);
        return 1;
    }
    gw_family_adopt();
    open_all(&j);
    run_loop(&j);
    close_all(&j);
    close(j.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free_job(&j);
    return j.verdict.code;
}
