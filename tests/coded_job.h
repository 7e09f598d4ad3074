/* coded_job.h - for tests of gradwire/coded.h: a small job whose ranks open coded collectives. */
#ifndef GW_TEST_CODED_JOB_H
#define GW_TEST_CODED_JOB_H

#include "gradwire/coded.h"
#include "small_job.h"

#define COUNT 6000 /* elements */

static int job_world, job_port;
static const char *job_line; /* of the communicator */

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, job_world, job_port, job_line);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void run_job(int size, const char *strategy, void (*body)(int rank)) {
    job_world = size;
    job_line = strategy;
    job_port = free_port();
    job_fork(size, body);
}

static gw_coded_options make_options(gw_collective what, const char *strategy, size_t count) {
    gw_coded_options o = GW_CODED_OPTIONS_DEFAULT;
    o.collective = what;
    o.strategy = strategy;
    o.name = "layer";
    o.count = count;
    o.seed = 5;
    return o;
}

static gw_coded *open_one(gw_comm *comm, const gw_coded_options *options) {
    gw_coded *coded = NULL;
    gw_status status = gw_coded_open(&coded, comm, options);
    CHECK_EQ(GW_OK, status);
    if (status) printf("    %s: %s\n", options->strategy, gw_last_error(NULL));
    return coded;
}

#endif
