/* job.c - see job.h: start, poll loop and end of a job. One thread. The states of a job: wait for the greetings of all
 * hosts; ranks run; a rank has failed and the others have a second to report it too; ranks are ended; all connections
 * are closed. */
#include "launch/job_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/signals.h"
#include "launch/subreaper.h"

enum { BACKLOG_BYTES = 256 << 10, FIXED_POLLS = 2, POLLS_PER_HOST_CONNECTION = 3 };

static const gw_time greet_budget = 30 * GW_SECOND; /* for all hosts to answer */
static const gw_time settle_budget = GW_SECOND;     /* for survivors to end with an error of their own */
static const gw_time blame_budget = 5 * GW_SECOND;  /* for the rank that others blame to end */
static const gw_time finish_budget = 5 * GW_SECOND; /* after the grace, for hosts to report that they are done */
static const gw_time close_budget = 2 * GW_SECOND;  /* for a remote shell to exit after its output has ended */

static void announce(gw_job *j) {
    if (j->verdict.weight == GW_VERDICT_NONE || j->announced) return;
    j->announced = true;
    if (j->verdict.text[0]) gw_console_say(&j->console, j->verdict.text);
}

/* A host without a spec has started nothing: only its remote shell must be ended. */
void gw_job_end(gw_job *j, int number, gw_time grace) {
    gw_time until = gw_clock_now() + grace + finish_budget;
    if (until < j->finish_until) j->finish_until = until;
    j->settle_until = j->greet_until = j->timeout_at = GW_NEVER;
    announce(j);
    for (int i = 0; i < gw_job_hosts(j); i++) {
        gw_host_connection *connection = &j->connections[i];
        if (connection->spec_sent) {
            gw_launch_put_numbers(&connection->out, GW_LAUNCH_END, number, 0, (uint32_t)(grace / GW_MILLISECOND), 0);
        } else if (connection->pid) {
            gw_host_connection_close_fd(&connection->to);
            kill(-connection->pid, SIGTERM);
        }
    }
}

void gw_job_settle(gw_job *j) {
    gw_time until = gw_clock_now() + (j->verdict.weight == GW_VERDICT_FOLLOWED ? blame_budget : settle_budget);
    if (!gw_job_ending(j) && until < j->settle_until) j->settle_until = until;
}

/* ---- ends of connections and processes ---- */

static void finish_host_connection(gw_job *j, gw_host_connection *connection) {
    bool heard_all =
        connection->from < 0 && (connection->pid == 0 || gw_clock_now() >= connection->closed_at + close_budget);
    if (connection->over || !heard_all) return;
    connection->over = true;
    if (connection->errors >= 0) gw_job_read_errors(j, connection);
    if (!connection->greeted && gw_buffer_size(&connection->in))
        gw_console_lines(&j->console, &connection->error_line, 1, -1, connection->host->name,
                         gw_buffer_head(&connection->in), gw_buffer_size(&connection->in));
    gw_console_flush_line(&j->console, &connection->error_line, 1, -1, connection->host->name);
    gw_host_connection_close_fd(&connection->errors);
    gw_host_connection_close_fd(&connection->to);
    if (connection->done || gw_job_ending(j)) return;
    if (connection->spec_sent && j->options->elastic) {
        gw_verdict why = {0};
        gw_verdict_host_lost(&why, connection, j->options->host_connection.remote_path);
        if (gw_job_go_on_without(j, connection, &why)) return;
    }
    gw_verdict_host_lost(&j->verdict, connection, j->options->host_connection.remote_path);
    if (connection->greeted) gw_job_settle(j);
    else gw_job_end(j, SIGTERM, j->options->grace);
}

static int open_host_connections(const gw_job *j) {
    int count = 0;
    for (int i = 0; i < gw_job_hosts(j); i++) count += !j->connections[i].over;
    return count;
}

static void reap(gw_job *j) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int i = 0; i < gw_job_hosts(j); i++) {
            if (j->connections[i].pid != pid) continue;
            j->connections[i].pid = 0;
            j->connections[i].status = status;
        }
    }
}

/* The first signal is forwarded to the ranks, which may shut down cleanly; the second kills them. */
static void interrupted(gw_job *j, int number) {
    if (++j->interrupts > 1) {
        gw_job_end(j, SIGKILL, 0);
        return;
    }
    j->console.interrupted = true;
    if (!gw_job_ending(j))
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + number, "ended by signal %d (%s)", number,
                       strsignal(number));
    gw_job_end(j, number, j->options->grace);
}

static void take_signals(gw_job *j) {
    struct signalfd_siginfo info;
    while (read(j->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGTSTP) gw_job_pause(j);
        else if (info.ssi_signo != SIGCHLD) interrupted(j, (int)info.ssi_signo);
    reap(j);
}

static void print_some(gw_job *j) {
    int number = gw_console_write(&j->console);
    if (number == 0 || gw_job_ending(j)) return;
    if (number == EPIPE) /* the reader is gone, as with head(1): print nothing */
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + SIGPIPE, "%s", "");
    else gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "cannot write the output of the ranks: %s", strerror(number));
    gw_job_end(j, SIGTERM, j->options->grace);
}

static bool has_room(const gw_job *j) { return gw_buffer_size(&j->console.bytes) < BACKLOG_BYTES; }

static const char *silent_host(const gw_job *j) {
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (!j->connections[i].greeted) return j->connections[i].host->name;
    return "";
}

/* Without this, servers would wait forever for a program that has never joined the job. */
static void end_servers(gw_job *j) {
    j->servers_until = GW_NEVER;
    for (int i = 0; i < gw_job_hosts(j); i++)
        if (j->connections[i].host->serves && j->connections[i].spec_sent)
            gw_launch_put_numbers(&j->connections[i].out, GW_LAUNCH_END, SIGTERM, 0,
                                  (uint32_t)(j->options->grace / GW_MILLISECOND), 0);
}

static void check_clocks(gw_job *j) {
    gw_time now = gw_clock_now();
    if (now >= j->servers_until) end_servers(j);
    if (!gw_job_ending(j)) gw_job_answer_ranks(j, now);
    gw_job_restart_ranks(j, now);
    gw_job_check_hosts(j, has_room(j), now);
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
    gw_time clocks[] = {j->greet_until,
                        j->settle_until,
                        j->timeout_at,
                        j->finish_until,
                        j->servers_until,
                        gw_job_next_restart(j),
                        j->options->silence ? j->check_at : GW_NEVER};
    gw_time next = GW_NEVER;
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++)
        if (clocks[i] < next) next = clocks[i];
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_host_connection *connection = &j->connections[i];
        if (!connection->over && connection->closed_at && connection->closed_at + close_budget < next)
            next = connection->closed_at + close_budget;
    }
    return next;
}

static int fill_polls(gw_job *j) {
    bool room = has_room(j);
    struct pollfd *p = j->polls;
    *p++ = (struct pollfd){.fd = j->signals, .events = POLLIN};
    *p++ = (struct pollfd){.fd = gw_console_fd(&j->console), .events = POLLOUT};
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_host_connection *connection = &j->connections[i];
        *p++ = (struct pollfd){.fd = room ? connection->from : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = room ? connection->errors : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = gw_buffer_size(&connection->out) ? connection->to : -1, .events = POLLOUT};
    }
    return (int)(p - j->polls);
}

static void serve_host_connection(gw_job *j, gw_host_connection *connection, const struct pollfd *p) {
    if (p[2].revents && !gw_buffer_write(&connection->out, connection->to))
        gw_host_connection_close_fd(&connection->to);
    if (p[1].revents) gw_job_read_errors(j, connection);
    if (p[0].revents) gw_job_read_frames(j, connection);
}

static void run_loop(gw_job *j) {
    while (open_host_connections(j) && gw_clock_now() < j->finish_until) {
        int count = fill_polls(j);
        int ready = poll(j->polls, (nfds_t)count, gw_clock_poll_ms(next_clock(j)));
        if (ready > 0) {
            if (j->polls[1].revents) print_some(j);
            for (int i = 0; i < gw_job_hosts(j); i++)
                serve_host_connection(j, &j->connections[i], &j->polls[FIXED_POLLS + i * POLLS_PER_HOST_CONNECTION]);
            if (j->polls[0].revents) take_signals(j);
        }
        for (int i = 0; i < gw_job_hosts(j); i++) finish_host_connection(j, &j->connections[i]);
        check_clocks(j);
    }
}

/* Prints the remaining output. The reader may be a slow pager, so this waits for it without limit, unless the job is
 * ending. */
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
        const gw_host_connection *connection = &j->connections[i];
        if (connection->over || connection->host->local || !connection->spec_sent) continue;
        snprintf(text, sizeof text, "host %s did not say that its ranks have ended; look there for what is left",
                 connection->host->name);
        gw_console_say(&j->console, text);
    }
    gw_subreaper_kill_all(finish_budget);
    print_rest(j);
}

static void open_all(gw_job *j) {
    gw_error error = {0};
    for (int i = 0; i < gw_job_hosts(j); i++) {
        const gw_host *host = &j->options->hosts->list[i];
        gw_host_connection_options options = j->options->host_connection;
        if (host->first_rank != 0) options.listen_fd = -1;
        if (gw_host_connection_open(&j->connections[i], host, &options, &error) == GW_OK) continue;
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "%s", error.text);
        for (; i < gw_job_hosts(j); i++) j->connections[i].over = true;
        gw_job_end(j, SIGTERM, 0);
    }
    if (j->options->host_connection.listen_fd >= 0) close(j->options->host_connection.listen_fd);
}

static bool allocate(gw_job *j) {
    size_t hosts = (size_t)gw_job_hosts(j);
    j->connections = calloc(hosts, sizeof *j->connections);
    j->lines = calloc((size_t)j->world, sizeof *j->lines);
    j->polls = calloc(FIXED_POLLS + hosts * POLLS_PER_HOST_CONNECTION, sizeof *j->polls);
    for (size_t i = 0; j->connections && i < hosts; i++)
        j->connections[i] =
            (gw_host_connection){.host = &j->options->hosts->list[i], .to = -1, .from = -1, .errors = -1};
    j->restart_at = calloc((size_t)j->world, sizeof *j->restart_at);
    for (int rank = 0; j->restart_at && rank < j->world; rank++) j->restart_at[rank] = GW_NEVER;
    return j->connections && j->lines && j->polls && j->restart_at;
}

static void free_job(gw_job *j) {
    for (int i = 0; j->connections && i < gw_job_hosts(j); i++) gw_host_connection_free(&j->connections[i]);
    for (int i = 0; j->lines && i < j->world; i++)
        for (int stream = 0; stream < 2; stream++) gw_buffer_free(&j->lines[i][stream].bytes);
    gw_console_free(&j->console);
    free(j->restart_at);
    free(j->polls);
    free(j->lines);
    free(j->connections);
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
    gw_subreaper_enable();
    open_all(&j);
    run_loop(&j);
    close_all(&j);
    close(j.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free_job(&j);
    return j.verdict.code;
}
