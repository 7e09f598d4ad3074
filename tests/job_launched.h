/* job_launched.h - ranks of a job (fault_job.h, which includes this) that a launcher starts: an MPI's for
 * transport=mpi, or gradwire run. TEST_LAUNCHER="mpirun.openmpi --oversubscribe". The ranks run this program again, and
 * read their task from JOB_FILE, memory that the test shares with them. */
#ifndef GW_TEST_JOB_LAUNCHED_H
#define GW_TEST_JOB_LAUNCHED_H

#define LAUNCHER_WORDS 16
#define LAUNCH_SECONDS 20

static void job_exec_launcher(const char *line, int world) {
    char words[256], self[256] = "", count[16], *list[LAUNCHER_WORDS + 4];
    int n = 0;
    snprintf(words, sizeof words, "%s", line);
    snprintf(count, sizeof count, "%d", world);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) abort();
    for (char *word = strtok(words, " "); word && n < LAUNCHER_WORDS; word = strtok(NULL, " ")) list[n++] = word;
    char *const rest[] = {"-n", count, self, NULL};
    for (int i = 0; i < 4; i++) list[n++] = rest[i];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execvp(list[0], list);
    _exit(127);
}

/* Returns when all ranks have joined, for MPI takes seconds to start. A function is known by where it lies in the
 * program. */
static void job_launch(job *j, const char *line) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), j->file);
    j->shared->job = *j;
    j->shared->body_at = (intptr_t)j->body - (intptr_t)job_run_rank;
    setenv("JOB_FILE", path, 1);
    j->launcher = fork();
    if (j->launcher < 0) abort();
    if (j->launcher == 0) job_exec_launcher(line, j->world);
    unsetenv("JOB_FILE");
    gw_time until = gw_clock_now() + LAUNCH_SECONDS * JOB_BUSY * GW_SECOND;
    for (int r = 0; r < j->world; r++) {
        const job_member *member = &j->shared->member[r];
        if (j->absent == r + 1) continue;
        while (!atomic_load(&member->joined) && !atomic_load(&member->ended) && gw_clock_now() < until) usleep(500);
        j->pid[r] = atomic_load(&member->pid);
    }
}

/* Before main(): a process that a launcher has started is a rank and nothing else. */
__attribute__((constructor)) static void job_be_launched(void) {
    const char *path = getenv("JOB_FILE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (!rank) rank = getenv("RANK");
    if (!path || !rank) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    job_shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || shared == MAP_FAILED) abort();
    if (shared->job.absent == atoi(rank) + 1) exit(0);
    job j = shared->job;
    j.shared = shared;
    j.launcher = getppid();
    j.me = atoi(rank);
    j.body = (job_body *)((intptr_t)job_run_rank + shared->body_at);
    atomic_store(&shared->member[j.me].pid, getpid());
    job_run_rank(&j);
}

/* As job_reap: 0 when it is gone, -1 when it had to be killed. How it ended, only its launcher knows. */
static int job_gone(job *j, int rank, double seconds) {
    gw_time until = gw_clock_now() + (gw_time)(seconds * JOB_BUSY * 1e9);
    pid_t pid = j->pid[rank];
    j->pid[rank] = 0;
    while (kill(pid, 0) == 0 && gw_clock_now() < until) usleep(500);
    return kill(pid, SIGKILL) == 0 ? -1 : 0;
}

/* The launcher must end when its ranks have. */
static bool job_launcher_ended(pid_t pid, double seconds) {
    gw_time until = gw_clock_now() + (gw_time)(seconds * JOB_BUSY * 1e9);
    pid_t got;
    while ((got = waitpid(pid, NULL, WNOHANG)) == 0 && gw_clock_now() < until) usleep(500);
    if (got != 0) return true;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return false;
}

#endif
