/* outpost.c - see outpost.h. */
#include "launch/outpost.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launch/wire.h"

enum { NOISE_BYTES = 64 << 10, QUOTED_BYTES = 4200 };

/* A word as the shell of the other side has to read it. Plain words stay as they are, so that a remote shell which runs
 * its arguments directly (ip netns exec, docker exec -i) works as well as one that joins them for a shell (ssh). */
static bool quote_word(const char *word, char text[QUOTED_BYTES]) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=:@%~";
    if (word[strspn(word, plain)] == 0) return snprintf(text, QUOTED_BYTES, "%s", word) < QUOTED_BYTES;
    size_t used = 0;
    text[used++] = '\'';
    for (; *word; word++) {
        if (used + 8 > QUOTED_BYTES) return false;
        if (*word == '\'') {
            memcpy(text + used, "'\\''", 4);
            used += 4;
        } else {
            text[used++] = *word;
        }
    }
    text[used++] = '\'';
    text[used] = 0;
    return true;
}

/* Ctrl-C is for the launcher, which says in what order things end, and nothing is to be asked of the terminal. But not
 * a session of its own: where several hosts are one machine (a lab, containers) the kernel would share the cores out
 * among them first (autogroup), and a rank that calls sched_yield would hand over nothing. */
static void leave_terminal(void) {
    setpgid(0, 0);
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal < 0) return;
    ioctl(terminal, TIOCNOTTY);
    close(terminal);
}

/* Never returns. */
static void become_outpost(const gw_host *host, const gw_outpost_options *options, const int fds[3]) {
    char path[QUOTED_BYTES], command[QUOTED_BYTES + 16];
    const char *verb = options->command ? options->command : "supervise";
    sigset_t none;
    sigemptyset(&none);
    leave_terminal();
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0) _exit(126);
    if (host->local) {
        if (options->listen_fd >= 0) fcntl(options->listen_fd, F_SETFD, 0);
        execl("/proc/self/exe", "gradwire", verb, (char *)NULL);
    } else if (quote_word(options->remote_path, path)) {
        snprintf(command, sizeof command, "%s \"$@\"", options->rsh);
        execl("/bin/sh", "sh", "-c", command, "sh", host->name, path, verb, (char *)NULL);
    }
    dprintf(2, "cannot start: %s\n", strerror(errno));
    _exit(126);
}

void gw_outpost_close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

gw_status gw_outpost_open(gw_outpost *outpost, const gw_host *host, const gw_outpost_options *options,
                          gw_error *error) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    *outpost = (gw_outpost){.host = host, .to = -1, .from = -1, .errors = -1};
    pid_t pid = -1;
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0) goto fail;
    pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) become_outpost(host, options, (int[3]){pipes[0][0], pipes[1][1], pipes[2][1]});
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    outpost->pid = pid;
    outpost->to = pipes[0][1];
    outpost->from = pipes[1][0];
    outpost->errors = pipes[2][0];
    fcntl(outpost->errors, F_SETFL, O_NONBLOCK);
    return GW_OK;

fail:
    gw_fail(error, GW_SYSTEM, "cannot start a process for host %s: %s", host->name, strerror(errno));
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++) gw_outpost_close_fd(&pipes[i][end]);
    return GW_SYSTEM;
}

void gw_outpost_free(gw_outpost *outpost) {
    gw_outpost_close_fd(&outpost->to);
    gw_outpost_close_fd(&outpost->from);
    gw_outpost_close_fd(&outpost->errors);
    gw_buffer_free(&outpost->in);
    gw_buffer_free(&outpost->out);
    gw_buffer_free(&outpost->error_line.bytes);
}

void gw_outpost_greet(gw_outpost *outpost, gw_console *console) {
    const char *head = gw_buffer_head(&outpost->in);
    size_t size = gw_buffer_size(&outpost->in), hello = strlen(GW_WIRE_HELLO);
    const char *found = size ? memmem(head, size, GW_WIRE_HELLO, hello) : NULL;
    size_t noise = found ? (size_t)(found - head) : size > NOISE_BYTES ? size - hello : 0;
    if (noise) gw_console_lines(console, &outpost->error_line, 1, -1, outpost->host->name, head, noise);
    gw_buffer_take(&outpost->in, noise + (found ? hello : 0));
    outpost->greeted = found != NULL;
}
