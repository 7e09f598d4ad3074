/* supervisor.c - see supervisor.h. One thread, one poll loop; the end of `in` means that the launcher is gone. */
#include "launch/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/liveness.h"
#include "launch/rank_process.h"
#include "launch/signals.h"
#include "launch/subreaper.h"

enum {
    CHUNK_BYTES = 32 << 10,    /* output in one frame */
    BACKLOG_BYTES = 256 << 10, /* if more waits for the launcher, the ranks' output is not read */
    DRAIN_CHUNKS = 64,         /* limit for a stream of a rank that has ended: its descendants may still write */
    FIXED_POLLS = 3
};

static const gw_time spec_budget = 60 * GW_SECOND; /* for the host spec to arrive */
static const gw_time kill_budget = 5 * GW_SECOND;  /* for killed processes to disappear */
static const gw_time family_budget = GW_SECOND;    /* the same, for descendants of a rank that died */

typedef struct supervisor {
    int in, out, signals;
    gw_buffer from_launcher, to_launcher;
    gw_host_spec spec; /* its strings lie in spec_bytes */
    gw_buffer spec_bytes;
    int roster_file; /* memfd from which the ranks read the roster; -1: none */
    gw_roster roster;
    char roster_path[64];
    gw_liveness liveness;   /* the ranks' heartbeats */
    gw_silence launcher;    /* silence of the launcher, checked if spec.silence_ms is set */
    bool launcher_pauses;   /* it has announced that it will be silent */
    gw_time check_at;       /* next check of heartbeats and of the launcher */
    bool no_more_starts;    /* no rank will be started any more */
    gw_rank_process *ranks; /* spec.local_ranks; NULL until the spec has arrived */
    struct pollfd *polls;   /* FIXED_POLLS, and two for each rank */
    bool orphaned;          /* the launcher is gone; output is dropped */
    gw_time kill_at;        /* when the ranks are killed; UINT64_MAX: not ending */
    gw_time give_up_at;     /* when the supervisor stops waiting for killed ranks */
} supervisor;

static void signal_ranks(supervisor *s, int number) {
    for (int i = 0; i < s->spec.local_ranks; i++)
        if (s->ranks && s->ranks[i].pid) kill(-s->ranks[i].pid, number);
}

static void end_ranks(supervisor *s, int number, gw_time grace) {
    gw_time now = gw_clock_now();
    signal_ranks(s, number);
    if (now + grace < s->kill_at) s->kill_at = now + grace;
}

static void lose_launcher(supervisor *s, gw_time grace) {
    if (s->orphaned) return;
    s->orphaned = true;
    end_ranks(s, SIGTERM, grace);
}

static gw_time grace_of(const supervisor *s) { return (gw_time)s->spec.grace_ms * GW_MILLISECOND; }

/* Sends one chunk of a stream; false: nothing is available now. */
static bool forward(supervisor *s, int local, int stream) {
    char chunk[CHUNK_BYTES];
    int *fd = &s->ranks[local].stream[stream];
    if (*fd < 0) return false;
    ssize_t bytes = read(*fd, chunk, sizeof chunk);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (bytes <= 0) {
        close(*fd);
        *fd = -1;
        return false;
    }
    if (!s->orphaned) gw_launch_put(&s->to_launcher, GW_LAUNCH_OUTPUT, stream + 1, local, chunk, (uint32_t)bytes);
    return true;
}

static void drain(supervisor *s, int local) {
    for (int stream = 0; stream < 2; stream++)
        for (int i = 0; i < DRAIN_CHUNKS && forward(s, local, stream); i++) continue;
}

/* An elastic job goes on, so descendants of a failed rank must die: they hold its sockets, ports and devices open. */
static void end_family(const supervisor *s, int local) {
    char roster[96], member[32];
    snprintf(roster, sizeof roster, "GRADWIRE_ROSTER=%s", s->roster_path);
    snprintf(member, sizeof member, "GRADWIRE_MEMBER=%d", s->spec.first_rank + local);
    gw_subreaper_kill_marked((const char *const[]){roster, member, NULL}, family_budget);
}

static void rank_exited(supervisor *s, int local, int status) {
    gw_rank_process *rank = &s->ranks[local];
    rank->pid = 0;
    if (status != 0 && s->spec.elastic) end_family(s, local);
    drain(s, local); /* its last output is sent before its exit */
    uint32_t ms = (uint32_t)((gw_clock_now() - rank->started) / GW_MILLISECOND);
    gw_launch_put_numbers(&s->to_launcher, GW_LAUNCH_EXITED, 0, local, (uint32_t)status, ms);
}

static void reap(supervisor *s) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < s->spec.local_ranks; i++)
            if (s->ranks[i].pid == pid) rank_exited(s, i, status);
}

static int running(const supervisor *s) {
    int count = 0;
    for (int i = 0; i < s->spec.local_ranks; i++) count += s->ranks[i].pid != 0;
    return count;
}

/* A memfd has no name in a file system, so nothing is left behind if the supervisor dies. */
static gw_status open_roster(supervisor *s, gw_error *error) {
    if (!s->spec.elastic) return GW_OK;
    s->roster_file = memfd_create("gradwire roster", MFD_CLOEXEC);
    if (s->roster_file < 0) return gw_fail(error, GW_SYSTEM, "cannot make memory for the roster: %s", strerror(errno));
    snprintf(s->roster_path, sizeof s->roster_path, "/proc/%d/fd/%d", (int)getpid(), s->roster_file);
    s->spec.roster_path = s->roster_path;
    if (!s->spec.heartbeat_ms) return GW_OK;
    return gw_liveness_open(&s->liveness, s->roster_file, s->spec.first_rank, s->spec.local_ranks, error);
}

static void kill_late(supervisor *s, int local) {
    if (local < s->spec.local_ranks && s->ranks[local].pid && s->liveness.slots &&
        gw_liveness_joined(&s->liveness, local))
        kill(-s->ranks[local].pid, SIGKILL);
}

static void take_roster(supervisor *s, const gw_launch_frame *frame) {
    if (s->roster_file < 0 || !gw_roster_parse(&s->roster, frame->payload, frame->bytes)) return;
    s->spec.roster = &s->roster;
    if (pwrite(s->roster_file, frame->payload, frame->bytes, 0) < 0) lose_launcher(s, grace_of(s));
}

static void restart_rank(supervisor *s, int local) {
    gw_start_step step;
    if (local >= s->spec.local_ranks || s->ranks[local].pid || s->kill_at != UINT64_MAX) return;
    s->spec.listen_fd = -1;
    drain(s, local);
    for (int stream = 0; stream < 2; stream++)
        if (s->ranks[local].stream[stream] >= 0) close(s->ranks[local].stream[stream]);
    s->ranks[local] = (gw_rank_process){.stream = {-1, -1}};
    gw_liveness_start(&s->liveness, local, gw_clock_now());
    int number = gw_rank_start(&s->ranks[local], &s->spec, local, &step);
    if (number) gw_launch_put_numbers(&s->to_launcher, GW_LAUNCH_NO_START, (int)step, local, (uint32_t)number, 0);
}

static gw_status start_ranks(supervisor *s, const gw_launch_frame *frame, gw_error *error) {
    gw_buffer_add(&s->spec_bytes, frame->payload, frame->bytes);
    if (s->spec_bytes.failed) return gw_fail(error, GW_MEMORY, "there is no memory for the host spec");
    gw_status status = gw_host_spec_unpack(&s->spec, gw_buffer_head(&s->spec_bytes), frame->bytes, error);
    if (status == GW_OK) status = open_roster(s, error);
    if (status != GW_OK) return status;
    s->no_more_starts = !s->spec.elastic;
    size_t count = (size_t)s->spec.local_ranks;
    s->ranks = calloc(count, sizeof *s->ranks);
    s->polls = calloc(FIXED_POLLS + 2 * count, sizeof *s->polls);
    if (!s->ranks || !s->polls) return gw_fail(error, GW_MEMORY, "there is no memory for %zu ranks", count);
    for (size_t i = 0; i < count; i++) s->ranks[i].stream[0] = s->ranks[i].stream[1] = -1;
    if (s->spec.listen_fd >= 0) fcntl(s->spec.listen_fd, F_SETFD, FD_CLOEXEC); /* for rank 0 alone */
    gw_silence_heard(&s->launcher, gw_clock_now());
    for (int i = 0; i < s->spec.local_ranks; i++) {
        gw_start_step step;
        gw_liveness_start(&s->liveness, i, gw_clock_now());
        int number = gw_rank_start(&s->ranks[i], &s->spec, i, &step);
        if (number == 0) continue;
        gw_launch_put_numbers(&s->to_launcher, GW_LAUNCH_NO_START, (int)step, i, (uint32_t)number, 0);
        end_ranks(s, SIGKILL, 0);
        break;
    }
    if (s->spec.listen_fd >= 0) close(s->spec.listen_fd);
    return GW_OK;
}

/* Output that is already queued answers the ping too. */
static void take_ping(supervisor *s) {
    s->launcher_pauses = false;
    if (!gw_buffer_size(&s->to_launcher)) gw_launch_put(&s->to_launcher, GW_LAUNCH_PONG, 0, 0, NULL, 0);
}

static gw_status take_frames(supervisor *s, gw_error *error) {
    gw_launch_frame frame;
    gw_launch_state state;
    gw_status status = GW_OK;
    while (status == GW_OK && (state = gw_launch_peek(&s->from_launcher, &frame)) != GW_LAUNCH_PARTIAL) {
        bool first = s->ranks == NULL;
        if (state == GW_LAUNCH_BROKEN || (frame.kind == GW_LAUNCH_HOST_SPEC) != first)
            return gw_fail(error, GW_PROTOCOL, "this is not the launcher of the same version on the other side");
        if (first) status = start_ranks(s, &frame, error);
        else if (frame.kind == GW_LAUNCH_END)
            end_ranks(s, frame.detail, (gw_time)gw_launch_number(&frame, 0) * GW_MILLISECOND);
        else if (frame.kind == GW_LAUNCH_ROSTER) take_roster(s, &frame);
        else if (frame.kind == GW_LAUNCH_RESTART) restart_rank(s, frame.rank);
        else if (frame.kind == GW_LAUNCH_KILL) kill_late(s, frame.rank);
        else if (frame.kind == GW_LAUNCH_NO_MORE_STARTS) s->no_more_starts = true;
        else if (frame.kind == GW_LAUNCH_PING) take_ping(s);
        else if (frame.kind == GW_LAUNCH_PAUSE) s->launcher_pauses = true;
        gw_launch_take(&s->from_launcher, &frame);
    }
    return status;
}

static gw_status listen_to_launcher(supervisor *s, gw_error *error) {
    gw_silence_heard(&s->launcher, gw_clock_now());
    if (gw_buffer_read(&s->from_launcher, s->in) != 0) return take_frames(s, error);
    lose_launcher(s, grace_of(s));
    return GW_OK;
}

static void talk_to_launcher(supervisor *s) {
    if (!s->orphaned && !gw_buffer_write(&s->to_launcher, s->out)) lose_launcher(s, grace_of(s));
    if (s->orphaned) gw_buffer_take(&s->to_launcher, gw_buffer_size(&s->to_launcher));
}

static void take_signals(supervisor *s) {
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) end_ranks(s, SIGTERM, grace_of(s));
    reap(s);
}

static int fill_polls(supervisor *s) {
    bool room = gw_buffer_size(&s->to_launcher) < BACKLOG_BYTES;
    s->polls[0] = (struct pollfd){.fd = s->signals, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = s->orphaned ? -1 : s->in, .events = POLLIN};
    s->polls[2] = (struct pollfd){.fd = gw_buffer_size(&s->to_launcher) ? s->out : -1, .events = POLLOUT};
    int count = FIXED_POLLS;
    for (int i = 0; i < s->spec.local_ranks; i++)
        for (int stream = 0; stream < 2; stream++)
            s->polls[count++] = (struct pollfd){.fd = room ? s->ranks[i].stream[stream] : -1, .events = POLLIN};
    return count;
}

static void kill_when_due(supervisor *s) {
    if (s->give_up_at != UINT64_MAX || gw_clock_now() < s->kill_at) return;
    signal_ranks(s, SIGKILL);
    s->give_up_at = gw_clock_now() + kill_budget;
}

static void check_rank(supervisor *s, int local, gw_time now) {
    const char *address = gw_liveness_address(&s->liveness, local);
    if (address) gw_launch_put(&s->to_launcher, GW_LAUNCH_ADDRESS, 0, local, address, (uint32_t)strlen(address));
    int generation, blamed;
    if (gw_liveness_asks(&s->liveness, local, &generation, &blamed))
        gw_launch_put_numbers(&s->to_launcher, GW_LAUNCH_REGROUPS, 0, local, (uint32_t)generation,
                              (uint32_t)(blamed + 1));
    gw_liveness_state state = gw_liveness_look(&s->liveness, local, now, &s->check_at);
    if (state == GW_LIVENESS_FINE) return;
    gw_launch_put_numbers(&s->to_launcher, GW_LAUNCH_HUNG, state == GW_LIVENESS_TRACED, local,
                          (uint32_t)(s->liveness.ranks[local].silence.lasted / GW_MILLISECOND),
                          atomic_load(&s->liveness.slots[s->spec.first_rank + local].pid));
    if (state == GW_LIVENESS_HUNG) kill(-s->ranks[local].pid, SIGKILL); /* its descendants follow when it is reaped */
}

/* The launcher goes on without a host that it cannot reach. The ranks of that host must be dead by then, so the grace
 * is short. */
static void check_launcher(supervisor *s, gw_time now) {
    gw_time limit = (gw_time)s->spec.silence_ms * GW_MILLISECOND;
    if (limit == 0 || s->orphaned) return;
    if (now + gw_silence_period(limit) < s->check_at) s->check_at = now + gw_silence_period(limit);
    if (s->launcher_pauses) gw_silence_heard(&s->launcher, now);
    if (gw_silence_look(&s->launcher, now, limit) < limit) return;
    gw_time rest = limit / 8;
    lose_launcher(s, rest < grace_of(s) ? rest : grace_of(s));
}

static void check(supervisor *s) {
    gw_time now = gw_clock_now();
    if (now < s->check_at) return;
    s->check_at = now + gw_silence_period((gw_time)s->spec.heartbeat_ms * GW_MILLISECOND);
    check_launcher(s, now);
    for (int i = 0; s->liveness.slots && i < s->spec.local_ranks; i++)
        if (s->ranks[i].pid) check_rank(s, i, now);
}

static bool waits_for_more(const supervisor *s) {
    return !s->no_more_starts && !s->orphaned && s->kill_at == UINT64_MAX;
}

static gw_status watch_ranks(supervisor *s, gw_error *error) {
    while ((running(s) || waits_for_more(s)) && gw_clock_now() < s->give_up_at) {
        kill_when_due(s);
        check(s);
        gw_time next = s->give_up_at != UINT64_MAX ? s->give_up_at : s->kill_at;
        if ((s->liveness.slots || s->spec.silence_ms) && s->check_at < next) next = s->check_at;
        int count = fill_polls(s);
        if (poll(s->polls, (nfds_t)count, gw_clock_poll_ms(next)) <= 0) continue;
        if (s->polls[2].revents) talk_to_launcher(s);
        if (s->polls[1].revents && listen_to_launcher(s, error) != GW_OK) return error->status;
        for (int i = FIXED_POLLS; i < count; i++)
            if (s->polls[i].revents) forward(s, (i - FIXED_POLLS) / 2, (i - FIXED_POLLS) % 2);
        if (s->polls[0].revents) take_signals(s);
        if (s->to_launcher.failed) return gw_fail(error, GW_MEMORY, "there is no memory for the output of the ranks");
    }
    return GW_OK;
}

/* The launcher may read slowly (its output may be a pager), so this waits as long as the launcher lives. */
static void flush_to_launcher(supervisor *s) {
    char ignored[256];
    while (!s->orphaned && gw_buffer_size(&s->to_launcher)) {
        struct pollfd polls[2] = {{.fd = s->in, .events = POLLIN}, {.fd = s->out, .events = POLLOUT}};
        if (poll(polls, 2, -1) < 0) continue;
        if (polls[0].revents && read(s->in, ignored, sizeof ignored) <= 0) return;
        if (polls[1].revents) talk_to_launcher(s);
    }
}

static gw_status await_spec(supervisor *s, gw_error *error) {
    gw_time deadline = gw_clock_now() + spec_budget;
    while (!s->ranks && !s->orphaned) {
        struct pollfd polls[2] = {{.fd = s->in, .events = POLLIN},
                                  {.fd = gw_buffer_size(&s->to_launcher) ? s->out : -1, .events = POLLOUT}};
        int ready = poll(polls, 2, gw_clock_poll_ms(deadline));
        if (ready == 0) return gw_fail(error, GW_TIMEOUT, "the launcher sent no host spec within 60 s");
        if (polls[1].revents) talk_to_launcher(s);
        if (polls[0].revents && listen_to_launcher(s, error) != GW_OK) return error->status;
    }
    return GW_OK;
}

gw_status gw_supervise(int in, int out, gw_error *error) {
    supervisor s = {.in = in, .out = out, .roster_file = -1, .kill_at = UINT64_MAX, .give_up_at = UINT64_MAX};
    gw_status status = GW_OK;
    s.signals = gw_signals_open(false, NULL);
    if (s.signals < 0) return gw_fail(error, GW_SYSTEM, "cannot watch signals: %s", strerror(errno));
    gw_subreaper_enable();
    gw_buffer_add(&s.to_launcher, GW_LAUNCH_HELLO, strlen(GW_LAUNCH_HELLO));
    status = await_spec(&s, error);
    if (status == GW_OK && s.ranks) status = watch_ranks(&s, error);
    int left = gw_subreaper_kill_all(kill_budget);
    for (int i = 0; s.ranks && i < s.spec.local_ranks; i++) drain(&s, i);
    gw_launch_put_numbers(&s.to_launcher, GW_LAUNCH_DONE, 0, 0, (uint32_t)left, 0);
    if (status == GW_OK) flush_to_launcher(&s);
    for (int i = 0; s.ranks && i < s.spec.local_ranks; i++)
        for (int stream = 0; stream < 2; stream++)
            if (s.ranks[i].stream[stream] >= 0) close(s.ranks[i].stream[stream]);
    gw_liveness_close(&s.liveness);
    if (s.roster_file >= 0) close(s.roster_file);
    close(s.signals);
    free(s.polls);
    free(s.ranks);
    gw_host_spec_free(&s.spec);
    gw_buffer_free(&s.spec_bytes);
    gw_buffer_free(&s.to_launcher);
    gw_buffer_free(&s.from_launcher);
    return status;
}
