/* helper_product.c - the product of all kinds of calls: arch x transport x world x collective x type x operation x size
 * x memory x in place or not x blocking, started or grouped, with real processes, against a reference.
 *
 *     helper_product small|quick|full|huge [-o TRANSPORT] [-l LAUNCHER] [-t NAMESPACE,...] [-j PART] [-v]
 *
 * A job is one (arch, transport, world): its ranks are forked, join, and go through a list of cases and the scenes; a
 * second run of new processes (quick and small: of every third job) must give the same bits. quick: in each job the
 * small sizes' covering selection (every pair of values meets), and over all jobs a covering selection of everything,
 * large sizes included. small: without the large sizes (for sanitizers). full: in each job every type x operation x
 * size of the all-reduce and every collective x type x operation up to 1 MiB. huge: two ranks reduce more than 2 GiB.
 * With namespaces the ranks are spread over them, and each counts as a host. -o: over this transport (as in a
 * strategy: rdma:provider=shm) instead of all that need no library. -l: this command ("mpirun.openmpi
 * --oversubscribe"), followed by -n, their number and their program, starts the ranks and sets their environment. -j:
 * only jobs whose name contains PART. -v: a line for every job. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "free_port.h"
#include "product_pairs.h"
#include "product_scenes.h"
#include "transport/transport_registry.h"

#define JOB_SECONDS 120
#define CASES_MAX 4096
#define HOSTS_MAX 4
#define WORDS_MAX 24

static const char *const archs[] = {"auto", "ring", "halving", "tree", "direct", "hierarchical", "mpi"};
#define TRANSPORTS_MAX 16
static const char *transports[TRANSPORTS_MAX]; /* as in a strategy */
static int arch_count = 6, transport_count;    /* the last arch only over transports with an all-reduce of their own */

typedef struct product_job {
    int arch, transport, world;
    bool apart_hosts; /* spread over namespaces, in turns if interleaved, else in blocks */
    bool interleaved;
    bool again; /* only what the second run compares */
    int port;
    product_case cases[CASES_MAX];
    int count;
} product_job;

typedef enum product_extent { EXTENT_SMALL, EXTENT_QUICK, EXTENT_FULL, EXTENT_HUGE, EXTENTS } product_extent;

static product_extent extent = EXTENT_QUICK;
static bool verbose;
static const char *only = "";
static char *hosts[HOSTS_MAX]; /* namespaces */
static int host_count;
static char *launcher[WORDS_MAX]; /* words of -l */
static int launcher_words;
static product_job job;

/* What ranks that are not our children find by its path. */
typedef struct product_file {
    product_common common;
    product_extent extent;
    product_job job;
    char transport[64];
} product_file;

static product_file *file;
static char file_path[64];

/* The lists of cases. */

/* All axes; the first three choose the job. Reductions and moves apart: a pair with an operation counts only where
 * there is one. */
static pair_rows *over_jobs[3];
static pair_rows *in_job[2]; /* without arch, transport and world, small sizes */

static void make_selections(void) {
    int sizes = extent == EXTENT_SMALL ? SIZE_1023 + 1 : SIZE_64M + 1;
    int moves = P_COLLECTIVES - P_BROADCAST;
    over_jobs[0] = pairs_make(
        10,
        (int[]){arch_count, transport_count, RANKS_MAX, 1, GW_DTYPES, GW_REDOPS, sizes, MEMORIES, PLACEMENTS, MODES},
        1);
    over_jobs[1] = pairs_make(
        10,
        (int[]){arch_count, transport_count, RANKS_MAX, 3, GW_DTYPES, GW_REDOPS, sizes, MEMORIES, PLACEMENTS, MODES},
        2);
    over_jobs[2] = pairs_make(
        10, (int[]){arch_count, transport_count, RANKS_MAX, moves, GW_DTYPES, 1, sizes, MEMORIES, PLACEMENTS, MODES},
        3);
    in_job[0] =
        pairs_make(7, (int[]){P_BROADCAST, GW_DTYPES, GW_REDOPS, SIZE_1023 + 1, MEMORIES, PLACEMENTS, MODES}, 4);
    in_job[1] = pairs_make(7, (int[]){moves, GW_DTYPES, 1, SIZE_1023 + 1, MEMORIES, PLACEMENTS, MODES}, 5);
    printf("     %d + %d + %d cases in which all pairs meet, and %d + %d small ones in each job\n", over_jobs[0]->count,
           over_jobs[1]->count, over_jobs[2]->count, in_job[0]->count, in_job[1]->count);
}

static void add_case(int collective, const int *rest) {
    unsigned number = (unsigned)job.count + (unsigned)(job.arch * 31 + job.transport * 7 + job.world);
    int op = gw_redop_refuses((gw_dtype)rest[0], (gw_redop)rest[1]) ? GW_SUM : rest[1]; /* the other pairs still meet */
    if (job.count == CASES_MAX) abort();
    job.cases[job.count++] = (product_case){.collective = collective, .dtype = rest[0], .op = op, .size = rest[2],
                                            .memory = rest[3], .placement = rest[4], .mode = rest[5],
                                            .salt = number * 5 + 1};
}

static void add_selected(void) {
    static const int first[] = {P_ALLREDUCE, P_REDUCE, P_BROADCAST};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < over_jobs[s]->count; i++) {
            const int *row = over_jobs[s]->row[i];
            if (row[0] == job.arch && row[1] == job.transport && row[2] + 1 == job.world)
                add_case(first[s] + row[3], row + 4);
        }
}

/* Rotated by the job, so that over jobs more than pairs meet. */
static void add_small(void) {
    static const int first[] = {P_ALLREDUCE, P_BROADCAST};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < in_job[s]->count; i++) {
            int turned[7];
            for (int a = 0; a < 7; a++)
                turned[a] = (in_job[s]->row[i][a] + job.world * (a + 1) + job.arch) % in_job[s]->sizes[a];
            add_case(first[s] + turned[0], turned + 1);
        }
}

static void add_product(void) {
    for (int c = 0; c < P_COLLECTIVES; c++)
        for (int dtype = 0; dtype < GW_DTYPES; dtype++)
            for (int op = 0; op < (c < P_BROADCAST ? GW_REDOPS : 1); op++)
                for (int size = 0; size < (c == P_ALLREDUCE ? SIZE_2G : SIZE_64M); size++) {
                    int turn = job.count + job.world + job.arch;
                    add_case(c, (int[]){dtype, op, size, turn % MEMORIES, turn / 3 % PLACEMENTS, turn / 6 % MODES});
                }
}

/* A rank. */

static void enter_host(int rank) {
    int host = job.interleaved ? rank % host_count : rank * host_count / job.world;
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", hosts[host]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) wrong("%s cannot be entered: %s", path, strerror(errno));
    else close(fd);
}

static void timed(gw_time since) {
    double took = (double)(gw_clock_now() - since) / 1e9;
    if (took <= slot->slowest_s) return;
    slot->slowest_s = took;
    snprintf(slot->slowest, sizeof slot->slowest, "%s", slot->doing);
}

static void go_through(gw_comm *comm) {
    for (int i = 0; i < job.count && !job.again && slot->failures == 0; i++) {
        gw_time since = gw_clock_now();
        run_case(comm, &job.cases[i]);
        timed(since);
    }
    for (int i = 0; i < SCENES && extent != EXTENT_HUGE && slot->failures == 0; i++) {
        gw_time since = gw_clock_now();
        if (job.again && scenes[i].run != scene_random) continue;
        snprintf(slot->doing, sizeof slot->doing, "%s", scenes[i].name);
        scenes[i].run(comm);
        slot->cases++;
        timed(since);
    }
}

/* rank -1: from the environment. */
static void be_rank(int rank) {
    char strategy[96];
    gw_comm *comm = NULL;
    slot = &common->slots[rank < 0 ? 0 : rank];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(JOB_SECONDS + 10);
    snprintf(slot->doing, sizeof slot->doing, "gw_init");
    snprintf(strategy, sizeof strategy, "arch=%s transport=%s", archs[job.arch], transports[job.transport]);
    gw_options options = GW_OPTIONS_DEFAULT;
    options.strategy = strategy;
    options.rank = rank;
    options.world = rank < 0 ? -1 : job.world;
    options.master_port = rank < 0 ? -1 : job.port;
    options.token = "the product's own token";
    if (job.apart_hosts) enter_host(rank);
    gw_time since = gw_clock_now();
    if (slot->failures == 0 && fine(NULL, "gw_init", gw_init(&comm, &options)) == GW_OK) {
        slot = &common->slots[gw_rank(comm)];
        timed(since);
        go_through(comm);
        snprintf(slot->doing, sizeof slot->doing, "gw_finalize");
        since = gw_clock_now();
        gw_status status = gw_finalize(comm);
        if (status && slot->failures == 0) wrong("it returned %d", status);
        timed(since);
    }
    exit(slot->failures != 0);
}

/* The parent. */

static void job_name(char *name, size_t size) {
    snprintf(name, size, "%s over %s, %d ranks%s", archs[job.arch], transports[job.transport], job.world,
             !job.apart_hosts  ? ""
             : job.interleaved ? ", hosts in turns"
                               : ", hosts in blocks");
}

/* Waits for the ranks; those that do not end are killed. How many did not end well. */
static int collect(const pid_t *ranks) {
    int bad = 0;
    gw_time until = gw_clock_now() + JOB_SECONDS * GW_SECOND;
    for (int r = 0; r < job.world; r++) {
        int result = 0;
        while (waitpid(ranks[r], &result, WNOHANG) == 0) {
            if (gw_clock_now() > until) kill(ranks[r], SIGKILL);
            usleep(500);
        }
        if (result == 0) continue;
        product_slot *s = &common->slots[r];
        if (WIFSIGNALED(result)) printf("     rank %d ended by signal %d in: %s\n", r, WTERMSIG(result), s->doing);
        else if (s->failures) printf("     rank %d: %s\n", r, s->wrong);
        else printf("     rank %d exited with %d in: %s\n", r, WEXITSTATUS(result), s->doing);
        bad++;
    }
    return bad;
}

static bool same_bits(const product_slot *a, const product_slot *b, const char *of) {
    for (int i = 0; i < a->hash_count; i++) {
        if (a->hash_count == b->hash_count && a->hashes[i] == b->hashes[i]) continue;
        printf("     random values %d: %s do not have the same bits\n", i, of);
        return false;
    }
    return true;
}

/* Started by a launcher: everything about the job is in the file. */
static int be_launched_rank(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    file = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) return 2;
    common = &file->common;
    job = file->job;
    extent = file->extent;
    transports[job.transport] = file->transport;
    be_rank(-1);
    return 0;
}

/* Starts the ranks by the launcher and waits for it. */
static bool launch(void) {
    char self[256] = "", world[16], *words[WORDS_MAX + 8];
    int count = 0, result = 0;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) abort();
    snprintf(world, sizeof world, "%d", job.world);
    for (int i = 0; i < launcher_words; i++) words[count++] = launcher[i];
    char *const rest[] = {"-n", world, self, "rank", file_path, NULL};
    for (int i = 0; i < 6; i++) words[count++] = rest[i];
    file->job = job;
    file->extent = extent;
    snprintf(file->transport, sizeof file->transport, "%s", transports[job.transport]);
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        execvp(words[0], words);
        _exit(127);
    }
    gw_time until = gw_clock_now() + JOB_SECONDS * GW_SECOND;
    while (waitpid(pid, &result, WNOHANG) == 0) {
        if (gw_clock_now() > until) kill(pid, SIGTERM);
        usleep(500);
    }
    for (int r = 0; r < job.world; r++)
        if (common->slots[r].failures) printf("     rank %d: %s\n", r, common->slots[r].wrong);
    if (result) printf("     %s ended with %d; rank 0 was in: %s\n", words[0], result, common->slots[0].doing);
    return result == 0;
}

/* Runs the job as it stands. *first: the results' bits, of rank 0. */
static bool run_once(product_slot *first) {
    pid_t ranks[RANKS_MAX];
    memset(common, 0, sizeof *common);
    job.port = free_port();
    fflush(stdout);
    for (int r = 0; r < job.world && !launcher_words; r++) {
        ranks[r] = fork();
        if (ranks[r] < 0) abort();
        if (ranks[r] == 0) be_rank(r);
    }
    if (launcher_words ? !launch() : collect(ranks) > 0) return false;
    *first = common->slots[0];
    bool same = true;
    for (int r = 1; r < job.world; r++) same = same && same_bits(first, &common->slots[r], "ranks");
    return same;
}

static long cases_run;
static int passed, failed;

/* Every arch and transport with a third of the worlds; with all in the full product. */
static bool runs_again(void) {
    return extent == EXTENT_FULL || (extent != EXTENT_HUGE && (job.arch + job.transport + job.world) % 3 == 0);
}

static void run_job(void) {
    static product_slot first, second;
    char name[96];
    job_name(name, sizeof name);
    if (!strstr(name, only)) return;
    gw_time since = gw_clock_now();
    job.again = false;
    bool good = run_once(&first);
    job.again = true;
    if (runs_again()) good = good && run_once(&second) && same_bits(&first, &second, "two runs");
    cases_run += first.cases;
    double took = (double)(gw_clock_now() - since) / 1e9;
    if (good) passed++;
    else failed++;
    if (!good || verbose)
        printf("%s %s: %d cases, %.2f s; longest %.2f s: %s\n", good ? "ok  " : "FAIL", name, job.count, took,
               first.slowest_s, first.slowest);
}

static void list_cases(void) {
    job.count = 0;
    if (extent == EXTENT_FULL) add_product();
    else add_small();
    add_selected();
}

static void run_jobs(void) {
    for (job.arch = 0; job.arch < arch_count; job.arch++)
        for (job.transport = 0; job.transport < transport_count; job.transport++) {
            int before = failed;
            long cases = cases_run;
            gw_time since = gw_clock_now();
            for (job.world = 1; job.world <= RANKS_MAX; job.world++) {
                list_cases();
                run_job();
            }
            if (cases_run > cases && failed == before)
                printf("ok   %s over %s, 1 to %d ranks: %ld cases, %.1f s\n", archs[job.arch],
                       transports[job.transport], RANKS_MAX, cases_run - cases, (double)(gw_clock_now() - since) / 1e9);
        }
}

static const gw_transport_type *type_of(int transport) { return gw_transport_type_find(transports[transport]); }

/* Some transports cannot span hosts; a world of one has one host. */
static void run_jobs_apart(void) {
    job.apart_hosts = true;
    for (job.arch = 0; job.arch < arch_count; job.arch++)
        for (job.transport = 0; job.transport < transport_count; job.transport++) {
            if (type_of(job.transport)->single_host) continue;
            for (job.world = 2; job.world <= RANKS_MAX; job.world++) {
                job.interleaved = (job.world + job.arch) % 2;
                list_cases();
                run_job();
            }
        }
}

static void run_huge(void) {
    job.world = 2;
    for (job.transport = 0; job.transport < transport_count; job.transport++) {
        if (transport_count > 1 && gw_transport_type_chooses(type_of(job.transport))) continue; /* others do */
        job.count = 0;
        add_case(P_ALLREDUCE, (int[]){GW_U8, GW_SUM, SIZE_2G, MEMORY_SHARED, IN_PLACE, BLOCKING});
        run_job();
    }
}

static void split_hosts(char *names) {
    for (char *name = strtok(names, ","); name && host_count < HOSTS_MAX; name = strtok(NULL, ","))
        hosts[host_count++] = name;
}

static void split_launcher(char *words) {
    for (char *word = strtok(words, " "); word && launcher_words < WORDS_MAX; word = strtok(NULL, " "))
        launcher[launcher_words++] = word;
}

/* Those that work everywhere, from gradwire's own table. */
static void over_all(void) {
    for (const gw_transport_type *const *at = gw_transport_types; *at && transport_count < TRANSPORTS_MAX; at++)
        if (gw_transport_type_built_in(*at)) transports[transport_count++] = (*at)->technique.name;
}

/* Loading a library such as libfabric takes most of a second: once here instead of in every rank. */
static bool only_over(const char *transport) {
    const gw_transport_type *type = gw_transport_type_find(transport);
    gw_transport_probe found[GW_TRANSPORT_PROBES_MAX];
    if (!type) return false;
    transports[0] = transport;
    transport_count = 1;
    if (type->native_allreduce) arch_count = 7;
    if (type->probe && !type->launcher) type->probe(found, GW_TRANSPORT_PROBES_MAX);
    return true;
}

static void map_file(void) {
    int fd = memfd_create("product", 0);
    if (fd < 0 || ftruncate(fd, sizeof *file) != 0) abort();
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) abort();
    common = &file->common;
    snprintf(file_path, sizeof file_path, "/proc/%d/fd/%d", (int)getpid(), fd);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return be_launched_rank(argv[2]);
    static const char *const words[EXTENTS] = {"small", "quick", "full", "huge"};
    bool known = false;
    for (int e = 0; argc > 1 && e < EXTENTS; e++)
        if (strcmp(argv[1], words[e]) == 0) extent = (product_extent)e, known = true;
    for (int i = 2; i < argc && known; i++) {
        if (strcmp(argv[i], "-v") == 0) verbose = true;
        else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) split_hosts(argv[++i]);
        else if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) known = only_over(argv[++i]);
        else if (strcmp(argv[i], "-l") == 0 && i + 1 < argc) split_launcher(argv[++i]);
        else if (strcmp(argv[i], "-j") == 0 && i + 1 < argc) only = argv[++i];
        else known = false;
    }
    if (!known) {
        fprintf(stderr, "usage: helper_product small|quick|full|huge [-o TRANSPORT] [-l LAUNCHER] [-t NAMESPACE,...] "
                        "[-j PART] [-v]\n");
        return 2;
    }
    if (!transport_count) over_all();
    setvbuf(stdout, NULL, _IOLBF, 0);
    map_file();
    if (extent != EXTENT_HUGE) make_selections();
    if (extent == EXTENT_HUGE) run_huge();
    else if (host_count) run_jobs_apart();
    else run_jobs();
    printf("%ld cases; %d passed, %d failed\n", cases_run, passed, failed);
    return failed || passed == 0;
}
