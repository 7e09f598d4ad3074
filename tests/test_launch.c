/* test_launch.c - the pure parts of the launcher: host lists, commands, frames, lines, verdicts. tests/run.sh tests the
 * parts that start processes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "launch/console.h"
#include "launch/host_connection.h"
#include "launch/host_spec.h"
#include "launch/hosts.h"
#include "launch/job.h"
#include "launch/launch_protocol.h"
#include "launch/verdict.h"
#include "test.h"

/* "name:slots[+]" of every host, + for local ones; or "!" and the error. */
static const char *hosts_text(gw_status status, gw_hosts *hosts, const gw_error *error, char *text, size_t size) {
    text[0] = 0;
    if (status != GW_OK) snprintf(text, size, "!%s", error->text);
    for (int i = 0; status == GW_OK && i < hosts->count; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s:%d%s", i ? " " : "", hosts->list[i].name,
                 hosts->list[i].slots, hosts->list[i].local ? "+" : "");
    gw_hosts_free(hosts);
    return text;
}

static void host_lists(void) {
    static const struct {
        const char *list, *expected;
    } cases[] = {
        {"a:4,b:2", "a:4 b:2"},
        {"a", "a:1"},
        {"a,b:3,a:2", "a:3 b:3"},
        {"localhost:2,x", "localhost:2+ x:1"},
        {"[fe80::1%eth0]:2,[::1]", "fe80::1%eth0:2 ::1:1+"},
        {"me@node1:2", "me@node1:2"},
        {"", "!\"\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {"a:4,", "!\"\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {":4", "!\":4\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {"-oProxyCommand=x", "!\"-oProxyCommand=x\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {"a;reboot", "!\"a;reboot\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {"a b", "!\"a b\" in the host list is not a host; write host:slots, e.g. node1:4"},
        {"a:0", "!\"0\" is not a number of slots for host a in the host list; allowed are 1 to 65535"},
        {"a:x", "!\"x\" is not a number of slots for host a in the host list; allowed are 1 to 65535"},
        {"a:", "!\"\" is not a number of slots for host a in the host list; allowed are 1 to 65535"},
        {"a:65536", "!\"65536\" is not a number of slots for host a in the host list; allowed are 1 to 65535"},
        {"a:65535,a:1", "!host a has more than 65535 slots"},
        {"::1:4", "!\"::1:4\" in the host list has several colons; write an IPv6 address as [address]:slots"},
        {"[::1", "!\"[::1\" in the host list is not a host; write [address]:slots"},
        {"[::1]4", "!\"[::1]4\" in the host list is not a host; write [address]:slots"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_hosts hosts;
        gw_error error = {0};
        char text[1024];
        gw_status status = gw_hosts_parse(&hosts, cases[i].list, &error);
        CHECK_STR(cases[i].expected, hosts_text(status, &hosts, &error, text, sizeof text));
    }
}

static const char *read_hosts(const char *content, char *text, size_t size) {
    char path[] = "/tmp/gradwire-hosts-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
    close(fd);
    gw_hosts hosts;
    gw_error error = {0};
    gw_status status = gw_hosts_read(&hosts, path, &error);
    unlink(path);
    hosts_text(status, &hosts, &error, text, size);
    char *at = strstr(text, path); /* its random name is not compared */
    if (at) memmove(at, at + strlen(path), strlen(at + strlen(path)) + 1);
    return text;
}

static void host_files(void) {
    char t[1024];
    CHECK_STR("a:4 b:3 c:2 d:1", read_hosts("a slots=4\n# none\n\n b:3 # b\nc\t2\r\nd", t, sizeof t));
    CHECK_STR("a:5", read_hosts("a slots=4\na\n", t, sizeof t));
    CHECK_STR("!the host file  names no host; write lines such as: node1 slots=4", read_hosts("# no\n", t, sizeof t));
    CHECK_STR("!\"x\" is not a number of slots for host a in  line 2; allowed are 1 to 65535",
              read_hosts("#\na slots=x\n", t, sizeof t));
    CHECK_STR("!\"a:2\" in  line 1 gives its slots twice", read_hosts("a:2 slots=2\n", t, sizeof t));
    CHECK_STR("!\"c\" in  line 1 is one word too many; write: host slots=4", read_hosts("a 2 c\n", t, sizeof t));
    gw_hosts hosts;
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_hosts_read(&hosts, "/nonexistent/hosts", &error));
    CHECK_STR("cannot read the host file /nonexistent/hosts: No such file or directory", error.text);
    CHECK(gw_hosts_read(&hosts, "/tmp", &(gw_error){0}) == GW_INVALID);
}

static void placement(void) {
    for (int ranks = 0; ranks <= 7; ranks++) {
        gw_hosts hosts;
        gw_error error = {0};
        CHECK_EQ(GW_OK, gw_hosts_parse(&hosts, "a:2,b:1,c:3", &error));
        gw_status status = gw_hosts_place(&hosts, ranks, &error);
        CHECK_EQ(ranks == 7 ? GW_INVALID : GW_OK, status);
        if (status == GW_OK) {
            CHECK_EQ(ranks ? ranks : 6, gw_hosts_world(&hosts));
            CHECK_EQ(ranks == 0 || ranks > 3 ? 3 : ranks == 3 ? 2 : 1, hosts.count);
            for (int i = 0, next = 0; i < hosts.count; next += hosts.list[i++].ranks) {
                CHECK_EQ(next, hosts.list[i].first_rank);
                CHECK(hosts.list[i].ranks >= 1 && hosts.list[i].ranks <= hosts.list[i].slots);
            }
        }
        CHECK(!gw_hosts_all_local(&hosts));
        gw_hosts_free(&hosts);
    }
}

static void orders(void) {
    char *argv[] = {"./a b", "", "'\"\n$x", NULL}, *env[] = {"A=1", "B=x=y", NULL};
    gw_host_spec order = {3, 2, 8, 1, -1, 1, 25000, 26000, 2000, "/a dir", argv, env, NULL, NULL}, back;
    gw_error error = {0};
    gw_buffer bytes = {0};
    gw_host_spec_pack(&order, &bytes);
    size_t size = gw_buffer_size(&bytes);
    CHECK_EQ(GW_OK, gw_host_spec_unpack(&back, gw_buffer_head(&bytes), size, &error));
    CHECK(back.first_rank == 3 && back.local_ranks == 2 && back.world == 8 && back.group == 1);
    CHECK(back.listen_fd == -1 && back.heartbeat_ms == 25000 && back.silence_ms == 26000 && back.grace_ms == 2000);
    CHECK_STR("/a dir", back.directory);
    for (int i = 0; i < 3; i++) CHECK_STR(argv[i], back.argv[i]);
    for (int i = 0; i < 2; i++) CHECK_STR(env[i], back.env[i]);
    CHECK(!back.argv[3] && !back.env[2]);
    gw_host_spec_free(&back);
    for (size_t cut = 0; cut < size; cut++) { /* copied, so that reading past the end is seen by the sanitizer */
        char *part = malloc(cut + 1);
        memcpy(part, gw_buffer_head(&bytes), cut);
        CHECK_EQ(GW_PROTOCOL, gw_host_spec_unpack(&back, part, cut, NULL));
        free(part);
    }
    gw_buffer_add(&bytes, "x", 2);
    CHECK_EQ(GW_PROTOCOL, gw_host_spec_unpack(&back, gw_buffer_head(&bytes), size + 2, NULL));
    gw_buffer_free(&bytes);
}

static void frames(void) {
    gw_buffer all = {0}, in = {0};
    gw_launch_put(&all, GW_LAUNCH_OUTPUT, 2, 65534, "text", 4);
    gw_launch_put_numbers(&all, GW_LAUNCH_EXITED, 0, 1, 9, 4000000000u);
    int seen = 0;
    for (size_t i = 0; i < gw_buffer_size(&all); i++) { /* byte by byte */
        gw_launch_frame frame;
        gw_buffer_add(&in, gw_buffer_head(&all) + i, 1);
        gw_launch_state state = gw_launch_peek(&in, &frame);
        CHECK(state != GW_LAUNCH_BROKEN);
        if (state != GW_LAUNCH_FRAME) continue;
        if (seen++ == 0) {
            CHECK(frame.kind == GW_LAUNCH_OUTPUT && frame.detail == 2 && frame.rank == 65534 && frame.bytes == 4);
            CHECK(memcmp(frame.payload, "text", 4) == 0 && gw_launch_number(&frame, 1) == 0);
        } else {
            CHECK(frame.kind == GW_LAUNCH_EXITED && gw_launch_number(&frame, 0) == 9);
            CHECK(gw_launch_number(&frame, 1) == 4000000000u && gw_launch_number(&frame, 2) == 0);
        }
        gw_launch_take(&in, &frame);
    }
    CHECK_EQ(2, seen);
    CHECK_EQ(0, gw_buffer_size(&in));
    gw_launch_frame frame;
    gw_buffer_add(&in, "\xff\xff\xff\xff\1\0\0\0", 8);
    CHECK_EQ(GW_LAUNCH_BROKEN, gw_launch_peek(&in, &frame));
    gw_buffer_free(&in);
    gw_buffer_free(&all);
}

/* ---- lines ---- */

typedef struct screen {
    gw_console console;
    int file;
    char *text; /* after screen_show */
} screen;

static screen screen_open(bool prefix, bool terminal) {
    screen s = {.file = memfd_create("screen", MFD_CLOEXEC)};
    s.console.options =
        (gw_console_options){.fd = {s.file, s.file}, .prefix = prefix, .terminal = {terminal, terminal}};
    return s;
}

static size_t screen_show(screen *s) {
    while (gw_console_fd(&s->console) >= 0) CHECK_EQ(0, gw_console_write(&s->console));
    size_t size = (size_t)lseek(s->file, 0, SEEK_END);
    s->text = calloc(1, size + 1);
    CHECK_EQ(size, pread(s->file, s->text, size, 0));
    return size;
}

static void screen_close(screen *s) {
    gw_console_free(&s->console);
    close(s->file);
    free(s->text);
}

static void whole_lines(void) {
    screen s = screen_open(true, false);
    gw_console_line a = {0}, b = {0}, host = {0};
    gw_console_lines(&s.console, &a, 0, 0, NULL, "one\ntw", 6);
    gw_console_lines(&s.console, &b, 1, 11, NULL, "other\n\n", 7);
    gw_console_lines(&s.console, &host, 1, -1, "b", "Welcome\n", 8);
    gw_console_lines(&s.console, &a, 0, 0, NULL, "o\n", 2);
    gw_console_lines(&s.console, &b, 1, 11, NULL, "50%\r60%", 7);
    gw_console_flush_line(&s.console, &b, 1, 11, NULL);
    gw_console_flush_line(&s.console, &a, 0, 0, NULL);
    gw_console_say(&s.console, "done");
    screen_show(&s);
    CHECK_STR("[0] one\n[11] other\n[11] \n[b] Welcome\n[0] two\n[11] 50%\r60%\ngradwire: done\n", s.text);
    gw_buffer_free(&a.bytes);
    gw_buffer_free(&b.bytes);
    gw_buffer_free(&host.bytes);
    screen_close(&s);
}

static void progress_bars_move(void) {
    screen s = screen_open(true, true);
    gw_console_line a = {0};
    const char text[] = "\r10%\r20%\r\nend\r";
    for (size_t i = 0; i < sizeof text - 1; i++) gw_console_lines(&s.console, &a, 0, 0, NULL, text + i, 1);
    gw_console_flush_line(&s.console, &a, 0, 0, NULL);
    screen_show(&s);
    CHECK_STR("[0] \r[0] 10%\r[0] 20%\r\n[0] end\r", s.text);
    gw_buffer_free(&a.bytes);
    screen_close(&s);
}

/* Any bytes in any parts: without a prefix the output is the input, with one it is that of the reference. */
static void any_bytes(void) {
    enum { BYTES = 3 << 20 };
    char *data = malloc(BYTES);
    unsigned state = 1;
    for (int i = 0; i < BYTES; i++) {
        state = state * 1103515245u + 12345u;
        data[i] = (char)(state >> 16);
        if (i > BYTES / 4 && data[i] == '\n') data[i] = 0; /* the rest is one line longer than any is kept */
    }
    for (int prefix = 0; prefix < 2; prefix++) {
        screen s = screen_open(prefix, false);
        gw_console_line line = {0};
        for (size_t at = 0, piece = 1; at < BYTES; at += piece, piece = piece * 7 % 9973 + 1) {
            if (piece > BYTES - at) piece = BYTES - at;
            gw_console_lines(&s.console, &line, 0, 5, NULL, data + at, piece);
        }
        gw_console_flush_line(&s.console, &line, 0, 5, NULL);
        size_t size = screen_show(&s), at = 0, from = 0;
        while (from < BYTES) {
            const char *newline = memchr(data + from, '\n', BYTES - from);
            size_t length = newline ? (size_t)(newline - data) + 1 - from : BYTES - from;
            if (length > GW_LINE_MAX_BYTES) length = GW_LINE_MAX_BYTES;
            if (prefix && (at + 4 > size || memcmp(s.text + at, "[5] ", 4) != 0)) break;
            at += prefix ? 4 : 0;
            if (at + length > size || memcmp(s.text + at, data + from, length) != 0) break;
            at += length;
            from += length;
            if (prefix && data[from - 1] != '\n') at += s.text[at] == '\n';
        }
        CHECK_EQ(BYTES, from);
        CHECK_EQ(size, at);
        gw_buffer_free(&line.bytes);
        screen_close(&s);
    }
    free(data);
}

static void closed_output(void) {
    int ends[2];
    CHECK_EQ(0, pipe(ends));
    signal(SIGPIPE, SIG_IGN);
    screen s = screen_open(true, false);
    s.console.options.fd[0] = ends[1];
    close(ends[0]);
    gw_console_line line = {0};
    gw_console_lines(&s.console, &line, 0, 0, NULL, "lost\n", 5);
    gw_console_say(&s.console, "kept");
    CHECK_EQ(EPIPE, gw_console_write(&s.console));
    gw_console_lines(&s.console, &line, 0, 0, NULL, "lost\n", 5);
    screen_show(&s);
    CHECK_STR("gradwire: kept\n", s.text);
    close(ends[1]);
    gw_buffer_free(&line.bytes);
    screen_close(&s);
}

static void greetings(void) {
    screen s = screen_open(true, false);
    gw_host host = {.name = "b"};
    gw_host_connection connection = {.host = &host, .to = -1, .from = -1, .errors = -1};
    const char *text = "Welcome\ngradwire super\n" GW_LAUNCH_HELLO "rest";
    for (size_t i = 0; text[i]; i++) {
        gw_buffer_add(&connection.in, text + i, 1);
        if (!connection.greeted) gw_host_connection_greet(&connection, &s.console);
    }
    CHECK(connection.greeted);
    CHECK(gw_buffer_size(&connection.in) == 4 && memcmp(gw_buffer_head(&connection.in), "rest", 4) == 0);
    screen_show(&s);
    CHECK_STR("[b] Welcome\n[b] gradwire super\n", s.text);
    gw_host_connection_free(&connection);
    screen_close(&s);
}

static void verdicts(void) {
    gw_verdict v = {0};
    CHECK(!gw_verdict_exited(&v, "rank 0", "a", 0, 10));
    CHECK_EQ(GW_VERDICT_NONE, v.weight);
    CHECK(gw_verdict_exited(&v, "rank 1", "a", 3 << 8, 1500));
    CHECK(gw_verdict_exited(&v, "rank 0", "a", 4 << 8, 1500));
    CHECK_STR("rank 1 on host a ended with exit code 3 after 1.5 s", v.text);
    CHECK(gw_verdict_exited(&v, "rank 2", "b", SIGKILL, 3249)); /* reported later, but the cause */
    gw_verdict_set(&v, GW_VERDICT_FINAL, 124, "timeout");
    CHECK_STR("rank 2 on host b was killed by signal 9 (Killed) after 3.2 s", v.text);
    CHECK_EQ(137, v.code);
    v = (gw_verdict){0};
    gw_verdict_no_start(&v, "rank 0", "b", GW_START_PROGRAM, ENOENT, "./x", "/d");
    CHECK_STR("cannot start ./x on host b as rank 0: No such file or directory", v.text);
    CHECK_EQ(127, v.code);
    v = (gw_verdict){0};
    gw_verdict_no_start(&v, "rank 4", "b", GW_START_DIRECTORY, ENOENT, "./x", "/d");
    CHECK_STR("cannot enter the directory /d on host b for rank 4: No such file or directory", v.text);
    CHECK_EQ(126, v.code);
}

TEST_MAIN(CASE(host_lists), CASE(host_files), CASE(placement), CASE(orders), CASE(frames), CASE(whole_lines),
          CASE(progress_bars_move), CASE(any_bytes), CASE(closed_output), CASE(greetings), CASE(verdicts))
