/* console.h - the launcher's own standard output and standard error. It prints the output of the ranks as whole lines,
 * each with its rank, in order of arrival. Nothing here blocks: bytes wait until poll reports the descriptor
 * writable. */
#ifndef GW_LAUNCH_CONSOLE_H
#define GW_LAUNCH_CONSOLE_H

#include "launch/byte_queue.h"

#define GW_LINE_MAX_BYTES (1u << 20) /* a longer line is split into several */
#define GW_LABEL_BYTES 320

typedef struct gw_console_options {
    int fd[2];        /* standard output and error */
    bool terminal[2]; /* it is a terminal: \r ends a line too, so progress bars move */
    bool colour[2];
    bool prefix; /* false: the ranks' bytes are printed unchanged */
} gw_console_options;

typedef struct gw_console {
    gw_console_options options;
    bool closed[2];   /* a write failed: output to this stream is dropped */
    bool interrupted; /* by the user: what ranks complain about other ranks is not printed any more */
    gw_buffer bytes;
    gw_buffer runs; /* which bytes go to which stream (console.c) */
} gw_console;

/* The unfinished line of one stream of one rank. */
typedef struct gw_console_line {
    gw_buffer bytes;
    size_t searched; /* bytes already searched; they hold no line end */
} gw_console_line;

/* Prints output of `rank` or, if rank is -1, of `name` (a host's remote shell, or a server). stream: 0 or 1. */
void gw_console_lines(gw_console *console, gw_console_line *line, int stream, int rank, const char *name,
                      const char *data, size_t bytes);
/* The stream has ended: prints the unfinished line. */
void gw_console_flush_line(gw_console *console, gw_console_line *line, int stream, int rank, const char *name);
/* Prints a line of the launcher itself to standard error. */
void gw_console_say(gw_console *console, const char *text);

/* The descriptor to write to next; -1: the queue is empty. */
int gw_console_fd(const gw_console *console);
/* Writes at most PIPE_BUF bytes. Returns 0, or the errno for which the stream was closed. */
int gw_console_write(gw_console *console);
void gw_console_free(gw_console *console);

#endif
