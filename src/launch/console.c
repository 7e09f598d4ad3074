/* console.c - see console.h. Both streams share one queue. This keeps their order, and keeps lines whole if both are
 * the same terminal. */
#include "launch/console.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Consecutive bytes of the queue that go to one stream. */
typedef struct run {
    int stream;
    size_t bytes;
} run;

static void put(gw_console *c, int stream, const char *data, size_t bytes) {
    if (bytes == 0 || c->closed[stream]) return;
    gw_buffer_add(&c->bytes, data, bytes);
    run last = {.stream = -1};
    if (gw_buffer_size(&c->runs)) memcpy(&last, c->runs.data + c->runs.end - sizeof last, sizeof last);
    if (last.stream == stream) {
        last.bytes += bytes;
        memcpy(c->runs.data + c->runs.end - sizeof last, &last, sizeof last);
    } else {
        last = (run){stream, bytes};
        gw_buffer_add(&c->runs, &last, sizeof last);
    }
}

static void put_label(gw_console *c, int stream, int rank, const char *name) {
    static const char *const colours[] = {"36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91"};
    char label[GW_LABEL_BYTES], text[GW_LABEL_BYTES / 2 + 128];
    if (rank >= 0) snprintf(text, sizeof text, "[%d]", rank);
    else snprintf(text, sizeof text, "[%s]", name);
    if (c->options.colour[stream] && rank >= 0)
        snprintf(label, sizeof label, "\033[%sm%s\033[0m ", colours[rank % (int)(sizeof colours / sizeof colours[0])],
                 text);
    else snprintf(label, sizeof label, "%s ", text);
    put(c, stream, label, strlen(label));
}

/* What a rank says about other ranks while all of them are being ended explains nothing. */
static bool is_noise(const gw_console *c, const char *data, size_t bytes) {
    static const char complaint[] = "gradwire warn: rank ";
    return c->interrupted && bytes >= sizeof complaint - 1 && memcmp(data, complaint, sizeof complaint - 1) == 0;
}

static void put_line(gw_console *c, int stream, int rank, const char *name, const char *data, size_t bytes) {
    if (stream == 1 && is_noise(c, data, bytes)) return;
    bool label = c->options.prefix || rank < 0;
    if (label) put_label(c, stream, rank, name);
    put(c, stream, data, bytes);
    char last = bytes ? data[bytes - 1] : 0;
    if (label && last != '\n' && !(last == '\r' && c->options.terminal[stream])) put(c, stream, "\n", 1);
}

/* Bytes of the first line, its end included; 0: the line is not complete yet. */
static size_t line_bytes(const gw_console_line *line, bool terminal) {
    const char *data = gw_buffer_head(&line->bytes);
    size_t size = gw_buffer_size(&line->bytes);
    const char *from = data + line->searched;
    const char *newline = memchr(from, '\n', size - line->searched);
    const char *end = newline ? newline : data + size;
    for (const char *r = from; terminal && (r = memchr(r, '\r', (size_t)(end - r))); r++)
        if (r + 1 < data + size && r[1] != '\n') return (size_t)(r - data) + 1;
    if (newline) return (size_t)(newline - data) + 1;
    return size > GW_LINE_MAX_BYTES ? GW_LINE_MAX_BYTES : 0;
}

void gw_console_lines(gw_console *console, gw_console_line *line, int stream, int rank, const char *name,
                      const char *data, size_t bytes) {
    bool terminal = console->options.terminal[stream];
    gw_buffer_add(&line->bytes, data, bytes);
    for (size_t length; gw_buffer_size(&line->bytes) && (length = line_bytes(line, terminal));) {
        put_line(console, stream, rank, name, gw_buffer_head(&line->bytes), length);
        gw_buffer_take(&line->bytes, length);
        line->searched = 0;
    }
    size_t size = gw_buffer_size(&line->bytes);
    line->searched = terminal && size ? size - 1 : size; /* a last \r is checked again with the next byte */
}

void gw_console_flush_line(gw_console *console, gw_console_line *line, int stream, int rank, const char *name) {
    size_t size = gw_buffer_size(&line->bytes);
    if (size) put_line(console, stream, rank, name, gw_buffer_head(&line->bytes), size);
    gw_buffer_take(&line->bytes, size);
    line->searched = 0;
}

void gw_console_say(gw_console *console, const char *text) {
    put(console, 1, "gradwire: ", 10);
    put(console, 1, text, strlen(text));
    put(console, 1, "\n", 1);
}

int gw_console_fd(const gw_console *console) {
    if (gw_buffer_size(&console->runs) == 0) return -1;
    run first;
    memcpy(&first, gw_buffer_head(&console->runs), sizeof first);
    return console->options.fd[first.stream];
}

static void drop(gw_console *c, run *first, size_t bytes) {
    gw_buffer_take(&c->bytes, bytes);
    first->bytes -= bytes;
    memcpy(c->runs.data + c->runs.start, first, sizeof *first);
    if (first->bytes == 0) gw_buffer_take(&c->runs, sizeof *first);
}

int gw_console_write(gw_console *console) {
    if (console->bytes.failed || console->runs.failed) {
        gw_console_free(console);
        console->closed[0] = console->closed[1] = true;
        return ENOMEM;
    }
    run first;
    memcpy(&first, gw_buffer_head(&console->runs), sizeof first);
    size_t bytes = first.bytes < PIPE_BUF ? first.bytes : PIPE_BUF;
    ssize_t written = write(console->options.fd[first.stream], gw_buffer_head(&console->bytes), bytes);
    if (written >= 0) {
        drop(console, &first, (size_t)written);
        return 0;
    }
    if (errno == EINTR || errno == EAGAIN) return 0;
    int number = errno;
    console->closed[first.stream] = true;
    drop(console, &first, first.bytes);
    return number;
}

void gw_console_free(gw_console *console) {
    gw_buffer_free(&console->bytes);
    gw_buffer_free(&console->runs);
}
