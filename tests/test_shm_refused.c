/* test_shm_refused.c - shared memory that some rank of a host cannot have: all ranks of the host agree to do without,
 * and one of them says why. */
#include "small_job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define RANKS 3
#define NOBODY 65534

static int world_port, closed_rank;
static char folder[64];
static const char *strategy;

/* Root opens everything, so the ranks are another user, as in real life. */
static void become_somebody(int rank) {
    char path[128];
    snprintf(path, sizeof path, "%s/err.%d", folder, rank);
    int err = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (err < 0 || dup2(err, STDERR_FILENO) < 0) abort();
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) abort();
    prctl(PR_SET_DUMPABLE, 1); /* setresuid has cleared it */
    setenv("GRADWIRE_FLIGHT_DIR", "/proc/none", 1);
}

static void compute(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, RANKS, world_port, strategy);
    options.deadline_s = 10;
    if (gw_init(&comm, &options) != GW_OK) {
        printf("    rank %d: %s\n", rank, gw_last_error(NULL));
        test_failures++;
        return;
    }
    for (int round = 0; round < 20; round++) {
        float x[300], y[300];
        for (int i = 0; i < 300; i++) x[i] = (float)(rank + i + round);
        CHECK_EQ(GW_OK, gw_allreduce(comm, x, y, 300, GW_F32, GW_SUM));
        for (int i = 0; i < 300; i++) CHECK(y[i] == (float)(3 * (i + round) + 3));
    }
    gw_finalize(comm);
}

static void compute_not_dumpable(int rank) {
    become_somebody(rank);
    if (rank == closed_rank) prctl(PR_SET_DUMPABLE, 0);
    compute(rank);
    prctl(PR_SET_DUMPABLE, 1); /* for the leak sanitizer */
}

static void refuse_memfd(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
}

static void compute_without_memfd(int rank) {
    become_somebody(rank);
    if (rank == closed_rank || closed_rank < 0) refuse_memfd();
    compute(rank);
}

static void refused_alone(int rank) {
    gw_comm *comm = NULL;
    become_somebody(rank);
    if (rank == closed_rank) prctl(PR_SET_DUMPABLE, 0);
    gw_options options = job_options(rank, RANKS, world_port, strategy);
    CHECK_EQ(GW_UNSUPPORTED, gw_init(&comm, &options));
    CHECK(strstr(gw_last_error(NULL), "no shared memory with rank") != NULL);
    prctl(PR_SET_DUMPABLE, 1);
}

/* Runs the job; its ranks have printed `lines` lines, and the text is in the first. */
static void expect_warning(void (*body)(int), int lines, const char *text) {
    char command[128], output[4096];
    snprintf(folder, sizeof folder, "/tmp/gradwire-test-XXXXXX");
    if (!mkdtemp(folder)) abort();
    world_port = free_port();
    job_fork(RANKS, body);
    snprintf(command, sizeof command, "cat %s/err.*", folder);
    FILE *all = popen(command, "r");
    size_t got = fread(output, 1, sizeof output - 1, all);
    pclose(all);
    output[got] = 0;
    int seen = 0;
    for (char *c = output; *c; c++) seen += *c == '\n';
    if (seen != lines || !strstr(output, text)) {
        printf("    not %d lines with \"%s\":\n%s", lines, text, output);
        test_failures++;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(0, system(command));
}

static void one_that_is_not_dumpable(void) {
    strategy = "transport=auto";
    for (closed_rank = 0; closed_rank < RANKS; closed_rank++)
        expect_warning(compute_not_dumpable, 1,
                       "Permission denied (is that process set-uid, or not dumpable?); using tcp on this host instead");
}

static void no_other_transport(void) {
    strategy = "transport=shm";
    closed_rank = 1;
    expect_warning(refused_alone, 0, "");
}

static void memfd_is_refused(void) {
    strategy = "transport=auto";
    for (closed_rank = -1; closed_rank < RANKS; closed_rank++)
        expect_warning(compute_without_memfd, 1, "memfd_create: Operation not permitted; using tcp on this host");
}

static void all_is_well(void) {
    strategy = "transport=auto";
    closed_rank = RANKS;
    expect_warning(compute_not_dumpable, 0, "");
}

TEST_MAIN(CASE(all_is_well), CASE(one_that_is_not_dumpable), CASE(no_other_transport), CASE(memfd_is_refused))
