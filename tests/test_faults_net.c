/* test_faults_net.c - hundreds of strangers connect to a job and do not disturb it; a job whose network is cut ends at
 * the deadline on both sides, and continues by gw_shrink on one. Jobs of real processes. */
#include "fault_job.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define EACH 64 /* strangers of a sort at each door */
#define DOORS_MAX 16
#define COUNT 50000

/* The job: reduces until the test says stop, and counts. */

static void reduces_until_stopped(gw_comm *comm, const job *j, job_member *member) {
    static float in[COUNT], out[COUNT];
    int32_t stop = 0;
    while (!stop) {
        int32_t mine = atomic_load(&j->shared->go);
        for (int i = 0; i < COUNT; i++) in[i] = (float)(j->me + 1 + i % 5);
        gw_status status = gw_allreduce(comm, in, out, COUNT, GW_F32, GW_SUM);
        if (!status) status = gw_allreduce(comm, &mine, &stop, 1, GW_I32, GW_MIN);
        if (job_failed(member, comm, status)) break;
        for (int i = 0; i < COUNT; i++)
            member->wrong += out[i] != (float)(j->world * (j->world + 1) / 2 + j->world * (i % 5));
        atomic_fetch_add(&member->rounds, 1);
    }
    member->finalized = gw_finalize(comm);
}

/* Every port on which a process of the job listens. */

static bool holds_socket(pid_t pid, unsigned long inode) {
    char path[300], link[64], wanted[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        link[length > 0 ? length : 0] = 0;
        found = strcmp(link, wanted) == 0;
    }
    if (folder) closedir(folder);
    return found;
}

static int find_doors(const job *j, int ports[DOORS_MAX]) {
    char line[512];
    int count = 0;
    FILE *table = fopen("/proc/net/tcp", "r");
    while (table && count < DOORS_MAX && fgets(line, sizeof line, table)) {
        unsigned address, port, state;
        unsigned long inode;
        static const char *const format = "%*d: %8X:%4X %*8X:%*4X %2X %*X:%*X %*X:%*X %*X %*u %*u %lu";
        if (sscanf(line, format, &address, &port, &state, &inode) != 4) continue;
        for (int r = 0; state == 0x0a && r < j->world; r++) {
            if (!holds_socket(j->pid[r], inode)) continue;
            CHECK_EQ(htonl(INADDR_LOOPBACK), address); /* a local job listens on loopback only */
            ports[count++] = (int)port;
            break;
        }
    }
    if (table) fclose(table);
    return count;
}

/* Strangers. */

enum { SCANNER, WRONG_TOKEN, GARBAGE, HALF, SILENT, SORTS };

static int connect_as_stranger(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void speak(int fd, int sort, int number) {
    uint8_t bytes[256];
    size_t count = 0;
    memset(bytes, 0x41 + number, sizeof bytes);
    if (sort == GARBAGE) count = 1 + (size_t)number * 3;
    if (sort == HALF || sort == WRONG_TOKEN) {
        memcpy(bytes, "GRADWIRE\1\0\0", 12);
        count = sort == HALF ? 1 + (size_t)number * 43 / EACH : 44 + 32 + 56; /* a proof that proves nothing */
    }
    if (count && send(fd, bytes, count, MSG_NOSIGNAL) <= 0) test_failures++;
}

static bool closed(int fd) {
    uint8_t bytes[256];
    ssize_t got;
    do got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static int still_open(int *fds, int count) {
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0 && closed(fds[i])) {
            close(fds[i]);
            fds[i] = -1;
        }
        left += fds[i] >= 0;
    }
    return left;
}

static double rounds_a_second(const job *j, double seconds) {
    uint64_t before = atomic_load(&j->shared->member[0].rounds);
    usleep((useconds_t)(seconds * 1e6));
    return (double)(atomic_load(&j->shared->member[0].rounds) - before) / seconds;
}

/* Rounds of the job while strangers connect, as a fraction of those before. */
static double besiege(void) {
    static int fds[DOORS_MAX * SORTS * EACH];
    job j = {.world = 4, .strategy = "transport=tcp", .deadline_s = 8, .body = reduces_until_stopped};
    int ports[DOORS_MAX], count = 0;
    job_start(&j);
    CHECK(job_all_reached(&j, 5, 10));
    int doors = find_doors(&j, ports);
    CHECK(doors >= 4);
    double calm = rounds_a_second(&j, 0.5);
    gw_time began = gw_clock_now();
    for (int i = 0; i < SORTS * EACH; i++)
        for (int d = 0; d < doors; d++) {
            int fd = connect_as_stranger(ports[d]);
            CHECK(fd >= 0);
            if (fd < 0) continue;
            speak(fd, i % SORTS, i / SORTS);
            if (i % SORTS == SCANNER) close(fd);
            else fds[count++] = fd;
        }
    double besieged = rounds_a_second(&j, 0.5);
    gw_time last = gw_clock_now();
    while (still_open(fds, count) && gw_clock_now() < last + TEST_PATIENCE_S * GW_SECOND) usleep(5000);
    CHECK_EQ(0, still_open(fds, count));
    printf("    %d doors, %d strangers, all refused %.2f s after the first; %.0f rounds/s before, %.0f during\n", doors,
           doors * SORTS * EACH, (double)(gw_clock_now() - began) / 1e9, calm, besieged);
    atomic_store(&j.shared->go, 1);
    for (int r = 0; r < 4; r++) {
        CHECK(job_ended(&j, r, 10));
        CHECK_EQ(0, j.shared->member[r].wrong);
        CHECK_EQ(GW_OK, j.shared->member[r].finalized);
        CHECK_STR("", j.shared->member[r].text);
    }
    CHECK_EQ(0, job_flights(&j, -1, NULL, 0));
    job_close(&j);
    return besieged / calm;
}

static void strangers_do_no_harm(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    CHECK_IN_SOME_TRY(besiege() > 0.1);
}

/* A cut network: two namespaces stand in for hosts. */

static bool shell(const char *format, const char *a, const char *b) {
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    return system(command) == 0;
}

static char left[32], right[32];

static bool make_hosts(void) {
    snprintf(left, sizeof left, "gwt%da", (int)getpid());
    snprintf(right, sizeof right, "gwt%db", (int)getpid());
    if (geteuid() != 0 || !shell("ip netns add %s 2>/dev/null && ip netns add %s 2>/dev/null", left, right) ||
        !shell("ip netns exec %s true 2>/dev/null%s", left, "")) { /* a chroot can make them, but not enter */
        shell("ip netns del %s 2>/dev/null; ip netns del %s 2>/dev/null", left, right);
        printf("    not tried: namespaces cannot be made here\n");
        return false;
    }
    bool ready = shell("ip -n %s link add v0 type veth peer name v0 netns %s", left, right) &&
                 shell("ip -n %s addr add 10.77.0.1/24 dev v0 && ip -n %s addr add 10.77.0.2/24 dev v0", left, right) &&
                 shell("ip -n %s link set v0 up && ip -n %s link set v0 up", left, right) &&
                 shell("ip -n %s link set lo up && ip -n %s link set lo up", left, right);
    CHECK(ready);
    return ready;
}

static void remove_hosts(void) { shell("ip netns del %s; ip netns del %s", left, right); }

static void network_is_cut(void) {
    if (!make_hosts()) return;
    job j = {.world = 2, .strategy = "transport=auto", .deadline_s = 2, .body = reduces_until_stopped,
             .space = {left, right}, .master_addr = "10.77.0.1"};
    job_start(&j);
    CHECK(job_all_reached(&j, 3, 10));
    gw_time cut = gw_clock_now();
    CHECK(shell("ip -n %s link set v0 down%s", right, ""));
    for (int r = 0; r < 2; r++) {
        const job_member *member = &j.shared->member[r];
        CHECK(job_ended(&j, r, 8));
        double took = ((double)member->failed_at - (double)cut) / 1e6;
        printf("    rank %d after %.0f ms: %s\n", r, took, member->text);
        CHECK(member->status == GW_PEER_LOST || member->status == GW_TIMEOUT);
        CHECK(strstr(member->text, r ? "rank 0 on " : "rank 1 on ") != NULL);
        CHECK(took < 2000 + TEST_SLACK_MS);
    }
    job_close(&j);
    remove_hosts();
}

/* Reduces until the network is cut, and tries to continue. */
static void shrinks_when_cut(gw_comm *comm, const job *j, job_member *member) {
    float in = 1, out = 0;
    gw_comm *smaller = NULL;
    (void)j;
    while (!job_failed(member, comm, gw_allreduce(comm, &in, &out, 1, GW_F32, GW_SUM)))
        atomic_fetch_add(&member->rounds, 1);
    member->called_at = gw_clock_now();
    member->later = gw_shrink(comm, &smaller);
    member->failed_at = gw_clock_now();
    snprintf(member->later_text, sizeof member->later_text, "%s", member->later ? gw_last_error(NULL) : "");
    member->size = smaller ? gw_size(smaller) : 0;
    if (smaller && gw_allreduce(smaller, &in, &out, 1, GW_F32, GW_SUM)) member->wrong++;
    if (smaller) member->wrong += out != (float)member->size;
    gw_finalize(smaller);
    gw_finalize(comm);
}

static void one_side_of_a_cut_continues(void) {
    if (!make_hosts()) return;
    job j = {.world = 5, .strategy = "transport=auto", .deadline_s = JOB_SLOWER > 1 ? 8 : 3, .body = shrinks_when_cut,
             .space = {left, left, right, right, right}, .master_addr = "10.77.0.1"};
    job_start(&j);
    CHECK(job_all_reached(&j, 3, 10));
    CHECK(shell("ip -n %s link set v0 down%s", right, ""));
    for (int r = 0; r < 5; r++) {
        const job_member *member = &j.shared->member[r];
        CHECK(job_ended(&j, r, 30));
        double took = (double)(member->failed_at - member->called_at) / 1e9;
        printf("    rank %d after %.1f s in gw_shrink: %s\n", r, took, member->later ? member->later_text : "goes on");
        CHECK_EQ(r < 2 ? GW_PEER_LOST : GW_OK, member->later);
        CHECK_EQ(r < 2 ? 0 : 3, member->size);
        CHECK_EQ(0, member->wrong);
        /* The first to give up has left when the other counts. */
        CHECK(r >= 2 || strstr(member->later_text, "2 of the 5 ranks that are not proved dead") != NULL ||
              strstr(member->later_text, "1 of the 4 ranks that are not proved dead") != NULL);
        CHECK(took < 1.5 * j.deadline_s);
    }
    job_close(&j);
    remove_hosts();
}

/* A path that drops large packets without a word. */

static char middle[32];

/* The two hosts, with a bridge between them that drops packets of more than 1,000 bytes. */
static bool make_narrow_path(void) {
    if (!make_hosts()) return false;
    snprintf(middle, sizeof middle, "gwt%dm", (int)getpid());
    const char *const hosts[] = {left, right};
    bool ready = shell("ip netns add %s && ip -n %s link add br0 type bridge", middle, middle) &&
                 shell("ip -n %s link set br0 up%s", middle, "") && shell("ip -n %s link del v0%s", left, "");
    for (int h = 0; h < 2; h++) {
        char port[8], own[64];
        snprintf(port, sizeof port, "m%d", h);
        snprintf(own, sizeof own, "10.77.0.%d/24", h + 1);
        ready = ready && shell("ip -n %s link add v0 type veth peer name w0%s", hosts[h], "") &&
                shell("ip -n %s link set w0 netns %s", hosts[h], middle) &&
                shell("ip -n %s link set w0 name %s", middle, port) &&
                shell("ip -n %s addr add %s dev v0", hosts[h], own) &&
                shell("ip -n %s link set v0 up%s", hosts[h], "") &&
                shell("ip -n %s link set %s master br0 up", middle, port) &&
                shell("ip netns exec %s tc qdisc add dev %s root tbf rate 1gbit burst 1000 latency 50ms", middle, port);
    }
    CHECK(ready);
    return ready;
}

/* One direction: small messages pass, a large one never does. */
static void sends_much(gw_comm *comm, const job *j, job_member *member) {
    static float much[COUNT];
    gw_status status = gw_allreduce(comm, much, much, 4, GW_F32, GW_SUM);
    if (!status) status = j->me ? gw_recv(comm, much, COUNT, GW_F32, 0) : gw_send(comm, much, COUNT, GW_F32, 1);
    job_failed(member, comm, status);
    member->finalized = gw_finalize(comm);
}

static void large_packets_vanish(void) {
    if (!make_narrow_path()) return;
    job j = {.world = 2, .strategy = "transport=auto", .deadline_s = 4, .body = sends_much, .space = {left, right},
             .master_addr = "10.77.0.1"};
    job_start(&j);
    for (int r = 0; r < 2; r++) {
        const job_member *member = &j.shared->member[r];
        CHECK(job_ended(&j, r, 12));
        printf("    rank %d: %s\n", r, member->text);
        CHECK_EQ(GW_TIMEOUT, member->status);
        CHECK(strstr(member->text, "the path has a smaller MTU than the interface") != NULL);
        CHECK(strstr(member->text, "it is alive") != NULL);
    }
    job_close(&j);
    shell("ip netns del %s%s", middle, "");
    remove_hosts();
}

TEST_MAIN(CASE(large_packets_vanish), CASE(strangers_do_no_harm), CASE(network_is_cut),
          CASE(one_side_of_a_cut_continues))
