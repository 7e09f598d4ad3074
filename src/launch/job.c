/* job.c - see job.h. One thread, one poll loop. A job goes through these states: the hosts are greeted, the ranks run,
 * one fails and the others have a second to say what they saw of it, the ranks are ended, all connections are closed.
 */
#include "launch/job.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/family.h"
#include "launch/order.h"
#include "launch/signals.h"
#include "launch/verdict.h"
#include "launch/wire.h"

enum { BACKLOG_BYTES = 256 << 10, FIXED_POLLS = 2, POLLS_PER_OUTPOST = 3, EXIT_USAGE = 2 };

static const gw_time greet_budget = 30 * GW_SECOND; /* for all hosts to answer */
static const gw_time settle_budget = GW_SECOND;     /* for survivors to end with an error of their own */
static const gw_time finish_budget = 5 * GW_SECOND; /* beyond the grace, for hosts to say that they are done */
static const gw_time close_budget = 2 * GW_SECOND;  /* for a remote shell to end after its output did */
static const gw_time never = UINT64_MAX;

typedef struct job {
    const gw_job_options *options;
    gw_outpost *outposts; /* one a host */
    gw_line (*lines)[2];  /* of each rank */
    struct pollfd *polls; /* FIXED_POLLS and POLLS_PER_OUTPOST for each outpost */
    gw_console console;
    int world;
    int signals; /* signalfd */
    gw_verdict verdict;
    bool announced;                                              /* the verdict was printed */
    int workers, workers_left;                                   /* left: have not ended well */
    gw_time greet_until, settle_until, timeout_at, finish_until; /* `never` where not in force */
    gw_time servers_until;                                       /* all workers have ended: when servers are made to */
    int interrupts;                                              /* signals that asked us to end */
} job;

static int hosts_of(const job *j) { return j->options->hosts->count; }
static bool serves(const job *j, int rank) { return rank >= j->workers; }

/* Servers speak under their name, whether or not ranks have a prefix. */
static void print_lines(job *j, int rank, int stream, const char *data, size_t bytes) {
    gw_console_lines(&j->console, &j->lines[rank][stream], stream, serves(j, rank) ? -1 : rank,
                     gw_rank_name(rank, j->workers).text, data, bytes);
}

static void flush_lines(job *j, int rank) {
    for (int stream = 0; stream < 2; stream++)
        gw_console_flush_line(&j->console, &j->lines[rank][stream], stream, serves(j, rank) ? -1 : rank,
                              gw_rank_name(rank, j->workers).text);
}

static void announce(job *j) {
    if (j->verdict.weight == GW_VERDICT_NONE || j->announced) return;
    j->announced = true;
    if (j->verdict.text[0]) gw_console_say(&j->console, j->verdict.text);
}

/* Hosts without an order have started nothing: their remote shell is all there is to end. */
static void end_job(job *j, int number, gw_time grace) {
    gw_time until = gw_clock_now() + grace + finish_budget;
    if (until < j->finish_until) j->finish_until = until;
    j->settle_until = j->greet_until = j->timeout_at = never;
    announce(j);
    for (int i = 0; i < hosts_of(j); i++) {
        gw_outpost *outpost = &j->outposts[i];
        if (outpost->ordered) {
            gw_wire_put_numbers(&outpost->out, GW_WIRE_END, number, 0, (uint32_t)(grace / GW_MILLISECOND), 0);
        } else if (outpost->pid) {
            gw_outpost_close_fd(&outpost->to);
            kill(-outpost->pid, SIGTERM);
        }
    }
}

static bool ending(const job *j) { return j->finish_until != never; }

static void settle(job *j) {
    if (!ending(j) && j->settle_until == never) j->settle_until = gw_clock_now() + settle_budget;
}

/* ---- news from the hosts ---- */

static void tell_all(job *j, gw_wire_kind kind, const char *text, size_t bytes) {
    for (int i = 0; i < hosts_of(j); i++)
        if (j->outposts[i].ordered) gw_wire_put(&j->outposts[i].out, kind, 0, 0, text, (uint32_t)bytes);
}

static void call_roll(job *j) {
    char text[GW_ROLL_TEXT];
    tell_all(j, GW_WIRE_ROLL, text, gw_roll_write(&j->options->elastic->roll, text));
}

static void workers_over(job *j) {
    if (j->options->elastic) tell_all(j, GW_WIRE_REST, NULL, 0);
    j->workers_left = 0;
    j->servers_until = gw_clock_now() + settle_budget;
}

/* An elastic job goes on. A rank that was called wrongly would be so again. */
static bool rank_replaced(job *j, gw_outpost *outpost, int rank, const gw_wire_frame *frame) {
    gw_elastic *elastic = j->options->elastic;
    gw_verdict why = {0};
    char text[GW_ERROR_TEXT_BYTES + 128];
    int status = (int)gw_wire_number(frame, 0);
    gw_rank_text who = gw_rank_name(rank, j->workers);
    bool well = !gw_verdict_exited(&why, who.text, outpost->host->name, status, gw_wire_number(frame, 1));
    if (!well && why.code == EXIT_USAGE) return false;
    gw_elastic_fate fate = gw_elastic_ended(elastic, rank, well);
    if (fate == GW_ELASTIC_FINISHED && gw_elastic_over(elastic)) workers_over(j);
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

/* Workers cannot go on without one of their servers, as they do without each other. */
static void add_remedy(gw_verdict *verdict) {
    size_t used = strlen(verdict->text);
    snprintf(verdict->text + used, sizeof verdict->text - used,
             ", and no other takes its place: --restarts N starts a server again");
}

static void rank_exited(job *j, gw_outpost *outpost, const gw_wire_frame *frame) {
    int rank = outpost->host->first_rank + frame->rank;
    int status = (int)gw_wire_number(frame, 0);
    flush_lines(j, rank);
    if (ending(j)) return;
    if (serves(j, rank) && j->workers_left == 0) return; /* its work is done, however it ended */
    if (j->options->elastic && rank_replaced(j, outpost, rank, frame)) return;
    if (!serves(j, rank) && status == 0 && --j->workers_left == 0) workers_over(j);
    gw_rank_text who = gw_rank_name(rank, j->workers);
    gw_verdict_weight known = j->verdict.weight;
    if (!gw_verdict_exited(&j->verdict, who.text, outpost->host->name, status, gw_wire_number(frame, 1))) return;
    if (j->options->elastic && serves(j, rank) && j->verdict.weight > known) add_remedy(&j->verdict);
    settle(j);
}

static void host_done(job *j, gw_outpost *outpost, int left) {
    char text[GW_ERROR_TEXT_BYTES];
    outpost->done = true;
    if (left == 0) return;
    snprintf(text, sizeof text, "%d processes on host %s could not be ended", left, outpost->host->name);
    gw_console_say(&j->console, text);
}

static char *const *argv_of(const job *j, const gw_host *host) {
    return host->serves ? j->options->server_argv : j->options->argv;
}

static void take_frame(job *j, gw_outpost *outpost, const gw_wire_frame *frame) {
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
        if (ending(j)) return;
        gw_verdict_no_start(&j->verdict, gw_rank_name(rank, j->workers).text, outpost->host->name,
                            (gw_start_step)frame->detail, (int)gw_wire_number(frame, 0),
                            argv_of(j, outpost->host)[0], j->options->directory);
        end_job(j, SIGKILL, 0);
        return;
    case GW_WIRE_DONE:
        host_done(j, outpost, (int)gw_wire_number(frame, 0));
        return;
    case GW_WIRE_ORDER:
    case GW_WIRE_END:
    case GW_WIRE_ROLL:
    case GW_WIRE_AGAIN:
    case GW_WIRE_REST:
        return;
    }
}

static void take_frames(job *j, gw_outpost *outpost) {
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

static void give_order(job *j, gw_outpost *outpost) {
    const gw_host *host = outpost->host;
    gw_order order = {
        .first_rank = host->first_rank,
        .local_ranks = host->ranks,
        .world = j->workers,
        .group = (int)(outpost - j->outposts),
        .listen_fd = host->first_rank == 0 ? j->options->outpost.listen_fd : -1,
        .elastic = j->options->elastic != NULL,
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
}

/* Nothing is started before every host has answered. */
static void start_when_all_greeted(job *j) {
    for (int i = 0; i < hosts_of(j); i++)
        if (!j->outposts[i].greeted) return;
    j->greet_until = never;
    for (int i = 0; i < hosts_of(j); i++) give_order(j, &j->outposts[i]);
}

static void hear(job *j, gw_outpost *outpost) {
    if (gw_buffer_read(&outpost->in, outpost->from) == 0) {
        gw_outpost_close_fd(&outpost->from);
        outpost->closed_at = gw_clock_now();
    }
    if (!outpost->greeted) {
        gw_outpost_greet(outpost, &j->console);
        if (outpost->greeted && !ending(j)) start_when_all_greeted(j);
    }
    if (outpost->greeted) take_frames(j, outpost);
}

static void hear_errors(job *j, gw_outpost *outpost) {
    gw_buffer text = {0};
    long bytes;
    while ((bytes = gw_buffer_read(&text, outpost->errors)) > 0) continue;
    if (gw_buffer_size(&text))
        gw_console_lines(&j->console, &outpost->error_line, 1, -1, outpost->host->name, gw_buffer_head(&text),
                         gw_buffer_size(&text));
    if (bytes == 0) gw_outpost_close_fd(&outpost->errors);
    gw_buffer_free(&text);
}

/* ---- the ends of things ---- */

static void finish_outpost(job *j, gw_outpost *outpost) {
    bool heard_all = outpost->from < 0 && (outpost->pid == 0 || gw_clock_now() >= outpost->closed_at + close_budget);
    if (outpost->over || !heard_all) return;
    outpost->over = true;
    if (outpost->errors >= 0) hear_errors(j, outpost);
    if (!outpost->greeted && gw_buffer_size(&outpost->in))
        gw_console_lines(&j->console, &outpost->error_line, 1, -1, outpost->host->name, gw_buffer_head(&outpost->in),
                         gw_buffer_size(&outpost->in));
    gw_console_flush_line(&j->console, &outpost->error_line, 1, -1, outpost->host->name);
    gw_outpost_close_fd(&outpost->errors);
    gw_outpost_close_fd(&outpost->to);
    if (outpost->done || ending(j)) return;
    gw_verdict_host_lost(&j->verdict, outpost->host, outpost->greeted, outpost->status,
                         j->options->outpost.remote_path);
    if (outpost->greeted)
        settle(j);
    else
        end_job(j, SIGTERM, j->options->grace);
}

static int open_outposts(const job *j) {
    int count = 0;
    for (int i = 0; i < hosts_of(j); i++) count += !j->outposts[i].over;
    return count;
}

static void reap(job *j) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int i = 0; i < hosts_of(j); i++) {
            if (j->outposts[i].pid != pid) continue;
            j->outposts[i].pid = 0;
            j->outposts[i].status = status;
        }
    }
}

/* The first signal goes to the ranks, which may end in their own way; the second is meant seriously. */
static void interrupted(job *j, int number) {
    if (++j->interrupts > 1) {
        end_job(j, SIGKILL, 0);
        return;
    }
    if (!ending(j))
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + number, "ended by signal %d (%s)", number,
                       strsignal(number));
    end_job(j, number, j->options->grace);
}

static void take_signals(job *j) {
    struct signalfd_siginfo info;
    while (read(j->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) interrupted(j, (int)info.ssi_signo);
    reap(j);
}

static void print_some(job *j) {
    int number = gw_console_write(&j->console);
    if (number == 0 || ending(j)) return;
    if (number == EPIPE) /* as for any program in front of head(1), there is nothing to say */
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 128 + SIGPIPE, "%s", "");
    else
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "cannot write the output of the ranks: %s", strerror(number));
    end_job(j, SIGTERM, j->options->grace);
}

static const char *silent_host(const job *j) {
    for (int i = 0; i < hosts_of(j); i++)
        if (!j->outposts[i].greeted) return j->outposts[i].host->name;
    return "";
}

/* The program may never have joined the job, and then servers wait for nothing. */
static void end_servers(job *j) {
    j->servers_until = never;
    for (int i = 0; i < hosts_of(j); i++)
        if (j->outposts[i].host->serves && j->outposts[i].ordered)
            gw_wire_put_numbers(&j->outposts[i].out, GW_WIRE_END, SIGTERM, 0,
                                (uint32_t)(j->options->grace / GW_MILLISECOND), 0);
}

static void check_clocks(job *j) {
    gw_time now = gw_clock_now();
    if (now >= j->servers_until) end_servers(j);
    if (now >= j->greet_until) {
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, GW_JOB_HOST_LOST,
                       "host %s did not answer within %d s; try the remote shell by hand", silent_host(j),
                       (int)(greet_budget / GW_SECOND));
        end_job(j, SIGTERM, j->options->grace);
    }
    if (now >= j->timeout_at) {
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, GW_JOB_TIMEOUT, "the job did not end within %g s (--timeout)",
                       (double)j->options->timeout / (double)GW_SECOND);
        end_job(j, SIGTERM, j->options->grace);
    }
    if (now >= j->settle_until) end_job(j, SIGTERM, j->options->grace);
}

/* ---- the loop ---- */

static gw_time next_clock(const job *j) {
    gw_time clocks[] = {j->greet_until, j->settle_until, j->timeout_at, j->finish_until, j->servers_until};
    gw_time next = never;
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++)
        if (clocks[i] < next) next = clocks[i];
    for (int i = 0; i < hosts_of(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        if (!outpost->over && outpost->closed_at && outpost->closed_at + close_budget < next)
            next = outpost->closed_at + close_budget;
    }
    return next;
}

static int fill_polls(job *j) {
    bool room = gw_buffer_size(&j->console.bytes) < BACKLOG_BYTES;
    struct pollfd *p = j->polls;
    *p++ = (struct pollfd){.fd = j->signals, .events = POLLIN};
    *p++ = (struct pollfd){.fd = gw_console_fd(&j->console), .events = POLLOUT};
    for (int i = 0; i < hosts_of(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        *p++ = (struct pollfd){.fd = room ? outpost->from : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = room ? outpost->errors : -1, .events = POLLIN};
        *p++ = (struct pollfd){.fd = gw_buffer_size(&outpost->out) ? outpost->to : -1, .events = POLLOUT};
    }
    return (int)(p - j->polls);
}

static void serve_outpost(job *j, gw_outpost *outpost, const struct pollfd *p) {
    if (p[2].revents && !gw_buffer_write(&outpost->out, outpost->to)) gw_outpost_close_fd(&outpost->to);
    if (p[1].revents) hear_errors(j, outpost);
    if (p[0].revents) hear(j, outpost);
}

static void run_loop(job *j) {
    while (open_outposts(j) && gw_clock_now() < j->finish_until) {
        int count = fill_polls(j);
        int ready = poll(j->polls, (nfds_t)count, gw_clock_poll_ms(next_clock(j)));
        if (ready > 0) {
            if (j->polls[1].revents) print_some(j);
            for (int i = 0; i < hosts_of(j); i++)
                serve_outpost(j, &j->outposts[i], &j->polls[FIXED_POLLS + i * POLLS_PER_OUTPOST]);
            if (j->polls[0].revents) take_signals(j);
        }
        for (int i = 0; i < hosts_of(j); i++) finish_outpost(j, &j->outposts[i]);
        check_clocks(j);
    }
}

/* What is left to print. The reader may be a pager that takes its time, but not after we were told to end. */
static void print_rest(job *j) {
    gw_time until = ending(j) ? gw_clock_now() + finish_budget : never;
    while (gw_console_fd(&j->console) >= 0 && gw_clock_now() < until && j->interrupts < 2) {
        struct pollfd polls[2] = {{.fd = j->signals, .events = POLLIN},
                                  {.fd = gw_console_fd(&j->console), .events = POLLOUT}};
        if (poll(polls, 2, gw_clock_poll_ms(until)) <= 0) continue;
        if (polls[1].revents) print_some(j);
        if (polls[0].revents) take_signals(j);
        if (j->interrupts && until == never) until = gw_clock_now() + finish_budget;
    }
}

static void close_all(job *j) {
    char text[GW_ERROR_TEXT_BYTES];
    announce(j);
    for (int i = 0; i < hosts_of(j); i++) {
        const gw_outpost *outpost = &j->outposts[i];
        if (outpost->over || outpost->host->local || !outpost->ordered) continue;
        snprintf(text, sizeof text, "host %s did not say that its ranks have ended; look there for what is left",
                 outpost->host->name);
        gw_console_say(&j->console, text);
    }
    gw_family_end(finish_budget);
    print_rest(j);
}

static void open_all(job *j) {
    gw_error error = {0};
    for (int i = 0; i < hosts_of(j); i++) {
        const gw_host *host = &j->options->hosts->list[i];
        gw_outpost_options options = j->options->outpost;
        if (host->first_rank != 0) options.listen_fd = -1;
        if (gw_outpost_open(&j->outposts[i], host, &options, &error) == GW_OK) continue;
        gw_verdict_set(&j->verdict, GW_VERDICT_FINAL, 1, "%s", error.text);
        for (; i < hosts_of(j); i++) j->outposts[i].over = true;
        end_job(j, SIGTERM, 0);
    }
    if (j->options->outpost.listen_fd >= 0) close(j->options->outpost.listen_fd);
}

static bool allocate(job *j) {
    size_t hosts = (size_t)hosts_of(j);
    j->outposts = calloc(hosts, sizeof *j->outposts);
    j->lines = calloc((size_t)j->world, sizeof *j->lines);
    j->polls = calloc(FIXED_POLLS + hosts * POLLS_PER_OUTPOST, sizeof *j->polls);
    for (size_t i = 0; j->outposts && i < hosts; i++)
        j->outposts[i] = (gw_outpost){.host = &j->options->hosts->list[i], .to = -1, .from = -1, .errors = -1};
    return j->outposts && j->lines && j->polls;
}

static void free_job(job *j) {
    for (int i = 0; j->outposts && i < hosts_of(j); i++) gw_outpost_free(&j->outposts[i]);
    for (int i = 0; j->lines && i < j->world; i++)
        for (int stream = 0; stream < 2; stream++) gw_buffer_free(&j->lines[i][stream].bytes);
    gw_console_free(&j->console);
    free(j->polls);
    free(j->lines);
    free(j->outposts);
}

int gw_job_run(const gw_job_options *options) {
    gw_time now = gw_clock_now();
    job j = {.options = options,
             .world = gw_hosts_world(options->hosts),
             .workers = gw_hosts_workers(options->hosts),
             .workers_left = gw_hosts_workers(options->hosts),
             .servers_until = never,
             .console = {.options = options->console},
             .greet_until = now + greet_budget,
             .timeout_at = options->timeout ? now + options->timeout : never,
             .settle_until = never,
             .finish_until = never};
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
