/* test_doctor.c - the doctor's rules on made-up matrices, its file, and its lines. */
#include <fcntl.h>
#include <math.h>

#include "arch/link_file.h"
#include "doctor/judge.h"
#include "doctor/report_line.h"
#include "test.h"

#define GIGABIT (118e6) /* bytes per second */

static gw_doctor_report healthy(int count) {
    gw_doctor_report r;
    if (!gw_doctor_report_init(&r, count)) abort();
    for (int i = 0; i < count; i++) {
        gw_doctor_host *h = &r.hosts[i];
        snprintf(h->name, sizeof h->name, "%c", 'a' + i);
        snprintf(h->address, sizeof h->address, "10.0.0.%d", i + 1);
        strcpy(h->interface, "eth0");
        h->mtu = 1500;
        h->machine = i;
        h->memory = 9e9 + i * 1e8;
        h->port_count = 2;
        h->ports[0] = 40000 + i;
        h->ports[1] = 29500;
        for (int j = 0; j < count; j++) {
            gw_doctor_link *link = gw_doctor_link_of(&r, i, j);
            if (i == j) continue;
            *link = (gw_doctor_link){.measured = true, .latency = 4e-5, .latency_best = 3e-5, .path_mtu = 1500,
                                     .bandwidth = GIGABIT + 1e5 * (i + j), .skew = 1e-4};
            strcpy(link->local, h->address);
            strcpy(link->seen, h->address);
            snprintf(link->resolved, sizeof link->resolved, "10.0.0.%d", j + 1);
        }
    }
    return r;
}

/* Checks for exactly one finding, of this kind, about this host and peer, whose text holds the words. Frees the report.
 */
static void check_only(gw_doctor_report *r, gw_finding_kind kind, int host, int peer, const char *words) {
    static gw_findings f;
    gw_doctor_judge(r, &f);
    CHECK_EQ(1, f.count);
    if (f.count != 1)
        for (int i = 0; i < f.count; i++) printf("      %s\n", f.list[i].text);
    if (f.count >= 1) {
        CHECK_EQ(kind, f.list[0].kind);
        CHECK_EQ(host, f.list[0].host);
        CHECK_EQ(peer, f.list[0].peer);
        CHECK(strstr(f.list[0].text, words) != NULL);
        if (!strstr(f.list[0].text, words)) printf("      %s\n", f.list[0].text);
    }
    gw_doctor_report_free(r);
}

static void no_finding_on_healthy_hosts(void) {
    static gw_findings f;
    for (int count = 1; count <= 17; count++) {
        gw_doctor_report r = healthy(count);
        gw_doctor_judge(&r, &f);
        CHECK_EQ(0, f.count);
        gw_doctor_report_free(&r);
    }
}

static void slow(gw_doctor_report *r, int from, int to) { gw_doctor_link_of(r, from, to)->bandwidth = GIGABIT / 10; }

static void a_host_that_receives_slowly(void) {
    for (int count = 2; count <= 9; count++) {
        for (int bad = 0; bad < count; bad++) {
            gw_doctor_report r = healthy(count);
            char words[64];
            for (int i = 0; i < count; i++)
                if (i != bad) slow(&r, i, bad);
            CHECK(count == 2 || gw_doctor_link_suspect(&r, bad, (bad + 1) % count));
            snprintf(words, sizeof words, "host %c receives at 94 Mbit/s, the others at 9", 'a' + bad);
            check_only(&r, GW_FINDING_SLOW, bad, -1, words);
        }
    }
}

static void a_host_that_is_slow_both_ways(void) {
    for (int count = 3; count <= 9; count++) {
        gw_doctor_report r = healthy(count);
        for (int i = 0; i < count; i++) {
            if (i == 1) continue;
            slow(&r, i, 1);
            slow(&r, 1, i);
        }
        check_only(&r, GW_FINDING_SLOW, 1, -1, "host b receives at 94 Mbit/s and sends at 94 Mbit/s");
    }
}

static void a_slow_link_between_two_hosts(void) {
    gw_doctor_report r = healthy(4);
    slow(&r, 0, 2);
    CHECK(gw_doctor_link_suspect(&r, 0, 2) && gw_doctor_link_suspect(&r, 2, 0) && !gw_doctor_link_suspect(&r, 0, 1));
    check_only(&r, GW_FINDING_SLOW, 2, 0, "from host a to host c");
}

static void data_that_stalls(void) {
    gw_doctor_report r = healthy(4);
    gw_doctor_link_of(&r, 3, 1)->bandwidth = 0;
    gw_doctor_link_of(&r, 3, 1)->path_mtu = 0;
    check_only(&r, GW_FINDING_STALL, 1, 3, "from host d to host b open but carry no data");
}

static void connections_that_break(void) {
    gw_doctor_report r = healthy(4);
    gw_doctor_link_of(&r, 1, 2)->measured = gw_doctor_link_of(&r, 2, 1)->measured = false;
    check_only(&r, GW_FINDING_STALL, 2, 1, "hosts b and c connect, but");
    r = healthy(4);
    for (int i = 0; i < 4; i++) gw_doctor_link_of(&r, 1, i)->measured = gw_doctor_link_of(&r, i, 1)->measured = false;
    check_only(&r, GW_FINDING_STALL, 1, -1, "host b can be connected to, but");
}

static void ports(void) {
    gw_doctor_report r = healthy(4);
    for (int i = 0; i < 4; i++)
        if (i != 2) gw_doctor_link_of(&r, i, 2)->closed = 2;
    check_only(&r, GW_FINDING_PORT, 2, -1, "no other host can reach host c at port 29500");
    r = healthy(4);
    gw_doctor_link_of(&r, 0, 2)->closed = 2;
    strcpy(gw_doctor_link_of(&r, 0, 2)->why, "refused");
    check_only(&r, GW_FINDING_PORT, 2, 0, "host a cannot reach host c at port 29500 (refused)");
    r = healthy(4);
    for (int i = 1; i < 4; i++) gw_doctor_link_of(&r, 0, i)->closed = 3;
    check_only(&r, GW_FINDING_PORT, 0, -1, "host a can reach no other host");
    r = healthy(2);
    gw_doctor_link_of(&r, 1, 0)->closed = 3;
    check_only(&r, GW_FINDING_PORT, 0, 1, "host b cannot reach host a at ports 40000,29500");
    r = healthy(4);
    gw_doctor_link_of(&r, 1, 3)->closed = gw_doctor_link_of(&r, 3, 1)->closed = 3;
    gw_doctor_link_of(&r, 1, 3)->measured = gw_doctor_link_of(&r, 3, 1)->measured = false;
    check_only(&r, GW_FINDING_PORT, 3, 1, "hosts b and d cannot reach each other");
}

static void packet_sizes(void) {
    gw_doctor_report r = healthy(4);
    r.hosts[1].mtu = 1400;
    for (int i = 0; i < 4; i++) gw_doctor_link_of(&r, 1, i)->path_mtu = gw_doctor_link_of(&r, i, 1)->path_mtu = 1400;
    check_only(&r, GW_FINDING_MTU, 1, -1, "host b has an MTU of 1400 on eth0, the others 1500");
    r = healthy(4);
    for (int i = 0; i < 4; i++) {
        gw_doctor_link *in = gw_doctor_link_of(&r, i, 3), *out = gw_doctor_link_of(&r, 3, i);
        in->path_mtu = out->path_mtu = 900;
        in->bandwidth = out->bandwidth = 0; /* a consequence, and not reported again */
    }
    check_only(&r, GW_FINDING_MTU, 3, -1, "packets over 900 bytes to and from host d vanish");
    r = healthy(4);
    gw_doctor_link_of(&r, 0, 1)->path_mtu = 1280;
    check_only(&r, GW_FINDING_MTU, 1, 0, "packets over 1280 bytes from host a to host b vanish");
    r = healthy(2);
    r.hosts[1].mtu = 9000;
    check_only(&r, GW_FINDING_MTU, 1, 0, "host b has an MTU of 9000");
}

static void clocks(void) {
    for (int count = 2; count <= 5; count++) {
        gw_doctor_report r = healthy(count);
        for (int i = 0; i < count; i++) {
            gw_doctor_link_of(&r, i, 1)->skew = -3.25;
            gw_doctor_link_of(&r, 1, i)->skew = 3.25;
        }
        check_only(&r, GW_FINDING_CLOCK, 1, -1, "the clock of host b is 3.25 s behind");
    }
}

static void latency_and_memory(void) {
    gw_doctor_report r = healthy(4);
    for (int i = 0; i < 4; i++)
        gw_doctor_link_of(&r, 2, i)->latency_best = gw_doctor_link_of(&r, i, 2)->latency_best = 5e-3;
    check_only(&r, GW_FINDING_LATENCY, 2, -1, "host c takes at least 5 ms");
    r = healthy(3);
    r.hosts[0].memory = 2e9;
    CHECK(gw_doctor_memory_suspect(&r, 0) && !gw_doctor_memory_suspect(&r, 1));
    check_only(&r, GW_FINDING_MEMORY, 0, -1, "host a copies memory at 2.0 GB/s");
}

/* Hosts of one machine share memory and network: no host can be slower than another. */
static void hosts_of_one_machine(void) {
    static gw_findings f;
    gw_doctor_report r = healthy(4);
    for (int i = 0; i < 4; i++) {
        r.hosts[i].machine = 0;
        strcpy(r.hosts[i].address, "127.0.0.1");
        slow(&r, i, 2);
    }
    r.hosts[1].memory = 1e9;
    gw_doctor_judge(&r, &f);
    CHECK_EQ(0, f.count);
    CHECK(!gw_doctor_memory_suspect(&r, 1) && !gw_doctor_link_suspect(&r, 0, 2));
    gw_doctor_report_free(&r);
}

static void addresses(void) {
    gw_doctor_report r = healthy(3);
    strcpy(gw_doctor_link_of(&r, 1, 2)->resolved, "192.168.7.3");
    check_only(&r, GW_FINDING_ADDRESS, 2, 1, "host c is 10.0.0.3 to host a and 192.168.7.3 to host b");
    r = healthy(3);
    gw_doctor_link_of(&r, 0, 1)->resolved[0] = 0;
    check_only(&r, GW_FINDING_ADDRESS, 1, 0, "host a does not know the name of host b");
    r = healthy(3);
    strcpy(gw_doctor_link_of(&r, 0, 1)->seen, "172.16.0.1");
    check_only(&r, GW_FINDING_ADDRESS, 0, 1, "host a calls itself 10.0.0.1, but host b sees it as 172.16.0.1");
}

static void a_lost_host(void) {
    gw_doctor_report r = healthy(4);
    r.hosts[1] = (gw_doctor_host){.name = "b", .lost = true, .complaint = "no route"};
    for (int i = 0; i < 4; i++) {
        *gw_doctor_link_of(&r, i, 1) = (gw_doctor_link){.closed = 0};
        *gw_doctor_link_of(&r, 1, i) = (gw_doctor_link){.closed = 0};
    }
    check_only(&r, GW_FINDING_HOST, 1, -1, "host b cannot be examined: no route");
}

static void findings_have_a_limit(void) {
    static gw_findings f;
    gw_doctor_report r = healthy(17);
    for (int i = 0; i < 17; i++)
        for (int j = 0; j < 17; j++) strcpy(gw_doctor_link_of(&r, i, j)->seen, "1.2.3.4");
    gw_doctor_judge(&r, &f);
    CHECK_EQ(GW_FINDINGS_MAX, f.count);
    CHECK_EQ(17 * 16 - GW_FINDINGS_MAX, f.left_out);
    gw_doctor_report_free(&r);
}

/* ---- the file ---- */

static void a_file_comes_back(void) {
    char path[64];
    gw_error error = {0};
    gw_doctor_table t;
    gw_doctor_report r = healthy(3);
    gw_doctor_link_of(&r, 2, 0)->measured = false;
    snprintf(path, sizeof path, "/tmp/gw_test_doctor.%d", (int)getpid());
    CHECK_EQ(GW_OK, gw_doctor_write(&r, path, &error));
    CHECK_EQ(GW_OK, gw_doctor_read(path, &t, &error));
    CHECK_STR("", error.text);
    if (!error.status) {
        CHECK_EQ(3, t.count);
        CHECK_STR("b", t.nodes[1].name);
        CHECK_STR("10.0.0.3", t.nodes[2].address);
        CHECK_EQ(1500, t.nodes[0].mtu);
        CHECK(fabs(t.alpha[1] - 4e-5) < 1e-10);
        CHECK(fabs(t.beta[1] * gw_doctor_link_of(&r, 0, 1)->bandwidth - 1) < 1e-5);
        CHECK(t.beta[6] == 0 && t.alpha[6] == 0 && t.beta[0] == 0);
        gw_doctor_table_free(&t);
    }
    unlink(path);
    CHECK(gw_doctor_read(path, &t, &error) != GW_OK);
    gw_doctor_report_free(&r);
}

/* A command that needs no file gets what the file would have. */
static void a_table_has_what_the_file_has(void) {
    gw_error error = {0};
    gw_doctor_table t;
    gw_doctor_report r = healthy(3);
    gw_doctor_link_of(&r, 2, 0)->measured = false;
    gw_doctor_link_of(&r, 1, 0)->bandwidth = 0;
    CHECK_EQ(GW_OK, gw_doctor_tabulate(&r, &t, &error));
    CHECK_EQ(3, t.count);
    CHECK_STR("b", t.nodes[1].name);
    CHECK_STR("10.0.0.3", t.nodes[2].address);
    CHECK(t.nodes[2].memory == r.hosts[2].memory && t.nodes[0].mtu == 1500);
    CHECK(t.alpha[1] == gw_doctor_link_of(&r, 0, 1)->latency);
    CHECK(fabs(t.beta[1] * gw_doctor_link_of(&r, 0, 1)->bandwidth - 1) < 1e-12);
    CHECK(t.beta[6] == 0 && t.alpha[6] == 0 && t.beta[3] == 0 && t.beta[0] == 0);
    gw_doctor_table_free(&t);
    gw_doctor_report_free(&r);
}

#define HEAD "gradwire-doctor 1\nhosts 2\nhost 0 a 10.0.0.1 1500 1e9\nhost 1 b - 0 0\n"

static void wrong_files_are_refused(void) {
    static const char *const wrong[] = {
        "",
        "gradwire-doctor 1\n",
        "gradwire-doctor 2\nhosts 1\n",
        "gradwire-doctor 1\nhosts 0\nend\n",
        "gradwire-doctor 1\nhosts 1000\n",
        "gradwire-doctor 1\nhosts 1\nhost 1 a - 0 0\nend\n",
        HEAD,
        HEAD "end",
        HEAD "end\nend\n",
        HEAD "link 0 0 1 1\nend\n",
        HEAD "link 0 2 1 1\nend\n",
        HEAD "link 0 1 -1 1\nend\n",
        HEAD "link 0 1 1 0\nend\n",
        HEAD "link 0 1 1 nan\nend\n",
        HEAD "link 0 1 inf 1\nend\n",
        HEAD "link 0 1 1e999 1\nend\n",
        HEAD "link  0 1 1 1\nend\n",
        HEAD "link 0 1 1 1 \nend\n",
        HEAD "link 0 1 1 1\nlink 0 1 1 1\nend\n",
        HEAD "link 0 1 1 1 1\nend\n",
        HEAD "link 0 1 0x1 1\nend\n",
    };
    gw_doctor_table t = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_error error = {0};
        CHECK_EQ(GW_INVALID, gw_doctor_parse(wrong[i], strlen(wrong[i]), "f", &t, &error));
        CHECK(error.text[0] == 'f' && !t.nodes);
        if (!error.status) printf("      accepted: %s\n", wrong[i]);
    }
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_doctor_parse(HEAD "link 0 1 1e-5 8e-9\nend\n", strlen(HEAD "link 0 1 1e-5 8e-9\nend\n"), "f", &t,
                                    &error));
    gw_doctor_table_free(&t);
}

/* ---- lines ---- */

static void lines(void) {
    const char *line = "reached peer=3 ports=1,22,333 rate=2.5e3 empty= text=a b=c peer=9";
    char text[32];
    int number = 0, list[3];
    double rate;
    CHECK(gw_report_line_is(line, "reached") && !gw_report_line_is(line, "reach"));
    CHECK(gw_report_line_integer(line, "peer", 0, 5, &number) && number == 3);
    CHECK(!gw_report_line_integer(line, "peer", 0, 2, &number) && number == 3);
    CHECK_EQ(3, gw_report_line_list(line, "ports", 1, 400, list, 3));
    CHECK_EQ(0, gw_report_line_list(line, "ports", 1, 400, list, 2));
    CHECK(gw_report_line_number(line, "rate", &rate) && rate == 2500);
    CHECK(gw_report_line_text(line, "text", text, sizeof text));
    CHECK_STR("a b=c peer=9", text);
    CHECK(gw_report_line_text(line, "empty", text, sizeof text));
    CHECK_STR("", text);
    CHECK(!gw_report_line_text(line, "b", text, sizeof text));
    CHECK(!gw_report_line_text(line, "text", text, 5));
    CHECK(!gw_report_line_number("x rate=nan", "rate", &rate) && !gw_report_line_number("x rate=", "rate", &rate));
}

static void rates(void) {
    char text[GW_RATE_TEXT];
    CHECK_STR("94 Mbit/s", gw_doctor_rate(94e6 / 8, text));
    CHECK_STR("1.00 Gbit/s", gw_doctor_rate(1e9 / 8, text));
    CHECK_STR("25.0 Gbit/s", gw_doctor_rate(25e9 / 8, text));
    CHECK_STR("0.50 Mbit/s", gw_doctor_rate(5e5 / 8, text));
}

TEST_MAIN(CASE(no_finding_on_healthy_hosts), CASE(a_host_that_receives_slowly), CASE(a_host_that_is_slow_both_ways),
          CASE(a_slow_link_between_two_hosts), CASE(data_that_stalls), CASE(connections_that_break), CASE(ports),
          CASE(packet_sizes), CASE(clocks), CASE(latency_and_memory), CASE(hosts_of_one_machine), CASE(addresses),
          CASE(a_lost_host), CASE(findings_have_a_limit), CASE(a_file_comes_back), CASE(a_table_has_what_the_file_has),
          CASE(wrong_files_are_refused), CASE(lines), CASE(rates))
