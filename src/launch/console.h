/* console.h - the launcher's own output: what the ranks print, whole lines, each with its rank, in the order in which
 * it came, to standard output and standard error. Nothing here blocks: bytes wait until poll finds the descriptor
 * ready. */
#ifndef GW_LAUNCH_CONSOLE_H
#define GW_LAUNCH_CONSOLE_H

#include "launch/buffer.h"

#define GW_LINE_MAX_BYTES (1u << 20) /* a longer line is cut into pieces that are lines of their own */
#define GW_LABEL_BYTES 320

typedef struct gw_console_options {
    int fd[2];        /* standard output and error */
    bool terminal[2]; /* progress bars (\r) are shown as they move */
    bool colour[2];
    bool prefix; /* false: the bytes of the ranks as they are */
} gw_console_options;

typedef struct gw_console {
    gw_console_options options;
    bool closed[2]; /* a write failed: this stream is thrown away */
    gw_buffer bytes;
    gw_buffer segments; /* which bytes go to which stream, see console.c */
} gw_console;

/* The unfinished line of one stream of one rank. */
typedef struct gw_line {
    gw_buffer bytes;
    size_t searched; /* no line ends in these bytes */
} gw_line;

/* Lines of `rank`, or where rank is -1 of the host `name` (what its remote shell says). stream: 0 or 1. */
void gw_console_lines(gw_console *console, gw_line *line, int stream, int rank, const char *name, const char *data,
                      size_t bytes);
/* The stream is at its end: an unfinished line is printed too. */
void gw_console_flush_line(gw_console *console, gw_line *line, int stream, int rank, const char *name);
/* A line of the launcher itself, to standard error. */
void gw_console_say(gw_console *console, const char *text);

/* The descriptor that is written to next, -1: nothing waits. */
int gw_console_fd(const gw_console *console);
/* Writes a little. Returns 0, or the errno with which the stream was closed. */
int gw_console_write(gw_console *console);
void gw_console_free(gw_console *console);

#endif
