/* test_elastic.c - decisions of an elastic job when ranks and hosts are lost, and how silence differs from own sleep.
 * Jobs of processes are in tests/elastic.sh. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/elastic_policy.h"
#include "launch/liveness.h"
#include "launch/silence.h"
#include "test.h"

static gw_elastic open_job(gw_hosts *hosts, const char *list, int restarts, int low, int high) {
    gw_elastic e;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_hosts_parse(hosts, list, &error));
    CHECK_EQ(GW_OK, gw_hosts_place(hosts, 0, &error));
    gw_elastic_options options = {.hosts = hosts, .restarts = restarts, .address = "10.0.0.1", .port = low + 1,
                                  .port_low = low, .port_high = high, .deadline = 30 * GW_SECOND};
    CHECK_EQ(GW_OK, gw_elastic_open(&e, &options, &error));
    return e;
}

static void close_job(gw_elastic *e, gw_hosts *hosts) {
    gw_elastic_close(e);
    gw_hosts_free(hosts);
}

static void lost_hosts(void) {
    gw_hosts hosts;
    gw_elastic e = open_job(&hosts, "a:2,user@b:1,c:1", 5, 0, 0);
    CHECK(!gw_elastic_set_address(&e, 3, "10.0.0.3xx", 8));
    CHECK_EQ(GW_ELASTIC_WITHOUT, gw_elastic_host_lost(&e, &hosts.list[0]));
    CHECK_EQ(GW_ELASTIC_FINISHED, gw_elastic_host_lost(&e, &hosts.list[0])); /* nothing of it was left */
    CHECK(e.roster.generation == 1 && e.roster.world == 2 && e.roster.members[0] == 2 && e.roster.members[1] == 3);
    CHECK_STR("b", e.roster.address); /* no address is known yet: by its name, without the login */
    CHECK_EQ(GW_ELASTIC_FINISHED, gw_elastic_ended(&e, 0, false)); /* news from before the loss */
    CHECK_EQ(5, e.restarts);
    CHECK(gw_elastic_set_address(&e, 2, "10.0.0.2", 8)); /* now they can, and are called again */
    CHECK_STR("10.0.0.2", e.roster.address);
    CHECK(!gw_elastic_set_address(&e, 2, "10.0.0.2", 8) && e.roster.generation == 2);
    CHECK_EQ(GW_ELASTIC_RESTART, gw_elastic_ended(&e, 3, false));
    CHECK_EQ(GW_ELASTIC_WITHOUT, gw_elastic_host_lost(&e, &hosts.list[1]));
    CHECK_STR("10.0.0.3", e.roster.address);
    CHECK_EQ(GW_ELASTIC_NOBODY, gw_elastic_host_lost(&e, &hosts.list[2]));
    close_job(&e, &hosts);
}

/* A rank that died while others were finishing would find no peer, and start the whole job again by itself. */
static void no_restart_at_the_end(void) {
    gw_hosts hosts;
    gw_elastic e = open_job(&hosts, "a:3", 5, 0, 0);
    CHECK_EQ(GW_ELASTIC_RESTART, gw_elastic_ended(&e, 0, false));
    CHECK_EQ(GW_ELASTIC_FINISHED, gw_elastic_ended(&e, 1, true));
    CHECK_EQ(GW_ELASTIC_WITHOUT, gw_elastic_ended(&e, 2, false));
    CHECK_EQ(4, e.restarts);
    close_job(&e, &hosts);
}

static void ports_stay_in_their_range(void) {
    for (int count = 1; count <= 40; count++) {
        gw_hosts hosts;
        gw_elastic e = open_job(&hosts, "a:1,b:1", 100, 4000, 4000 + count - 1);
        e.options.port = count > 1 ? 4001 : 4000;
        for (int generation = 0, before = 0; generation < 40; generation++, before = e.roster.port) {
            CHECK_EQ(GW_ELASTIC_RESTART, gw_elastic_ended(&e, 0, false));
            CHECK(e.roster.port >= 4000 + (count > 1) && e.roster.port < 4000 + count);
            CHECK(count < 4 || e.roster.port != before);
        }
        close_job(&e, &hosts);
    }
}

static void restarts_back_off(void) {
    gw_hosts hosts;
    gw_elastic e = open_job(&hosts, "a:2", 100, 0, 0);
    gw_time total = 0;
    CHECK_EQ(100 * GW_MILLISECOND, gw_elastic_backoff(&e, 0, 5 * GW_MILLISECOND));
    CHECK_EQ(200 * GW_MILLISECOND, gw_elastic_backoff(&e, 0, 5 * GW_MILLISECOND));
    CHECK_EQ(100 * GW_MILLISECOND, gw_elastic_backoff(&e, 1, 5 * GW_MILLISECOND));
    for (int i = 0; i < 20; i++) total = gw_elastic_backoff(&e, 0, GW_MILLISECOND);
    CHECK_EQ(15 * GW_SECOND, total);                                            /* half the deadline */
    CHECK_EQ(100 * GW_MILLISECOND, gw_elastic_backoff(&e, 0, 200 * GW_SECOND)); /* it was up for long */
    close_job(&e, &hosts);
}

static void ask(gw_elastic *e, int member, int blamed) {
    gw_elastic_wants_generation(e, member, e->roster.generation + 1, blamed);
}

static void ranks_that_wait_in_regroup(void) {
    gw_hosts hosts;
    gw_elastic e = open_job(&hosts, "a:2,b:2,c:1", 0, 0, 0);
    gw_time now = 1000 * GW_SECOND;
    int which = -1;
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now, &which));
    for (int member = 0; member < 5; member++) { /* all agree: rank 4 was late, and knows */
        CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now, &which));
        ask(&e, member, 4);
    }
    CHECK_EQ(GW_ELASTIC_REGROUPED, gw_elastic_answer_all(&e, now, &which));
    CHECK(e.roster.generation == 1 && e.roster.world == 5);
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now, &which)); /* they ask no more */
    for (int member = 0; member < 4; member++) ask(&e, member, 4);
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now, &which));
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now + 20 * GW_SECOND, &which));
    CHECK_EQ(GW_ELASTIC_LATE, gw_elastic_answer_all(&e, now + 30 * GW_SECOND, &which));
    CHECK_EQ(4, which);
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now + 40 * GW_SECOND, &which)); /* once is enough */
    CHECK_EQ(GW_ELASTIC_WITHOUT, gw_elastic_ended(&e, 4, false));
    CHECK_EQ(GW_ELASTIC_NOTHING, gw_elastic_answer_all(&e, now + 80 * GW_SECOND, &which));
    CHECK_EQ(GW_ELASTIC_FINISHED, gw_elastic_ended(&e, 1, true)); /* and need not be waited for */
    for (int member = 0; member < 4; member += member ? 1 : 2) ask(&e, member, -1);
    CHECK_EQ(GW_ELASTIC_REGROUPED, gw_elastic_answer_all(&e, now, &which));
    CHECK_EQ(3, e.roster.world);
    close_job(&e, &hosts);
}

static int cut_host(const char *list, const int *blamed) {
    gw_hosts hosts;
    gw_elastic e = open_job(&hosts, list, 0, 0, 0);
    int which = -1;
    for (int member = 0; member < e.roster.world; member++) ask(&e, member, blamed[member]);
    gw_elastic_answer answer = gw_elastic_answer_all(&e, GW_SECOND, &which);
    CHECK_EQ(which < 0 ? GW_ELASTIC_REGROUPED : GW_ELASTIC_CUT, answer);
    close_job(&e, &hosts);
    return which;
}

/* Workers and servers of one machine blame each other after the death of either. */
static void one_machine_is_not_cut_off_from_itself(void) {
    gw_error error = {0};
    gw_hosts hosts;
    gw_elastic e;
    int which = -1;
    CHECK_EQ(GW_OK, gw_hosts_parse(&hosts, "a:2", &error));
    CHECK_EQ(GW_OK, gw_hosts_place(&hosts, 0, &error));
    CHECK_EQ(GW_OK, gw_hosts_serve(&hosts, 2, &error));
    CHECK_EQ(2, hosts.count);
    gw_elastic_options options = {.hosts = &hosts, .address = "10.0.0.1", .deadline = 30 * GW_SECOND};
    CHECK_EQ(GW_OK, gw_elastic_open(&e, &options, &error));
    for (int member = 0; member < 4; member++) ask(&e, member, (member + 2) % 4);
    CHECK_EQ(GW_ELASTIC_REGROUPED, gw_elastic_answer_all(&e, GW_SECOND, &which));
    close_job(&e, &hosts);
}

static void hosts_that_accuse_each_other(void) {
    CHECK_EQ(0, cut_host("a:1,b:1,c:1", (const int[]){1, 0, 0}));
    CHECK_EQ(2, cut_host("a:1,b:1,c:1", (const int[]){2, 2, 0}));
    CHECK_EQ(1, cut_host("a:2,b:2,c:1", (const int[]){2, 3, 0, 1, 2}));
    CHECK_EQ(1, cut_host("a:1,b:1", (const int[]){1, 0}));               /* the lower ranks stay */
    CHECK_EQ(3, cut_host("a:1,b:1,c:1,d:1", (const int[]){2, 3, 0, 1})); /* then c, in the same way */
    CHECK_EQ(-1, cut_host("a:2,b:2", (const int[]){3, 3, 3, 3}));        /* agreed */
    CHECK_EQ(-1, cut_host("a:2,b:2", (const int[]){-1, -1, -1, -1}));
    CHECK_EQ(-1, cut_host("a:3", (const int[]){1, 0, 7}));
}

static void silence(void) {
    gw_time limit = gw_silence_limit(4 * GW_SECOND), period = gw_silence_period(limit), now = 1000 * GW_SECOND;
    gw_silence s;
    CHECK(limit + period < 4 * GW_SECOND && limit > 3 * GW_SECOND);
    CHECK_EQ(GW_SECOND, gw_silence_limit(GW_SECOND / 2));
    gw_silence_heard(&s, now);
    int looks = 0;
    while (gw_silence_look(&s, now += period, limit) < limit) looks++;
    CHECK(looks >= 14 && looks <= 16);
    gw_silence_heard(&s, now);
    CHECK(gw_silence_look(&s, now += 3600 * GW_SECOND, limit) < limit / 2); /* the observer itself slept */
    CHECK(gw_silence_look(&s, now += period, limit) < limit / 2);
}

static int slot_file(void) {
    int file = memfd_create("slots", MFD_CLOEXEC);
    CHECK(file >= 0);
    return file;
}

static void heartbeats(void) {
    int file = slot_file();
    gw_liveness alive;
    gw_heartbeat heartbeat, other;
    gw_time now = 1000 * GW_SECOND, next;
    char path[64];
    CHECK_EQ(GW_OK, gw_liveness_open(&alive, file, 3, 2, NULL));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    for (int i = 0; i < 2; i++) gw_liveness_start(&alive, i, now);
#define LOOK(rank, after) gw_liveness_look(&alive, rank, now += (after), (next = UINT64_MAX, &next))
    for (int i = 0; i < 100; i++) CHECK_EQ(GW_LIVENESS_FINE, LOOK(0, GW_SECOND)); /* it has not joined */
    gw_heartbeat_open(&heartbeat, path, 3, 4 * GW_SECOND);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(GW_LIVENESS_FINE, LOOK(0, GW_SECOND));
        CHECK(next < now + GW_SECOND);
        gw_heartbeat_beat(&heartbeat);
    }
    gw_heartbeat_open(&other, path, 3, 4 * GW_SECOND); /* regrouping */
    gw_heartbeat_close(&heartbeat);
    gw_heartbeat_close(&heartbeat);
    CHECK_EQ(GW_LIVENESS_FINE, LOOK(0, GW_SECOND));
    gw_liveness_state state = GW_LIVENESS_FINE;
    int looks = 0;
    while (state == GW_LIVENESS_FINE && looks++ < 100) state = LOOK(0, 200 * GW_MILLISECOND);
    CHECK(state == GW_LIVENESS_HUNG && looks > 10 && looks < 20);
    CHECK_EQ(GW_LIVENESS_FINE, LOOK(0, GW_SECOND)); /* once is enough */
    gw_heartbeat_publish(&other, "10.0.0.9");
    CHECK_STR("10.0.0.9", gw_liveness_address(&alive, 0));
    CHECK(!gw_liveness_address(&alive, 0) && !gw_liveness_address(&alive, 1));
    gw_heartbeat_close(&other);
    for (int i = 0; i < 100; i++) CHECK_EQ(GW_LIVENESS_FINE, LOOK(0, GW_SECOND)); /* it has left */
#undef LOOK
    gw_liveness_close(&alive);
    close(file);
}

static void crash_in_a_job(const char *path) {
    gw_heartbeat heartbeat;
    gw_heartbeat_open(&heartbeat, path, 0, GW_SECOND);
    _exit(0);
}

/* A shell that outlives its crashed program owes no heartbeat, and a forked child does not leave for its parent. */
static void heartbeats_of_other_processes(void) {
    int file = slot_file();
    gw_liveness alive;
    gw_heartbeat heartbeat;
    gw_time now = 1000 * GW_SECOND, next = 0;
    char path[64];
    CHECK_EQ(GW_OK, gw_liveness_open(&alive, file, 0, 1, NULL));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), file);
    pid_t child = fork();
    if (child == 0) crash_in_a_job(path);
    CHECK_EQ(child, waitpid(child, NULL, 0));
    CHECK_EQ(1, atomic_load(&alive.slots[0].joined));
    for (int i = 0; i < 100; i++) CHECK_EQ(GW_LIVENESS_FINE, gw_liveness_look(&alive, 0, now += GW_SECOND / 4, &next));
    gw_heartbeat_open(&heartbeat, path, 0, GW_SECOND);
    CHECK_EQ(1, atomic_load(&alive.slots[0].joined));
    child = fork();
    if (child == 0) gw_heartbeat_close(&heartbeat), _exit(0);
    CHECK_EQ(child, waitpid(child, NULL, 0));
    CHECK_EQ(1, atomic_load(&alive.slots[0].joined));
    gw_heartbeat_close(&heartbeat);
    CHECK_EQ(0, atomic_load(&alive.slots[0].joined));
    gw_liveness_close(&alive);
    close(file);
}

TEST_MAIN(CASE(lost_hosts), CASE(no_restart_at_the_end), CASE(ports_stay_in_their_range), CASE(restarts_back_off),
          CASE(ranks_that_wait_in_regroup), CASE(hosts_that_accuse_each_other),
          CASE(one_machine_is_not_cut_off_from_itself), CASE(silence), CASE(heartbeats),
          CASE(heartbeats_of_other_processes))
