/* small_job.h - for tests of the public calls: forks the ranks of a small job, each of which joins and runs a function.
 */
#ifndef GW_TEST_SMALL_JOB_H
#define GW_TEST_SMALL_JOB_H

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "free_port.h"
#include "gradwire/reducer.h"
#include "test.h"

static gw_options job_options(int rank, int world, int port, const char *strategy) {
    gw_options options = GW_OPTIONS_DEFAULT;
    options.rank = rank;
    options.world = world;
    options.master_port = port;
    options.strategy = strategy;
    options.token = "a token for the tests, of some length";
    options.deadline_s = 20;
    return options;
}

/* Forks `world` processes; each runs body(rank). The checks that failed there count here. */
static void job_fork(int world, void (*body)(int rank)) {
    pid_t ranks[16];
    fflush(stdout);
    for (int r = 0; r < world; r++) {
        ranks[r] = fork();
        if (ranks[r] < 0) abort();
        if (ranks[r] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        test_failures = 0;
        body(r);
        exit(test_failures != 0);
    }
    for (int r = 0; r < world; r++) {
        int result = -1;
        waitpid(ranks[r], &result, 0);
        CHECK_EQ(0, result);
    }
}

#endif
