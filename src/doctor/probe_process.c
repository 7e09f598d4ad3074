/* probe_process.c - see probe_process.h. */
#include "doctor/probe_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK (250 * GW_MILLISECOND)
#define END_BUDGET GW_SECOND

enum { POLLS_EACH = 3 };

void gw_probe_command(gw_probe_process *probe, const char *format, ...) {
    char line[GW_DOCTOR_LINE_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (probe->over || length < 0 || length >= (int)sizeof line - 1) return;
    line[length++] = '\n';
    gw_buffer_add(&probe->connection.out, line, (size_t)length);
    explicit_bzero(line, sizeof line); /* one of them holds the token */
}

static void note(gw_probe_process *probe, const char *line) {
    if (!line[0]) return;
    snprintf(probe->said, sizeof probe->said, "%.250s", line);
    for (char *c = probe->said; *c; c++)
        if ((unsigned char)*c < ' ') *c = '?';
}

/* ---- reports ---- */

static void take_lines(gw_probe_processes *s, int host) {
    char line[GW_DOCTOR_LINE_BYTES];
    gw_buffer *in = &s->list[host].connection.in;
    size_t size;
    while ((size = gw_buffer_size(in))) {
        const char *head = gw_buffer_head(in), *newline = memchr(head, '\n', size);
        if (!newline && size < sizeof line) return;
        size_t length = newline ? (size_t)(newline - head) : size, kept = length;
        if (kept >= sizeof line) kept = sizeof line - 1;
        memcpy(line, head, kept);
        line[kept] = 0;
        gw_buffer_take(in, length + (newline != NULL));
        line[strcspn(line, "\r")] = 0;
        s->received(s->ctx, host, line);
        if (!s->list[host].greeted) note(&s->list[host], line);
    }
}

static void take_errors(gw_probe_process *probe) {
    char *text = probe->complaint;
    ssize_t got = read(probe->connection.errors, text + probe->complaint_bytes,
                       sizeof probe->complaint - 1 - probe->complaint_bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) probe->complaint_bytes += (size_t)got;
    text[probe->complaint_bytes] = 0;
    bool full = probe->complaint_bytes == sizeof probe->complaint - 1;
    for (char *newline; (newline = strchr(text, '\n')) || ((got <= 0 || full) && text[0]); full = false) {
        size_t length = newline ? (size_t)(newline - text) : strlen(text);
        char kept = text[length];
        text[length] = 0;
        note(probe, text);
        text[length] = kept;
        probe->complaint_bytes = strlen(text + length + (newline != NULL));
        memmove(text, text + length + (newline != NULL), probe->complaint_bytes + 1);
    }
    if (got <= 0) gw_host_connection_close_fd(&probe->connection.errors);
}

static void read_reports(gw_probe_processes *s, int host) {
    gw_probe_process *probe = &s->list[host];
    long got = gw_buffer_read(&probe->connection.in, probe->connection.from);
    take_lines(s, host);
    if (got != 0) return;
    gw_host_connection_close_fd(&probe->connection.from);
    gw_host_connection_close_fd(&probe->connection.to);
    probe->over = true;
    probe->awaited = 0;
}

/* ---- the loop ---- */

static int awaited(const gw_probe_processes *s) {
    int count = 0;
    for (int i = 0; i < s->count; i++) count += s->list[i].awaited;
    return count;
}

static void fill(const gw_probe_processes *s, struct pollfd *polls) {
    for (int i = 0; i < s->count; i++) {
        const gw_host_connection *o = &s->list[i].connection;
        polls[i * POLLS_EACH] = (struct pollfd){.fd = o->from, .events = POLLIN};
        polls[i * POLLS_EACH + 1] = (struct pollfd){.fd = o->errors, .events = POLLIN};
        polls[i * POLLS_EACH + 2] = (struct pollfd){.fd = gw_buffer_size(&o->out) ? o->to : -1, .events = POLLOUT};
    }
}

bool gw_probe_processes_wait(gw_probe_processes *s, gw_time budget, void (*idle)(void *ctx)) {
    struct pollfd polls[GW_DOCTOR_HOSTS_MAX * POLLS_EACH];
    gw_time now = gw_clock_now(), deadline = now + budget, tick = now + TICK;
    while (awaited(s) && (now = gw_clock_now()) < deadline) {
        gw_time next = tick < deadline ? tick : deadline;
        fill(s, polls);
        int wait_ms = next > now ? (int)((next - now) / GW_MILLISECOND + 1) : 0;
        int ready = poll(polls, (nfds_t)(s->count * POLLS_EACH), wait_ms);
        for (int i = 0; i < s->count && ready > 0; i++) {
            gw_host_connection *o = &s->list[i].connection;
            if (polls[i * POLLS_EACH + 2].revents && !gw_buffer_write(&o->out, o->to))
                gw_host_connection_close_fd(&o->to);
            if (polls[i * POLLS_EACH + 1].revents) take_errors(&s->list[i]);
            if (polls[i * POLLS_EACH].revents) read_reports(s, i);
        }
        if (gw_clock_now() < tick) continue;
        tick = gw_clock_now() + TICK;
        if (idle) idle(s->ctx);
    }
    return awaited(s) == 0;
}

/* ---- the end ---- */

static int reap(gw_probe_processes *s) {
    int left = 0;
    for (int i = 0; i < s->count; i++) {
        gw_host_connection *o = &s->list[i].connection;
        if (o->pid > 0 && waitpid(o->pid, &o->status, WNOHANG) != 0) o->pid = 0;
        left += o->pid > 0;
    }
    return left;
}

void gw_probe_processes_close(gw_probe_processes *s) {
    gw_time deadline = gw_clock_now() + END_BUDGET;
    for (int i = 0; i < s->count; i++)
        gw_host_connection_close_fd(&s->list[i].connection.to); /* a probe ends with its commands */
    while (reap(s) && gw_clock_now() < deadline) poll(NULL, 0, 5);
    for (int i = 0; i < s->count; i++)
        if (s->list[i].connection.pid > 0) kill(-s->list[i].connection.pid, SIGKILL);
    deadline = gw_clock_now() + END_BUDGET;
    while (reap(s) && gw_clock_now() < deadline) poll(NULL, 0, 5);
    for (int i = 0; i < s->count; i++) gw_host_connection_free(&s->list[i].connection);
    free(s->list);
    s->list = NULL;
}
