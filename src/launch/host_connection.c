/* host_connection.c - see host_connection.h. */
#include "launch/host_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launch/launch_protocol.h"

enum { NOISE_BYTES = 64 << 10, QUOTED_BYTES = 4200 };

/* Quotes a word for the shell of the other side. Plain words stay unchanged, so a remote shell that executes its
 * arguments directly (ip netns exec, docker exec -i) works as well as one that joins them for a shell (ssh). */
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

/* Ctrl-C must reach only the launcher, which ends the hosts in order, and a remote shell must not prompt on the
 * terminal. No setsid: if several hosts are one machine (a lab, containers), the kernel divides the cores among
 * sessions first (autogroup), and a rank that calls sched_yield would not yield to ranks of other sessions. */
static void leave_terminal(void) {
    setpgid(0, 0);
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal < 0) return;
    ioctl(terminal, TIOCNOTTY);
    close(terminal);
}

/* Never returns. */
static void exec_supervisor(const gw_host *host, const gw_host_connection_options *options, const int fds[3]) {
    char path[QUOTED_BYTES], command[QUOTED_BYTES + 16];
    const char *verb = options->command ? options->command : "supervise";
    sigset_t none;
    sigemptyset(&none);
    leave_terminal();
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
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

void gw_host_connection_close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

gw_status gw_host_connection_open(gw_host_connection *connection, const gw_host *host,
                                  const gw_host_connection_options *options, gw_error *error) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    *connection = (gw_host_connection){.host = host, .to = -1, .from = -1, .errors = -1};
    pid_t pid = -1;
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0) goto fail;
    pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) exec_supervisor(host, options, (int[3]){pipes[0][0], pipes[1][1], pipes[2][1]});
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    connection->pid = pid;
    connection->to = pipes[0][1];
    connection->from = pipes[1][0];
    connection->errors = pipes[2][0];
    fcntl(connection->errors, F_SETFL, O_NONBLOCK);
    return GW_OK;

fail:
    gw_fail(error, GW_SYSTEM, "cannot start a process for host %s: %s", host->name, strerror(errno));
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++) gw_host_connection_close_fd(&pipes[i][end]);
    return GW_SYSTEM;
}

void gw_host_connection_free(gw_host_connection *connection) {
    gw_host_connection_close_fd(&connection->to);
    gw_host_connection_close_fd(&connection->from);
    gw_host_connection_close_fd(&connection->errors);
    gw_buffer_free(&connection->in);
    gw_buffer_free(&connection->out);
    gw_buffer_free(&connection->error_line.bytes);
}

void gw_host_connection_greet(gw_host_connection *connection, gw_console *console) {
    const char *head = gw_buffer_head(&connection->in);
    size_t size = gw_buffer_size(&connection->in), hello = strlen(GW_LAUNCH_HELLO);
    const char *found = size ? memmem(head, size, GW_LAUNCH_HELLO, hello) : NULL;
    size_t noise = found ? (size_t)(found - head) : size > NOISE_BYTES ? size - hello : 0;
    if (noise) gw_console_lines(console, &connection->error_line, 1, -1, connection->host->name, head, noise);
    gw_buffer_take(&connection->in, noise + (found ? hello : 0));
    connection->greeted = found != NULL;
}
