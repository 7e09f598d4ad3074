/* test_interface.c - addresses as text and on the wire, and which interface is chosen. */
#include "bootstrap/interface.h"

#include "test.h"

#include <sys/resource.h>

static gw_address address(const char *text) {
    gw_address a = {0};
    CHECK(gw_address_literal(text, &a));
    return a;
}

static gw_interface interface(const char *name, const char *text, bool up) {
    gw_interface i = {.address = address(text), .up = up};
    snprintf(i.name, sizeof i.name, "%s", name);
    return i;
}

static void texts(void) {
    char text[GW_ADDRESS_TEXT], host[GW_HOST_TEXT];
    int port;
    gw_address a = address("10.1.2.3");
    gw_address_set_port(&a, 29500);
    CHECK_STR("10.1.2.3:29500", gw_address_text(&a, text));
    a = address("[fd00::12]");
    gw_address_set_port(&a, 1);
    CHECK_STR("[fd00::12]:1", gw_address_text(&a, text));
    CHECK_STR("fd00::12", gw_address_host_text(&a, text));
    CHECK(!gw_address_literal("node1", &a));
    CHECK(!gw_address_literal("12345", &a)); /* not the old one-number form */
    CHECK(!gw_address_literal("10.0.0.1:5", &a));
    CHECK(gw_address_split("[::1]:29500", host, &port) && port == 29500);
    CHECK_STR("::1", host);
    CHECK(gw_address_split("fd00::1:2", host, &port) && port == -1);
    CHECK_STR("fd00::1:2", host);
    CHECK(gw_address_split("node1:5", host, &port) && port == 5);
    CHECK(gw_address_split("[::1]", host, &port) && port == -1);
    static const char *const bad[] = {"",       "[::1",    "[::1]x",      "[]:5",    ":5",
                                      "node1:", "node1:0", "node1:65536", "node1:5x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!gw_address_split(bad[i], host, &port));
}

static void ports(void) {
    int low = -1, high = -1;
    CHECK(gw_ports_parse("29500-29599", &low, &high, NULL) == GW_OK && low == 29500 && high == 29599);
    CHECK(gw_ports_parse("7", &low, &high, NULL) == GW_OK && low == 7 && high == 7);
    static const char *const bad[] = {"",    "-",       "1-",  "-5",    "0-5",
                                      "9-8", "1-65536", "a-b", "1-2-3", "000000000000000000000000001-5x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(GW_INVALID, gw_ports_parse(bad[i], &low, &high, NULL));
}

static void the_wire(void) {
    static const char *const all[] = {"1.2.3.4", "255.255.255.255", "::1", "fd00::ff"};
    for (int i = 0; i < 4; i++) {
        uint8_t bytes[GW_ADDRESS_WIRE_BYTES];
        gw_address a = address(all[i]), b;
        gw_address_write(&a, bytes);
        CHECK(!gw_address_read(&b, bytes)); /* port 0 */
        gw_address_set_port(&a, 65535);
        gw_address_write(&a, bytes);
        CHECK(gw_address_read(&b, bytes));
        CHECK(gw_address_same_host(&a, &b) && gw_address_port(&b) == 65535);
        bytes[1] = 1;
        CHECK(!gw_address_read(&b, bytes));
        bytes[1] = 0;
        bytes[0] = 5;
        CHECK(!gw_address_read(&b, bytes));
        bytes[0] = 4;
        CHECK_EQ(i < 2, gw_address_read(&b, bytes));
    }
}

static void selection(void) {
    CHECK_EQ(0, gw_interface_preference("eth", "eth0"));
    CHECK_EQ(1, gw_interface_preference("ib,eth", "eth0"));
    CHECK_EQ(-1, gw_interface_preference("ib,eth", "lo"));
    CHECK_EQ(-1, gw_interface_preference("=eth", "eth0"));
    CHECK_EQ(1, gw_interface_preference("=ib0,eth0", "eth0"));
    CHECK_EQ(-1, gw_interface_preference("=eth0", "eth01"));
    CHECK_EQ(-1, gw_interface_preference("^docker,lo", "docker0"));
    CHECK_EQ(0, gw_interface_preference("^docker,lo", "eth0"));
    CHECK_EQ(0, gw_interface_preference("^=eth", "eth0"));
    CHECK_EQ(-1, gw_interface_preference("^=eth0", "eth0"));
    CHECK_EQ(-1, gw_interface_preference(",", "eth0"));
}

static void picks(void) {
    const gw_interface list[] = {interface("lo", "127.0.0.1", true),       interface("lo", "::1", true),
                                 interface("docker0", "172.17.0.1", true), interface("eth0", "fe80::1", true),
                                 interface("eth0", "10.0.0.5", true),      interface("eth0", "fd00::5", true),
                                 interface("ib0", "192.168.9.5", true),    interface("ib1", "192.168.8.5", false)};
    struct {
        const char *selection;
        int family;
        const char *expected;
    } cases[] = {
        {"eth", AF_INET, "10.0.0.5"},        {"eth", AF_INET6, "fd00::5"},
        {"ib,eth", AF_INET, "192.168.9.5"},  {"eth,ib", AF_INET, "10.0.0.5"},
        {"=ib0", AF_INET, "192.168.9.5"},    {"=ib0", AF_INET6, "192.168.9.5"},
        {"^docker,ib", AF_INET, "10.0.0.5"}, {"^eth,docker", AF_INET, "192.168.9.5"},
        {"lo", AF_INET, "127.0.0.1"},        {"lo", AF_INET6, "::1"},
        {"=ib1,eth0", AF_INET, "10.0.0.5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_address chosen;
        char text[GW_ADDRESS_TEXT];
        CHECK_EQ(GW_OK, gw_interface_pick(cases[i].selection, cases[i].family, list, 8, &chosen, NULL));
        CHECK_STR(cases[i].expected, gw_address_host_text(&chosen, text));
    }
    gw_error error = {0};
    gw_address chosen;
    CHECK_EQ(GW_INVALID, gw_interface_pick("wlan", AF_INET, list, 8, &chosen, &error));
    CHECK(strstr(error.text, "wlan") && strstr(error.text, "eth0 10.0.0.5") &&
          strstr(error.text, "ib1 192.168.8.5 (down)"));
    CHECK_EQ(GW_INVALID, gw_interface_pick("=ib1", AF_INET, list, 8, &chosen, NULL));
    CHECK_EQ(GW_INVALID,
             gw_interface_pick("^eth,ib,docker", AF_INET, list, 8, &chosen, NULL)); /* lo is not an accident */
}

static void this_host(void) {
    gw_address loopback = address("127.0.0.1"), chosen;
    char text[GW_ADDRESS_TEXT];
    CHECK_EQ(GW_OK, gw_interface_choose(NULL, &loopback, &chosen, NULL));
    CHECK_STR("127.0.0.1", gw_address_host_text(&chosen, text));
    gw_address loopback6 = address("::1");
    CHECK_EQ(GW_OK, gw_interface_choose("", &loopback6, &chosen, NULL));
    CHECK_STR("::1", gw_address_host_text(&chosen, text));
    CHECK_EQ(GW_OK, gw_interface_choose("lo", &loopback, &chosen, NULL));
    CHECK_STR("127.0.0.1", gw_address_host_text(&chosen, text));
    CHECK(gw_interface_is_local(&loopback));
    gw_address far = address("203.0.113.77");
    CHECK(!gw_interface_is_local(&far));
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_interface_choose("=nosuch0", &loopback, &chosen, &error));
    CHECK(strstr(error.text, "lo 127.0.0.1") != NULL);
}

/* The host's own name may resolve to 127.0.1.1; the rendezvous address must not, unless there is no network. */
static void own_name(void) {
    char name[65] = "";
    gw_address list[4];
    gw_interface *all = calloc(GW_INTERFACES_MAX, sizeof *all);
    int count = 0, interfaces = 0;
    bool network = false;
    gethostname(name, sizeof name - 1);
    CHECK_EQ(GW_OK, gw_interface_list(all, &interfaces, NULL));
    for (int i = 0; i < interfaces; i++) network |= all[i].up && !gw_address_loopback(&all[i].address);
    free(all);
    if (gw_interface_master(name, NULL, list, 4, &count, NULL) != GW_OK) return; /* it has no name in any table */
    for (int i = 0; i < count; i++) CHECK(!network || !gw_address_loopback(&list[i]));
    CHECK_EQ(GW_OK, gw_interface_master("localhost", NULL, list, 4, &count, NULL));
    for (int i = 0; i < count; i++) CHECK(gw_address_loopback(&list[i]));
    CHECK_EQ(GW_OK, gw_interface_master("127.0.1.1", NULL, list, 4, &count, NULL));
    CHECK(count == 1 && gw_address_loopback(&list[0])); /* asked for, so no accident */
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_interface_master("no.such.name.invalid", NULL, list, 4, &count, &error));
    CHECK(strstr(error.text, "MASTER_ADDR") != NULL);
}

/* Without descriptors no route can be looked up, which is not the network's fault. */
static void descriptors_are_used_up(void) {
    struct rlimit before, none;
    gw_address master, chosen;
    gw_error error = {.rank = -1};
    gw_address_literal("127.0.0.1", &master);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    CHECK_EQ(GW_SYSTEM, gw_interface_choose(NULL, &master, &chosen, &error));
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(strstr(error.text, "no descriptor left") != NULL && strstr(error.text, "ulimit -n") != NULL);
    CHECK(strstr(error.text, "no route") == NULL);
}

TEST_MAIN(CASE(descriptors_are_used_up), CASE(texts), CASE(ports), CASE(the_wire), CASE(selection), CASE(picks),
          CASE(this_host), CASE(own_name))
