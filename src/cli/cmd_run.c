/* cmd_run.c - gradwire run: starts the ranks of a job, on this machine or on others. This file turns the options into a
 * job; launch/ runs it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "bootstrap/listen.h"
#include "bootstrap/token.h"
#include "cli/common/args.h"
#include "cli/common/host_options.h"
#include "insight/timeline_repair.h"
#include "lab/namespace_hosts.h"
#include "launch/job.h"
#include "launch/launch_protocol.h"
#include "runtime/context.h"
#include "strategy/combine.h"
#include "trace/trace.h"

enum { DEFAULT_PORT = 29500, DEFAULT_DEADLINE = 30, SECONDS_MAX = 30 * 24 * 3600, SILENCE_MAX = 7 * 24 * 3600 };

extern char **environ;

typedef struct settings {
    int64_t ranks; /* 0: one for each slot */
    int64_t port;  /* 0: any */
    const char *hosts, *hostfile, *rsh, *remote_path, *master_addr;
    const char *strategy, *decisions, *interface, *ports, *log, *bind; /* NULL: from the environment */
    const char *timeline, *capture, *snapshots;                        /* likewise */
    double deadline, grace, timeout;                                   /* seconds; deadline, timeout 0: not given */
    int64_t restarts, servers;
    const char *lab_text;
    gw_lab_options lab; /* hosts 0: no lab */
    bool no_prefix, elastic, no_heartbeat;
    int port_low, port_high; /* of ports; 0: any */
} settings;

/* The environment that all ranks share. */
typedef struct variables {
    char **list; /* "NAME=value", owned, NULL at the end */
    int count;
    bool failed; /* no memory; stays set */
} variables;

static void add_variable(variables *v, const char *name, const char *value) {
    char *text = NULL;
    char **list = realloc(v->list, ((size_t)v->count + 2) * sizeof *list);
    if (list) v->list = list;
    if (!list || asprintf(&text, "%s=%s", name, value) < 0) {
        v->failed = true;
        return;
    }
    v->list[v->count++] = text;
    v->list[v->count] = NULL;
}

static void free_variables(variables *v) {
    for (int i = 0; i < v->count; i++) {
        explicit_bzero(v->list[i], strlen(v->list[i])); /* one of them is the token */
        free(v->list[i]);
    }
    free(v->list);
}

/* Forwards GRADWIRE_* variables to all hosts, except those that belong to one job or one process. */
static void forward_variables(variables *v) {
    static const char *const own[] = {"GRADWIRE_TOKEN",  "GRADWIRE_TOKEN_FILE", "GRADWIRE_LISTEN_FD", "GRADWIRE_ROSTER",
                                      "GRADWIRE_MEMBER", "GRADWIRE_GENERATION", "GRADWIRE_SERVERS"};
    for (char **entry = environ; *entry; entry++) {
        char name[128];
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "GRADWIRE_", 9) != 0 || (*entry)[length] != '=' || length >= sizeof name) continue;
        memcpy(name, *entry, length);
        name[length] = 0;
        bool skip = false;
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) skip |= strcmp(name, own[i]) == 0;
        if (!skip) add_variable(v, name, *entry + length + 1);
    }
}

/* The rendezvous address: where the ranks find rank 0. */
typedef struct master {
    int listen_fd; /* rank 0 inherits it, so that no other process takes the port; -1: rank 0 opens its own */
    int port;      /* of the library (GRADWIRE_MASTER_PORT) */
    int spare;     /* for the program itself (MASTER_PORT), for example for a PyTorch store */
    char address[GW_HOST_NAME_BYTES];
} master;

static void add_number(variables *v, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add_variable(v, name, text);
}

static gw_status collect_variables(variables *v, const settings *s, const master *rank0, gw_error *error) {
    gw_token token;
    gw_status status = gw_token_random(&token, error);
    if (status != GW_OK) return status;
    forward_variables(v);
    add_variable(v, "GRADWIRE_TOKEN", token.text);
    gw_token_wipe(&token);
    add_variable(v, "MASTER_ADDR", rank0->address);
    add_number(v, "MASTER_PORT", rank0->spare);
    add_number(v, "GRADWIRE_MASTER_PORT", rank0->port);
    add_number(v, "GRADWIRE_SERVERS", (int)s->servers);
    return v->failed ? gw_fail(error, GW_MEMORY, "there is no memory for the environment of the ranks") : GW_OK;
}

static gw_status find_hosts(gw_hosts *hosts, const settings *s, gw_error *error) {
    gw_status status;
    if (s->hosts) status = gw_hosts_parse(hosts, s->hosts, error);
    else if (s->hostfile) status = gw_hosts_read(hosts, s->hostfile, error);
    else status = gw_hosts_local(hosts, s->ranks ? (int)s->ranks : 1, error);
    if (status == GW_OK) status = gw_hosts_place(hosts, (int)s->ranks, error);
    return status == GW_OK ? gw_hosts_serve(hosts, (int)s->servers, error) : status;
}

/* A port that is free now. It is not kept open, because the program listens on it. */
static int spare_port(const gw_address *loopback, int otherwise) {
    gw_address bound;
    gw_error ignored = {0};
    int fd = -1;
    if (gw_listen_open(loopback, 0, 0, &fd, &bound, &ignored) != GW_OK) return otherwise;
    close(fd);
    return gw_address_port(&bound);
}

static gw_status listen_on_loopback(master *m, const settings *s, gw_error *error) {
    int low = s->port ? (int)s->port : s->port_low, high = s->port ? (int)s->port : s->port_high;
    gw_address loopback, bound;
    char text[GW_ADDRESS_TEXT];
    gw_error ignored = {0};
    gw_address_literal("127.0.0.1", &loopback);
    gw_status status = gw_listen_open(&loopback, low, high, &m->listen_fd, &bound, error);
    if (status != GW_OK) {
        gw_address_literal("::1", &loopback);
        status = gw_listen_open(&loopback, low, high, &m->listen_fd, &bound, &ignored);
    }
    if (status != GW_OK) return error->status;
    *error = (gw_error){0};
    m->port = gw_address_port(&bound);
    m->spare = spare_port(&loopback, m->port);
    snprintf(m->address, sizeof m->address, "%s", gw_address_host_text(&bound, text));
    return GW_OK;
}

static gw_status find_master(master *m, const settings *s, const gw_hosts *hosts, gw_error *error) {
    const gw_host *first = &hosts->list[0];
    m->listen_fd = -1;
    if (gw_hosts_all_local(hosts) && !s->master_addr) return listen_on_loopback(m, s, error);
    m->spare = s->port ? (int)s->port : s->port_low ? s->port_low : DEFAULT_PORT;
    m->port = m->spare < (s->port_high ? s->port_high : 65535) ? m->spare + 1 : m->spare;
    const char *login = strchr(first->name, '@');
    snprintf(m->address, sizeof m->address, "%s", s->master_addr ? s->master_addr : login ? login + 1 : first->name);
    if (!s->master_addr && first->local && gethostname(m->address, sizeof m->address - 1) != 0)
        return gw_fail(error, GW_SYSTEM, "this host has no name: %s; use --master-addr", strerror(errno));
    return GW_OK;
}

static gw_console_options console_options(const settings *s) {
    gw_console_options options = {.prefix = !s->no_prefix};
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool colours = !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
    for (int i = 0; i < 2; i++) {
        options.fd[i] = i + 1;
        options.terminal[i] = isatty(i + 1);
        options.colour[i] = options.terminal[i] && colours;
    }
    return options;
}

static gw_time nanoseconds(double seconds) { return (gw_time)(seconds * (double)GW_SECOND); }

static int complain(const gw_error *error) {
    fprintf(stderr, "gradwire run: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

/* The deadline of the ranks. */
static gw_time deadline_of(const settings *s) {
    const char *text = getenv("GRADWIRE_DEADLINE");
    double seconds = s->deadline;
    if (seconds <= 0 && !(text && gw_duration_parse(text, &seconds) && seconds > 0)) seconds = DEFAULT_DEADLINE;
    return nanoseconds(seconds < SILENCE_MAX ? seconds : SILENCE_MAX);
}

static gw_status open_elastic(gw_elastic *elastic, const settings *s, const gw_hosts *hosts, const master *rank0,
                              gw_error *error) {
    gw_elastic_options options = {.hosts = hosts, .restarts = (int)s->restarts, .address = rank0->address,
                                  .port = rank0->port, .port_low = s->port_low, .port_high = s->port_high,
                                  .deadline = deadline_of(s)};
    return s->elastic || s->restarts ? gw_elastic_open(elastic, &options, error) : GW_OK;
}

static int start(const settings *s, char **argv) {
    gw_error error = {0};
    gw_hosts hosts = {0};
    master rank0 = {.listen_fd = -1};
    variables env = {0};
    gw_elastic elastic = {0};
    char own_path[PATH_MAX] = "";
    char *directory = get_current_dir_name();
    int code = -1;
    if (!directory) gw_fail(&error, GW_SYSTEM, "the current directory is gone: %s", strerror(errno));
    if (!s->remote_path && readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        gw_fail(&error, GW_SYSTEM, "cannot find my own program file: %s; use --remote-path", strerror(errno));
    if (error.status == GW_OK && find_hosts(&hosts, s, &error) == GW_OK &&
        find_master(&rank0, s, &hosts, &error) == GW_OK && collect_variables(&env, s, &rank0, &error) == GW_OK &&
        open_elastic(&elastic, s, &hosts, &rank0, &error) == GW_OK) {
        const char *program = s->remote_path ? s->remote_path : own_path;
        char *const server_argv[] = {(char *)(uintptr_t)program, "server", NULL};
        gw_job_options job = {
            .hosts = &hosts,
            .directory = directory,
            .argv = argv,
            .server_argv = server_argv,
            .env = env.list,
            .host_connection = {.rsh = s->rsh, .remote_path = program, .listen_fd = rank0.listen_fd},
            .console = console_options(s),
            .elastic = elastic.members ? &elastic : NULL,
            .grace = nanoseconds(s->grace),
            .silence = s->no_heartbeat ? 0 : gw_silence_limit(deadline_of(s)),
            .timeout = nanoseconds(s->timeout),
        };
        code = gw_job_run(&job);
    }
    if (code < 0) code = complain(&error);
    gw_elastic_close(&elastic);
    free_variables(&env);
    gw_hosts_free(&hosts);
    free(directory);
    return code;
}

/* Starts the job; with --lab creates the lab first. The lab's hosts are network namespaces, and `ip netns exec` is
 * their remote shell. */
static int start_in_lab(settings *s, char **argv) {
    gw_lab *lab = NULL;
    gw_error error = {0};
    char names[GW_LAB_HOSTS_MAX * (GW_LAB_NAME_BYTES + 8)] = "";
    size_t used = 0;
    int hosts = s->lab.hosts, slots = hosts ? ((int)s->ranks + hosts - 1) / hosts : 0;
    if (!hosts) return start(s, argv);
    if (gw_lab_open(&lab, &s->lab, &error) != GW_OK) return complain(&error);
    for (int i = 0; i < hosts; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s:%d", i ? "," : "", gw_lab_name(lab, i),
                                 slots ? slots : 1);
    s->hosts = names;
    s->rsh = "ip netns exec";
    s->master_addr = gw_lab_address(lab, 0);
    int code = start(s, argv);
    gw_lab_close(lab);
    return code;
}

static bool set_given(const char *name, const char *value) { return !value || setenv(name, value, 1) == 0; }

/* Options replace variables, which are forwarded to the ranks. */
static bool set_all_given(const settings *s) {
    char deadline[32];
    snprintf(deadline, sizeof deadline, "%.9g", s->deadline);
    return set_given("GRADWIRE_STRATEGY", s->strategy) && set_given("GRADWIRE_DECISIONS", s->decisions) &&
           set_given("GRADWIRE_INTERFACE", s->interface) && set_given("GRADWIRE_PORTS", s->ports) &&
           set_given("GRADWIRE_LOG", s->log) && set_given("GRADWIRE_BIND", s->bind) &&
           set_given("GRADWIRE_SNAPSHOTS", s->snapshots) &&
           set_given("GRADWIRE_DEADLINE", s->deadline > 0 ? deadline : NULL);
}

/* What every rank would refuse is refused here, once. A strategy file may be on the hosts of the ranks only. */
static gw_status check_variables(gw_error *error) {
    gw_strategy strategy;
    gw_error why = {.rank = -1};
    gw_status status = gw_strategy_resolve(NULL, &strategy, &why);
    if (status && status != GW_SYSTEM) return gw_fail(error, status, "%s", why.text);
    return gw_context_check_environment(error);
}

/* -1, or an exit code. */
static int check(settings *s, int argc) {
    gw_error error = {0};
    gw_strategy strategy;
    const char *ports = s->ports ? s->ports : getenv("GRADWIRE_PORTS");
    if (argc < 2)
        return gw_usage_error(&gw_command_run, "no program to run is given (usage: gradwire run %s)",
                              gw_command_run.usage);
    if ((s->hosts != NULL) + (s->hostfile != NULL) + (s->lab_text != NULL) > 1)
        return gw_usage_error(&gw_command_run, "give only one of --hosts, --hostfile and --lab");
    if (s->lab_text && gw_lab_parse(s->lab_text, &s->lab, &error) != GW_OK) return complain(&error);
    if (s->grace > SECONDS_MAX || s->timeout > SECONDS_MAX)
        return gw_usage_error(&gw_command_run, "--grace and --timeout cannot be longer than 30 days");
    if (s->strategy && gw_strategy_parse(s->strategy, &strategy, &error) != GW_OK) return complain(&error);
    if (s->servers && (gw_strategy_resolve(s->strategy, &strategy, &error) != GW_OK ||
                       gw_strategy_apply_servers(&strategy, (int)s->servers, &error) != GW_OK))
        return gw_usage_error(&gw_command_run, "%s", error.text);
    if (ports && gw_ports_parse(ports, &s->port_low, &s->port_high, &error) != GW_OK) return complain(&error);
    if (!set_all_given(s)) return gw_usage_error(&gw_command_run, "there is no memory for the environment");
    return check_variables(&error) == GW_OK ? -1 : complain(&error);
}

/* Opens /dev/null for each closed standard stream; otherwise a pipe could get descriptor 0, 1 or 2. */
static void open_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return;
}

static int run(int argc, char **argv) {
    static const char *const levels[] = {"error", "warn", "info", "debug", "trace", NULL};
    static const char *const bindings[] = {"share", "none", NULL};
    settings s = {.rsh = GW_RSH_PRESET, .grace = 2};
    const gw_option options[] = {
        /* clang-format off */
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &s.ranks, .lowest = 1,
         .highest = GW_LAUNCH_MAX_RANKS,
         .about = "number of ranks (default: all slots of the hosts; 1 on this machine)"},
        {.name = "hosts", .letter = 'H', .kind = GW_OPTION_STRING, .value = "A:4,B:4", .string = &s.hosts,
         .about = "hosts and their slots (ranks per host)"},
        {.name = "hostfile", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.hostfile,
         .about = "file with one host per line: host slots=4"},
        GW_OPTION_LAB(&s.lab_text),
        GW_OPTION_RSH(&s.rsh),
        GW_OPTION_REMOTE_PATH(&s.remote_path),
        {.name = "master-addr", .kind = GW_OPTION_STRING, .value = "ADDRESS", .string = &s.master_addr,
         .about = "rendezvous address, of rank 0 (default: the first host, or loopback)"},
        {.name = "port", .kind = GW_OPTION_INTEGER, .integer = &s.port, .lowest = 1, .highest = 65535,
         .about = "ports N and N+1 of rank 0 (default: the first of --ports, else 29500; on this machine any)"},
        {.name = "ports", .kind = GW_OPTION_STRING, .value = "LOW-HIGH", .string = &s.ports,
         .about = "range of ports that ranks may listen on, for firewalls"},
        {.name = "interface", .kind = GW_OPTION_STRING, .value = "LIST", .string = &s.interface,
         .about = "network interfaces to use: eth,ib are prefixes, ^docker excludes, =eth0 is exact"},
        {.name = "strategy", .kind = GW_OPTION_STRING, .value = "LINE", .string = &s.strategy,
         .about = "strategy line of all ranks (gradwire list)"},
        {.name = "decisions", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.decisions,
         .about = "strategy=auto writes its decisions to FILE; a file that exists is replayed"},
        {.name = "deadline", .kind = GW_OPTION_DURATION, .seconds = &s.deadline,
         .about = "fail after this time without progress (default: 30 s)"},
        {.name = "log", .kind = GW_OPTION_CHOICE, .value = "LEVEL", .string = &s.log, .choices = levels,
         .about = "log level of the library"},
        {.name = "bind", .kind = GW_OPTION_CHOICE, .value = "HOW", .string = &s.bind, .choices = bindings,
         .about = "cores of a rank: its share of the host's cores (default), or all cores"},
        {.name = "timeline", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.timeline,
         .about = "record a timeline that Perfetto opens (docs/reference/recording.md)"},
        {.name = "capture", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.capture,
         .about = "record every message, for gradwire trace"},
        {.name = "timeout", .kind = GW_OPTION_DURATION, .seconds = &s.timeout,
         .about = "end the job after this time, with exit code 124 (default: none)"},
        {.name = "grace", .kind = GW_OPTION_DURATION, .seconds = &s.grace,
         .about = "time from SIGTERM to SIGKILL (default: 2 s)"},
        {.name = "servers", .kind = GW_OPTION_INTEGER, .integer = &s.servers, .lowest = 1, .highest = 1024,
         .about = "parameter server processes in addition to the ranks (arch=ps; docs/explanation/synchronization.md)"},
        {.name = "elastic", .kind = GW_OPTION_FLAG, .flag = &s.elastic,
         .about = "continue without a rank that dies: the others regroup (docs/explanation/synchronization.md)"},
        {.name = "restarts", .kind = GW_OPTION_INTEGER, .integer = &s.restarts, .lowest = 0, .highest = 1000000,
         .about = "like --elastic, and restart dead ranks, at most N times in total (default: 0)"},
        {.name = "no-heartbeat", .kind = GW_OPTION_FLAG, .flag = &s.no_heartbeat,
         .about = "do not end silent ranks of an elastic job, nor give up silent hosts"},
        {.name = "snapshots", .kind = GW_OPTION_STRING, .value = "DIRECTORY", .string = &s.snapshots,
         .about = "directory of the servers' snapshots (arch=ps:snapshot=N; docs/explanation/synchronization.md)"},
        {.name = "no-prefix", .kind = GW_OPTION_FLAG, .flag = &s.no_prefix,
         .about = "do not put the rank in front of its output lines"},
        /* clang-format on */
        {.name = NULL},
    };
    open_standard_streams();
    int code = gw_args_parse(&gw_command_run, options, &argc, argv);
    if (code < 0) code = check(&s, argc);
    if (code >= 0) return code;
    gw_set_recording(s.timeline, s.capture);
    code = start_in_lab(&s, argv + 1);
    if (getenv(GW_TIMELINE_VARIABLE)) gw_timeline_repair(getenv(GW_TIMELINE_VARIABLE));
    return code;
}

const gw_command gw_command_run = {
    .name = "run",
    .about = "starts the ranks of a job, on this machine or on other hosts",
    .usage = "[OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .example = "gradwire run -n 4 -- ./train --epochs 3\n"
               "gradwire run -H node1:4,node2:4 --strategy 'arch=ring' -- python3 train.py",
    .wraps_program = true,
    .run = run,
};
