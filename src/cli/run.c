/* run.c - gradwire run: starts the ranks of a job, on this machine or on others. The work is in launch/; here the
 * options become a job. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/args.h"
#include "cli/host_options.h"
#include "insight/mend.h"
#include "lab/lab.h"
#include "launch/job.h"
#include "launch/wire.h"
#include "strategy/combine.h"
#include "trace/trace.h"
#include "transport/listen.h"
#include "transport/token.h"

enum { DEFAULT_PORT = 29500, DEFAULT_DEADLINE = 30, SECONDS_MAX = 30 * 24 * 3600, SILENCE_MAX = 7 * 24 * 3600 };

extern char **environ;

typedef struct settings {
    int64_t ranks; /* 0: as many as there are slots */
    int64_t port;  /* 0: chosen */
    const char *hosts, *hostfile, *rsh, *remote_path, *master_addr;
    const char *strategy, *interface, *ports, *log, *bind; /* NULL: as in the environment */
    const char *timeline, *capture, *snapshots;             /* likewise */
    double deadline, grace, timeout;                /* seconds; deadline, timeout 0: not given */
    int64_t restarts, servers;
    const char *lab_text;
    gw_lab_options lab; /* no hosts: none is made */
    bool no_prefix, elastic, no_heartbeat;
    int port_low, port_high; /* of ports; 0: any */
} settings;

/* The environment that all ranks share. */
typedef struct variables {
    char **list; /* "NAME=value", owned, NULL at the end */
    int count;
    bool failed; /* memory ran out; stays set */
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

static void add_given(variables *v, const char *name, const char *value) {
    if (value) add_variable(v, name, value);
}

static void free_variables(variables *v) {
    for (int i = 0; i < v->count; i++) {
        explicit_bzero(v->list[i], strlen(v->list[i])); /* the token is among them */
        free(v->list[i]);
    }
    free(v->list);
}

/* What is set for the library here counts on the other hosts too, except what belongs to one job or one process. */
static void forward_variables(variables *v) {
    static const char *const own[] = {"GRADWIRE_TOKEN", "GRADWIRE_TOKEN_FILE", "GRADWIRE_LISTEN_FD",
                                      "GRADWIRE_ROLL",  "GRADWIRE_SEAT",       "GRADWIRE_ROUND",
                                      "GRADWIRE_SERVERS"};
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

/* Where rank 0 will be found. */
typedef struct master {
    int listen_fd; /* inherited by rank 0, so that nobody takes the port before it does; -1: it opens its own */
    int port;      /* the library's */
    int spare;     /* the program's own, for what it may run beside it (a store of PyTorch's, say) */
    char address[GW_HOST_NAME_BYTES];
} master;

static void add_number(variables *v, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add_variable(v, name, text);
}

static gw_status collect_variables(variables *v, const settings *s, const master *rank0, gw_error *error) {
    char text[32];
    gw_token token;
    gw_status status = gw_token_random(&token, error);
    if (status != GW_OK) return status;
    forward_variables(v);
    add_given(v, "GRADWIRE_STRATEGY", s->strategy);
    add_given(v, "GRADWIRE_INTERFACE", s->interface);
    add_given(v, "GRADWIRE_PORTS", s->ports);
    add_given(v, "GRADWIRE_LOG", s->log);
    add_given(v, "GRADWIRE_BIND", s->bind);
    add_given(v, "GRADWIRE_SNAPSHOTS", s->snapshots);
    if (s->deadline > 0) {
        snprintf(text, sizeof text, "%.9g", s->deadline);
        add_variable(v, "GRADWIRE_DEADLINE", text);
    }
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
    if (s->hosts)
        status = gw_hosts_parse(hosts, s->hosts, error);
    else if (s->hostfile)
        status = gw_hosts_read(hosts, s->hostfile, error);
    else
        status = gw_hosts_local(hosts, s->ranks ? (int)s->ranks : 1, error);
    if (status == GW_OK) status = gw_hosts_place(hosts, (int)s->ranks, error);
    return status == GW_OK ? gw_hosts_serve(hosts, (int)s->servers, error) : status;
}

/* Free now, and held by nobody, because the program is to listen there. */
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

/* That of the ranks, which tell of a wrong one themselves. */
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
        find_master(&rank0, s, &hosts, &error) == GW_OK &&
        collect_variables(&env, s, &rank0, &error) == GW_OK &&
        open_elastic(&elastic, s, &hosts, &rank0, &error) == GW_OK) {
        const char *program = s->remote_path ? s->remote_path : own_path;
        char *const server_argv[] = {(char *)(uintptr_t)program, "server", NULL};
        gw_job_options job = {
            .hosts = &hosts,
            .directory = directory,
            .argv = argv,
            .server_argv = server_argv,
            .env = env.list,
            .outpost = {.rsh = s->rsh,
                        .remote_path = program,
                        .listen_fd = rank0.listen_fd},
            .console = console_options(s),
            .elastic = elastic.seats ? &elastic : NULL,
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

/* In a lab, which is made first, where one is asked for: its namespaces are hosts that ip reaches. */
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
                       gw_strategy_serve(&strategy, (int)s->servers, &error) != GW_OK))
        return gw_usage_error(&gw_command_run, "%s", error.text);
    if (ports && gw_ports_parse(ports, &s->port_low, &s->port_high, &error) != GW_OK) return complain(&error);
    return -1;
}

/* A pipe must not land where standard output belongs. */
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
         .highest = GW_WIRE_MAX_RANKS,
         .about = "how many ranks (default: the slots of the hosts; on this machine 1)"},
        {.name = "hosts", .letter = 'H', .kind = GW_OPTION_STRING, .value = "A:4,B:4", .string = &s.hosts,
         .about = "the hosts and their slots"},
        {.name = "hostfile", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.hostfile,
         .about = "the hosts, one a line: host slots=4"},
        GW_OPTION_LAB(&s.lab_text),
        GW_OPTION_RSH(&s.rsh),
        GW_OPTION_REMOTE_PATH(&s.remote_path),
        {.name = "master-addr", .kind = GW_OPTION_STRING, .value = "ADDRESS", .string = &s.master_addr,
         .about = "where the ranks find rank 0 (default: the first host, or loopback)"},
        {.name = "port", .kind = GW_OPTION_INTEGER, .integer = &s.port, .lowest = 1, .highest = 65535,
         .about = "of rank 0, and the next (default: the first of --ports, else 29500; on this machine any)"},
        {.name = "ports", .kind = GW_OPTION_STRING, .value = "LOW-HIGH", .string = &s.ports,
         .about = "the ports that all ranks may listen on, for firewalls"},
        {.name = "interface", .kind = GW_OPTION_STRING, .value = "LIST", .string = &s.interface,
         .about = "the network interfaces to use: eth,ib are prefixes, ^docker excludes, =eth0 is exact"},
        {.name = "strategy", .kind = GW_OPTION_STRING, .value = "LINE", .string = &s.strategy,
         .about = "the strategy line for all ranks (gradwire list)"},
        {.name = "deadline", .kind = GW_OPTION_DURATION, .seconds = &s.deadline,
         .about = "the longest wait without progress (default: 30)"},
        {.name = "log", .kind = GW_OPTION_CHOICE, .value = "LEVEL", .string = &s.log, .choices = levels,
         .about = "what the library says"},
        {.name = "bind", .kind = GW_OPTION_CHOICE, .value = "HOW", .string = &s.bind, .choices = bindings,
         .about = "the cores of a rank: its share of the host's (default), or any"},
        {.name = "timeline", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.timeline,
         .about = "record a timeline that Perfetto opens (docs/seeing.md)"},
        {.name = "capture", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.capture,
         .about = "record every message, for gradwire trace"},
        {.name = "timeout", .kind = GW_OPTION_DURATION, .seconds = &s.timeout,
         .about = "ends the whole job after this time, with exit code 124 (default: none)"},
        {.name = "grace", .kind = GW_OPTION_DURATION, .seconds = &s.grace,
         .about = "from SIGTERM to SIGKILL when ranks are ended (default: 2)"},
        {.name = "servers", .kind = GW_OPTION_INTEGER, .integer = &s.servers, .lowest = 1, .highest = 1024,
         .about = "parameter servers in processes of their own, beside the ranks (arch=ps; docs/synchrony.md)"},
        {.name = "elastic", .kind = GW_OPTION_FLAG, .flag = &s.elastic,
         .about = "when a rank dies the others are told and may go on without it (docs/synchrony.md)"},
        {.name = "restarts", .kind = GW_OPTION_INTEGER, .integer = &s.restarts, .lowest = 0, .highest = 1000000,
         .about = "as --elastic, but so many times a rank that died is started again (default: 0)"},
        {.name = "no-heartbeat", .kind = GW_OPTION_FLAG, .flag = &s.no_heartbeat,
         .about = "never end a rank of an elastic job, or give up a host, because it is silent"},
        {.name = "snapshots", .kind = GW_OPTION_STRING, .value = "DIRECTORY", .string = &s.snapshots,
         .about = "where servers write what they know (arch=ps:snapshot=N; docs/synchrony.md)"},
        {.name = "no-prefix", .kind = GW_OPTION_FLAG, .flag = &s.no_prefix,
         .about = "print what the ranks print as it is, without the rank"},
        /* clang-format on */
        {.name = NULL},
    };
    open_standard_streams();
    int code = gw_args_parse(&gw_command_run, options, &argc, argv);
    if (code < 0) code = check(&s, argc);
    if (code >= 0) return code;
    gw_record(s.timeline, s.capture);
    code = start_in_lab(&s, argv + 1);
    if (getenv(GW_TIMELINE_VARIABLE)) gw_timeline_mend(getenv(GW_TIMELINE_VARIABLE));
    return code;
}

const gw_command gw_command_run = {
    .name = "run",
    .about = "starts the ranks of a job, here or on other hosts",
    .usage = "[OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .example = "gradwire run -n 4 -- ./train --epochs 3\n"
               "gradwire run -H node1:4,node2:4 --strategy 'arch=ring' -- python3 train.py",
    .wraps_program = true,
    .run = run,
};
