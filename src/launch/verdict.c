/* verdict.c - see verdict.h. */
#include "launch/verdict.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "launch/job.h"

gw_rank_text gw_rank_name(int rank, int workers) {
    gw_rank_text name;
    bool serves = rank >= workers;
    snprintf(name.text, sizeof name.text, serves ? "server %d" : "rank %d", serves ? rank - workers : rank);
    return name;
}

void gw_verdict_set(gw_verdict *verdict, gw_verdict_weight weight, int code, const char *format, ...) {
    if (weight <= verdict->weight || (weight == GW_VERDICT_FINAL && verdict->weight != GW_VERDICT_NONE)) return;
    verdict->weight = weight;
    verdict->code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, args);
    va_end(args);
}

bool gw_verdict_exited(gw_verdict *verdict, const char *who, const char *host, int status, uint32_t after_ms) {
    double seconds = after_ms / 1000.0;
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        gw_verdict_set(verdict, GW_VERDICT_DEATH, 128 + number,
                       "%s on host %s was killed by signal %d (%s%s) after %.1f s", who, host, number,
                       strsignal(number), WCOREDUMP(status) ? ", core dumped" : "", seconds);
        return true;
    }
    int code = WEXITSTATUS(status);
    if (code == 0) return false;
    if (code == GW_JOB_FOLLOWED) {
        gw_verdict_set(verdict, GW_VERDICT_FOLLOWED, 1,
                       "%s on host %s ended because another rank had failed, after %.1f s", who, host, seconds);
        return true;
    }
    gw_verdict_set(verdict, GW_VERDICT_EXIT_CODE, code, "%s on host %s ended with exit code %d after %.1f s", who, host,
                   code, seconds);
    return true;
}

void gw_verdict_no_start(gw_verdict *verdict, const char *who, const char *host, gw_start_step step, int number,
                         const char *program, const char *directory) {
    int code = step == GW_START_PROGRAM && number == ENOENT ? GW_JOB_NOT_FOUND : GW_JOB_NOT_RUNNABLE;
    if (step == GW_START_DIRECTORY)
        gw_verdict_set(verdict, GW_VERDICT_FINAL, code, "cannot enter the directory %s on host %s for %s: %s",
                       directory, host, who, strerror(number));
    else
        gw_verdict_set(verdict, GW_VERDICT_FINAL, code, "cannot start %s on host %s as %s: %s", program, host, who,
                       strerror(number));
}

/* The cause for a host that had answered before. */
static void lose_host(gw_verdict *verdict, const gw_host_connection *connection, const char *what, int code) {
    const gw_host *host = connection->host;
    char why[96];
    if (connection->silent)
        snprintf(why, sizeof why, "it has not answered for %.1f s",
                 (double)connection->silence.lasted / (double)GW_SECOND);
    else if (connection->cut)
        snprintf(why, sizeof why, "its ranks and those of the other hosts do not reach each other");
    else snprintf(why, sizeof why, "its %s ended with exit code %d", what, code);
    gw_verdict_set(verdict, GW_VERDICT_DEATH, GW_JOB_HOST_LOST, "host %s was lost with %s %d to %d: %s", host->name,
                   host->serves ? "the servers that are ranks" : "ranks", host->first_rank,
                   host->first_rank + host->ranks - 1, why);
}

void gw_verdict_host_lost(gw_verdict *verdict, const gw_host_connection *connection, const char *remote_path) {
    const gw_host *host = connection->host;
    int code = WIFEXITED(connection->status) ? WEXITSTATUS(connection->status) : 128 + WTERMSIG(connection->status);
    const char *what = host->local ? "supervisor" : "remote shell";
    if (connection->greeted) lose_host(verdict, connection, what, code);
    else if (!host->local && (code == 127 || code == 126))
        gw_verdict_set(verdict, GW_VERDICT_FINAL, GW_JOB_HOST_LOST,
                       "cannot start %s on host %s (the remote shell ended with exit code %d); install gradwire there "
                       "or name its path with --remote-path",
                       remote_path, host->name, code);
    else
        gw_verdict_set(verdict, GW_VERDICT_FINAL, GW_JOB_HOST_LOST,
                       "cannot reach host %s: the %s ended with exit code %d", host->name, what, code);
}
