/* bench_command_lines.c - the list of jobs of a comparison, and their command lines. See bench.h. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "transport/transport_registry.h"

enum { FIRST_PORT = 29500 };

const char *const gw_baseline_names[] = {"openmpi", "openmpi-tuned", "mpich", "gloo", "bound", NULL};

bool gw_baseline_known(const char *name) {
    for (int i = 0; gw_baseline_names[i]; i++)
        if (strcmp(gw_baseline_names[i], name) == 0) return true;
    return false;
}

/* ---- words ---- */

void gw_spawn_add(gw_spawn *spawn, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = sizeof spawn->text - spawn->used;
    int length = vsnprintf(spawn->text + spawn->used, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room || spawn->count + 1 >= GW_SPAWN_WORDS) {
        spawn->count = GW_SPAWN_WORDS;
        return;
    }
    spawn->argv[spawn->count++] = spawn->text + spawn->used;
    spawn->argv[spawn->count] = NULL;
    spawn->used += (size_t)length + 1;
}

/* Appends the words of a text, separated by blanks. */
static void add_words(gw_spawn *spawn, const char *text) {
    while (*text) {
        int length = (int)strcspn(text, " ");
        gw_spawn_add(spawn, "%.*s", length, text);
        text += length + (text[length] == ' ');
    }
}

static bool own_path(char path[PATH_MAX]) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* The path of a file in the directory peers/ next to this program. */
static gw_status peer_path(const char *name, char path[PATH_MAX + 64], gw_error *error) {
    char own[PATH_MAX];
    if (!own_path(own)) return gw_fail(error, GW_SYSTEM, "cannot find my own program file: %s", strerror(errno));
    *strrchr(own, '/') = 0;
    snprintf(path, PATH_MAX + 64, "%s/peers/%s", own, name);
    if (access(path, X_OK) == 0) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "there is no %s to compare with: `make bench-peers` installs and builds it", path);
}

static bool over_tcp(const gw_bench_job *c) {
    const gw_transport_type *type = gw_transport_type_find(c->transport);
    return type && type->tcp_sockets;
}

static int slots(const gw_comparison *comparison) {
    int hosts = comparison->settings->lab.hosts;
    return (comparison->world + hosts - 1) / hosts;
}

/* ---- each library ---- */

gw_status gw_spawn_run(gw_spawn *spawn, int world, const gw_lab *lab, int lab_hosts, int port, gw_error *error) {
    char self[PATH_MAX], hosts[2048] = "";
    size_t used = 0;
    if (!own_path(self)) return gw_fail(error, GW_SYSTEM, "cannot find my own program file: %s", strerror(errno));
    gw_spawn_add(spawn, "%s", self);
    add_words(spawn, "run --no-prefix -n");
    gw_spawn_add(spawn, "%d", world);
    if (!lab) return GW_OK;
    for (int i = 0; i < lab_hosts; i++)
        used += (size_t)snprintf(hosts + used, sizeof hosts - used, "%s%s:%d", i ? "," : "", gw_lab_name(lab, i),
                                 (world + lab_hosts - 1) / lab_hosts);
    add_words(spawn, "--rsh");
    gw_spawn_add(spawn, "ip netns exec");
    gw_spawn_add(spawn, "-H%s", hosts);
    gw_spawn_add(spawn, "--master-addr=%s", gw_lab_address(lab, 0));
    gw_spawn_add(spawn, "--port=%d", port);
    return GW_OK;
}

static gw_status add_run(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn, gw_error *error) {
    return gw_spawn_run(spawn, comparison->world, comparison->lab, comparison->settings->lab.hosts,
                        FIRST_PORT + 2 * (int)(c - comparison->jobs), error);
}

static gw_status gradwire_command(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn,
                                  gw_error *error) {
    gw_status status = add_run(comparison, c, spawn, error);
    if (status) return status;
    gw_spawn_add(spawn, "--strategy=%s", c->line);
    gw_spawn_add(spawn, "--");
    gw_spawn_add(spawn, "%s", spawn->argv[0]);
    gw_spawn_add(spawn, "bench");
    return GW_OK;
}

/* Gloo has no launcher, so gradwire run starts it. */
static gw_status gloo_command(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn,
                              gw_error *error) {
    char program[PATH_MAX + 64];
    gw_status status = peer_path("peer_gloo", program, error);
    if (!status) status = add_run(comparison, c, spawn, error);
    if (status) return status;
    gw_spawn_add(spawn, "--");
    gw_spawn_add(spawn, "%s", program);
    gw_spawn_add(spawn, "%s", comparison->lab ? "eth0" : "lo");
    return GW_OK;
}

/* The addresses of the lab's hosts, with their slots if the launcher needs them. */
static void add_addresses(const gw_comparison *comparison, gw_spawn *spawn, bool with_slots) {
    char list[2048] = "";
    size_t used = 0;
    for (int i = 0; i < comparison->settings->lab.hosts; i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "," : "", gw_lab_address(comparison->lab, i));
        if (with_slots) used += (size_t)snprintf(list + used, sizeof list - used, ":%d", slots(comparison));
    }
    gw_spawn_add(spawn, "%s", list);
}

/* Runs the launcher on the lab's first host. */
static gw_status enter_lab(const gw_comparison *comparison, gw_spawn *spawn, char shell[PATH_MAX + 64],
                           gw_error *error) {
    gw_status status = peer_path("lab_shell.sh", shell, error);
    if (status) return status;
    char prefix[GW_LAB_NAME_BYTES];
    snprintf(prefix, sizeof prefix, "%s", gw_lab_name(comparison->lab, 0));
    prefix[strlen(prefix) - 1] = 0;
    setenv("GRADWIRE_LAB_PREFIX", prefix, 1);
    gw_spawn_add(spawn, "%s", shell);
    gw_spawn_add(spawn, "%s", gw_lab_address(comparison->lab, 0));
    return GW_OK;
}

static gw_status openmpi_command(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn,
                                 gw_error *error) {
    char program[PATH_MAX + 64], shell[PATH_MAX + 64];
    gw_status status = peer_path("peer_openmpi", program, error);
    if (!status && comparison->lab) status = enter_lab(comparison, spawn, shell, error);
    if (status) return status;
    add_words(spawn, "mpirun.openmpi --oversubscribe");
    if (geteuid() == 0) add_words(spawn, "--allow-run-as-root");
    if (comparison->lab) {
        /* Open MPI does not know that the lab's hosts share cores: spinning ranks would starve each other. */
        add_words(spawn, "--mca mpi_yield_when_idle 1 "
                         "--mca btl self,tcp --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
                         "-x GRADWIRE_BENCH -x GRADWIRE_LAB_PREFIX --mca plm_rsh_agent");
        gw_spawn_add(spawn, "%s", shell);
        gw_spawn_add(spawn, "--host");
        add_addresses(comparison, spawn, true);
    } else if (over_tcp(c)) {
        add_words(spawn, "--mca btl self,tcp --mca pml ob1 --mca btl_tcp_if_include lo");
    } else {
        add_words(spawn, "--mca btl self,vader --mca pml ob1");
    }
    if (strcmp(c->library, "openmpi-tuned") == 0)
        add_words(spawn, "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 "
                         "--mca coll_tuned_allreduce_algorithm_segmentsize 262144");
    gw_spawn_add(spawn, "-n");
    gw_spawn_add(spawn, "%d", comparison->world);
    gw_spawn_add(spawn, "%s", program);
    return GW_OK;
}

static gw_status mpich_command(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn,
                               gw_error *error) {
    char program[PATH_MAX + 64], shell[PATH_MAX + 64];
    gw_status status = peer_path("peer_mpich", program, error);
    if (!status && comparison->lab) status = enter_lab(comparison, spawn, shell, error);
    if (status) return status;
    add_words(spawn, "mpirun.mpich");
    if (comparison->lab) {
        add_words(spawn, "-launcher ssh -iface eth0 -launcher-exec");
        gw_spawn_add(spawn, "%s", shell);
        gw_spawn_add(spawn, "-hosts");
        add_addresses(comparison, spawn, false);
    }
    if (comparison->lab || over_tcp(c)) add_words(spawn, "-genv UCX_TLS tcp,self -genv MPIR_CVAR_NOLOCAL 1");
    gw_spawn_add(spawn, "-n");
    gw_spawn_add(spawn, "%d", comparison->world);
    gw_spawn_add(spawn, "%s", program);
    return GW_OK;
}

gw_status gw_bench_job_command(const gw_comparison *comparison, const gw_bench_job *c, gw_spawn *spawn,
                               gw_error *error) {
    gw_status status;
    if (strcmp(c->library, "gradwire") == 0 || strcmp(c->library, "bound") == 0)
        status = gradwire_command(comparison, c, spawn, error);
    else if (strcmp(c->library, "gloo") == 0) status = gloo_command(comparison, c, spawn, error);
    else if (strcmp(c->library, "mpich") == 0) status = mpich_command(comparison, c, spawn, error);
    else status = openmpi_command(comparison, c, spawn, error);
    if (!status && spawn->count >= GW_SPAWN_WORDS)
        status = gw_fail(error, GW_INVALID, "the command line of %s is too long", c->library);
    return status;
}

/* ---- the jobs ---- */

static gw_status enter_gradwire(gw_comparison *comparison, const char *arch, gw_error *error) {
    gw_strategy strategy;
    gw_status status = gw_bench_strategy(comparison->settings, arch, &strategy, error);
    if (status) return status;
    gw_bench_job *c = &comparison->jobs[comparison->count++];
    *c = (gw_bench_job){.library = "gradwire", .listener = -1};
    snprintf(c->arch, sizeof c->arch, "%s", gw_strategy_name(&strategy, GW_AXIS_ARCH));
    snprintf(c->transport, sizeof c->transport, "%s", gw_strategy_name(&strategy, GW_AXIS_TRANSPORT));
    gw_strategy_print(&strategy, c->line, sizeof c->line);
    return GW_OK;
}

/* Whether this architecture has its own plan for the collective in such a job, and does not fall back to another. */
static bool supports(const gw_comparison *comparison, const char *arch) {
    const gw_bench_settings *s = comparison->settings;
    const gw_plan_builder *builder = gw_plan_find(arch);
    gw_strategy strategy;
    gw_error ignored = {0};
    int host_of[1024] = {0}, per_host = s->lab.hosts ? slots(comparison) : comparison->world;
    if (!builder || gw_bench_strategy(s, arch, &strategy, &ignored) != GW_OK) return false;
    for (int r = 0; r < comparison->world; r++) host_of[r] = r / per_host;
    gw_plan_request request = {.collective = s->first.collective, .root = s->first.root, .count = 1 << 20,
                               .topology = {.world = comparison->world, .host_of = host_of,
                                            .coll = gw_strategy_shares_memory(&strategy)},
                               .chunk_count = 1 << 16, .pipeline = 2};
    return builder->refuses(&request) == NULL;
}

static gw_status enter_all(gw_comparison *comparison, gw_error *error) {
    gw_status status = GW_OK;
    for (const gw_technique *const *at = gw_techniques(GW_AXIS_ARCH); *at && !status; at++) {
        const char *name = (*at)->name;
        if (strcmp(name, "auto") == 0 || supports(comparison, name)) status = enter_gradwire(comparison, name, error);
    }
    return status;
}

/* One more job for each further word of --transport. */
static gw_status enter_transports(gw_comparison *comparison, gw_error *error) {
    gw_bench_settings other = *comparison->settings;
    const gw_bench_settings *all = comparison->settings;
    gw_status status = GW_OK;
    for (const char *at = all->transport; at && (at = strchr(at, ' ')) && !status;) {
        at += strspn(at, " ");
        if (!*at) break;
        if (comparison->count == GW_BENCH_JOBS_MAX)
            return gw_fail(error, GW_INVALID, "at most %d can be compared at once", GW_BENCH_JOBS_MAX);
        other.transport = at;
        comparison->settings = &other;
        status = enter_gradwire(comparison, NULL, error);
        comparison->settings = all;
        gw_bench_job *c = &comparison->jobs[comparison->count - 1];
        if (!status) snprintf(c->transport, sizeof c->transport, "%.*s", (int)strcspn(at, " ") % 32, at);
    }
    return status;
}

/* One more job for each codec of --compress. */
static gw_status enter_codecs(gw_comparison *comparison, gw_error *error) {
    gw_status status = GW_OK;
    for (const char *at = comparison->settings->compress; at && *at && !status;) {
        size_t length = strcspn(at, " ");
        if (length && comparison->count == GW_BENCH_JOBS_MAX)
            return gw_fail(error, GW_INVALID, "at most %d can be compared at once", GW_BENCH_JOBS_MAX);
        if (length) status = enter_gradwire(comparison, NULL, error);
        gw_bench_job *c = &comparison->jobs[comparison->count - 1];
        if (length && !status) {
            snprintf(c->codec, sizeof c->codec, "%.*s", (int)length, at);
            snprintf(c->arch, sizeof c->arch, "%.*s", (int)length, at);
        }
        at += length + (at[length] == ' ');
    }
    return status;
}

gw_status gw_comparison_fill(gw_comparison *comparison, gw_error *error) {
    const gw_bench_settings *s = comparison->settings;
    bool all = s->arch && strcmp(s->arch, "all") == 0;
    gw_status status = all ? enter_all(comparison, error) : enter_gradwire(comparison, NULL, error);
    if (!status) status = enter_transports(comparison, error);
    if (!status) status = enter_codecs(comparison, error);
    for (const char *at = s->against; at && *at && !status;) {
        size_t length = strcspn(at, ",");
        for (int i = 0; gw_baseline_names[i]; i++) {
            if (strlen(gw_baseline_names[i]) != length || strncmp(gw_baseline_names[i], at, length) != 0) continue;
            if (comparison->count == GW_BENCH_JOBS_MAX)
                return gw_fail(error, GW_INVALID, "at most %d can be compared at once", GW_BENCH_JOBS_MAX);
            gw_bench_job *c = &comparison->jobs[comparison->count++];
            *c = (gw_bench_job){.library = gw_baseline_names[i], .listener = -1, .arch = "-"};
            bool tcp = comparison->settings->lab.hosts || strcmp(gw_baseline_names[i], "gloo") == 0 ||
                       over_tcp(&comparison->jobs[0]);
            strcpy(c->transport, (tcp ? gw_transport_tcp : gw_transport_shm).technique.name);
            if (strcmp(c->library, "bound") == 0) {
                strcpy(c->line, comparison->jobs[0].line);
                strcpy(c->transport, "-");
            }
        }
        at += length + (at[length] == ',');
    }
    return status;
}
