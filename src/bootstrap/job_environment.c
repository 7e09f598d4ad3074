/* job_environment.c - see job_environment.h. */
#include "bootstrap/job_environment.h"

#include "base/units.h"
#include "bootstrap/auth.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORTS_TO_TRY 16
#define DERIVED_PORT_LOW 20000
#define DERIVED_PORTS 10000

/* Names of the variables of one launcher; if only PMIx is there, Slurm or PMI knows the size. */
typedef struct launcher {
    const char *rank, *world[3], *local_rank, *local_world;
} launcher;

static const launcher launchers[] = {
    {"RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMIX_RANK", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"}, "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE"},
    {"JOB_COMPLETION_INDEX", {"WORLD_SIZE"}, NULL, NULL}, /* Kubernetes; the manifest sets the size */
};
#define LAUNCHERS (int)(sizeof launchers / sizeof launchers[0])
#define KUBERNETES (&launchers[LAUNCHERS - 1])

/* An empty variable counts as not set. */
static const char *variable(const char *name) {
    const char *text = name ? getenv(name) : NULL;
    return text && text[0] ? text : NULL;
}

/* *value is unchanged if the variable is not set. */
static gw_status number(const char *name, int low, int high, int *value, gw_error *error) {
    const char *text = variable(name);
    int64_t read;
    if (!text) return GW_OK;
    if (!gw_integer_parse(text, low, high, &read))
        return gw_fail(error, GW_INVALID, "%s is \"%.64s\", but must be a whole number from %d to %d", name, text, low,
                       high);
    *value = (int)read;
    return GW_OK;
}

static const launcher *find_launcher(void) {
    for (int i = 0; i < LAUNCHERS; i++)
        if (variable(launchers[i].rank)) return &launchers[i];
    return NULL;
}

static const char *world_variable(const launcher *from) {
    for (int i = 0; i < 3; i++)
        if (variable(from->world[i])) return from->world[i];
    return from->world[0];
}

static gw_status read_launcher(const launcher *from, gw_job_env *job_env, gw_error *error) {
    gw_status status = number(from->rank, 0, GW_WORLD_MAX - 1, &job_env->rank, error);
    if (status == GW_OK) status = number(world_variable(from), 1, GW_WORLD_MAX, &job_env->world, error);
    if (status == GW_OK) status = number(from->local_rank, 0, GW_WORLD_MAX - 1, &job_env->local_rank, error);
    if (status == GW_OK) status = number(from->local_world, 1, GW_WORLD_MAX, &job_env->local_world, error);
    return status;
}

static gw_status find_rank(const gw_options *options, const launcher *from, gw_job_env *job_env, gw_error *error) {
    const char *rank_name = from ? from->rank : "RANK", *world_name = from ? world_variable(from) : "WORLD_SIZE";
    gw_status status = read_launcher(from ? from : &launchers[0], job_env, error);
    if (status != GW_OK) return status;
    if (options && options->rank >= 0) {
        job_env->rank = options->rank;
        rank_name = "the option rank";
    }
    if (options && options->world >= 0) {
        job_env->world = options->world;
        world_name = "the option world";
    }
    if (job_env->rank < 0 && job_env->world <= 1) job_env->rank = 0;
    if (job_env->world < 0 && job_env->rank == 0 && !from && !(options && options->rank >= 0)) job_env->world = 1;
    if (job_env->rank < 0)
        return gw_fail(error, GW_INVALID, "%s is %d, but %s is not set: set both or neither", world_name,
                       job_env->world, rank_name);
    if (job_env->world < 0)
        return gw_fail(error, GW_INVALID, "%s is %d, but %s is not set: set both or neither", rank_name, job_env->rank,
                       world_name);
    if (job_env->world < 1 || job_env->world > GW_WORLD_MAX)
        return gw_fail(error, GW_INVALID, "%s is %d, but must be from 1 to %d", world_name, job_env->world,
                       GW_WORLD_MAX);
    status = number("GRADWIRE_SERVERS", 0, GW_WORLD_MAX - job_env->world, &job_env->servers, error);
    if (status != GW_OK) return status;
    if (job_env->rank >= job_env->world + job_env->servers)
        return gw_fail(error, GW_INVALID, "%s is %d, but %s is %d: ranks count from 0 to %d", rank_name, job_env->rank,
                       world_name, job_env->world, job_env->world + job_env->servers - 1);
    job_env->world += job_env->servers;
    return GW_OK;
}

static bool torchrun(void) { return variable("TORCHELASTIC_RUN_ID") != NULL; }

/* Ranks placed by hand (RANK, options) may be started from anywhere, so only torchrun's variables are sure to be the
 * same on all ranks. The name has torchrun's restart count, so that a restarted job does not connect to processes from
 * before the restart. */
static void name_job(bool by_hand, bool port_given, gw_job_env *job_env) {
    const char *pmix = variable("PMIX_NAMESPACE"), *ompi = variable("OMPI_MCA_ess_base_jobid");
    const char *slurm = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID"), *pmi = variable("PMI_JOBID");
    const char *restart = variable("TORCHELASTIC_RESTART_COUNT");
    char *job = job_env->job;
    if (torchrun()) snprintf(job, GW_JOB_TEXT, "torch %s.%s", variable("TORCHELASTIC_RUN_ID"), restart ? restart : "0");
    else if (by_hand && port_given) snprintf(job, GW_JOB_TEXT, "job");
    else if (pmix) snprintf(job, GW_JOB_TEXT, "pmix %s", pmix);
    else if (ompi) snprintf(job, GW_JOB_TEXT, "ompi %s", ompi);
    else if (slurm) snprintf(job, GW_JOB_TEXT, "slurm %s.%s", slurm, step ? step : "");
    else if (pmi) snprintf(job, GW_JOB_TEXT, "pmi %s", pmi);
    else snprintf(job, GW_JOB_TEXT, "user %u", (unsigned)geteuid());
}

/* FNV-1a: any uniform hash would do, but every rank of every version must find the same port. */
static int derived_port(const char *job) {
    uint32_t hash = UINT32_C(2166136261);
    for (; *job; job++) hash = (hash ^ (uint8_t)*job) * UINT32_C(16777619);
    return DERIVED_PORT_LOW + (int)(hash % (DERIVED_PORTS - PORTS_TO_TRY + 1));
}

static void choose_ports(int port, gw_job_env *job_env) {
    if (port > 0) {
        size_t used = strlen(job_env->job);
        snprintf(job_env->job + used, GW_JOB_TEXT - used, " port %d", port);
    }
    bool alone = port > 0 && !torchrun();
    job_env->port_low = port <= 0 ? derived_port(job_env->job) : torchrun() ? port + 1 : port;
    job_env->port_high = alone ? port : job_env->port_low + PORTS_TO_TRY - 1;
    if (job_env->port_high > 65535) job_env->port_high = 65535;
}

/* "rack[0-1]node[03-17,20].local,login1" -> "rack0node03.local": of every bracket the first number. */
static bool first_host(const char *list, char host[GW_HOST_TEXT]) {
    size_t used = 0;
    for (; *list && *list != ','; list++) {
        if (*list != '[') {
            host[used++] = *list;
        } else {
            size_t digits = strcspn(++list, "-,]");
            if (used + digits >= GW_HOST_TEXT) return false;
            memcpy(host + used, list, digits);
            used += digits;
            list += strcspn(list, "]");
            if (!*list) return false;
        }
        if (used >= GW_HOST_TEXT - 1) return false;
    }
    host[used] = '\0';
    return used > 0;
}

/* Rank 0 is on the first node of a step. */
static bool first_slurm_node(char host[GW_HOST_TEXT]) {
    const char *list = variable("SLURM_STEP_NODELIST"), *nodes = variable("SLURM_STEP_NUM_NODES");
    if (!list) list = variable("SLURM_JOB_NODELIST");
    if (!nodes) nodes = variable("SLURM_NNODES");
    return list && nodes && strcmp(nodes, "1") != 0 && first_host(list, host);
}

/* "1.0;tcp://10.0.0.1,10.1.0.1:4000" -> "10.0.0.1": the host of mpirun, and also of rank 0 unless mpirun's host list
 * begins with another host. */
static bool mpirun_host(char host[GW_HOST_TEXT]) {
    const char *uri = variable("OMPI_MCA_orte_hnp_uri"), *nodes = variable("OMPI_MCA_orte_num_nodes");
    const char *from = uri ? strstr(uri, "tcp://") : NULL;
    if (!from || !nodes || strcmp(nodes, "1") == 0) return false;
    from += strlen("tcp://");
    size_t length = strcspn(from, ",:");
    if (length == 0 || length >= GW_HOST_TEXT) return false;
    snprintf(host, GW_HOST_TEXT, "%.*s", (int)length, from);
    return true;
}

/* *port is -1 unless the address names one ("[::1]:29500"). */
static gw_status find_master(const gw_options *options, bool slurm, gw_job_env *job_env, int *port, gw_error *error) {
    const char *given = options && options->master_addr ? options->master_addr : variable("MASTER_ADDR");
    *port = -1;
    if (!given) {
        bool found = slurm ? first_slurm_node(job_env->master) : mpirun_host(job_env->master);
        if (!found) snprintf(job_env->master, sizeof job_env->master, "127.0.0.1");
        return GW_OK;
    }
    if (!gw_address_split(given, job_env->master, port))
        return gw_fail(error, GW_INVALID,
                       "MASTER_ADDR is \"%.128s\", but must be a host name or an address (10.0.0.1, ::1, [::1]:29500)",
                       given);
    return GW_OK;
}

static gw_status find_port(const gw_options *options, int in_address, int *port, gw_error *error) {
    *port = -1;
    gw_status status = GW_OK;
    if (options && options->master_port >= 0) {
        if (options->master_port < 1 || options->master_port > 65535)
            return gw_fail(error, GW_INVALID, "the option master_port is %d, but must be from 1 to 65535",
                           options->master_port);
        *port = options->master_port;
    } else {
        status = number("GRADWIRE_MASTER_PORT", 1, 65535, port, error);
        if (status == GW_OK && *port < 0) status = number("MASTER_PORT", 1, 65535, port, error);
    }
    if (status == GW_OK && in_address > 0 && *port > 0 && in_address != *port)
        return gw_fail(error, GW_INVALID, "MASTER_ADDR says port %d and MASTER_PORT says %d: give one of them",
                       in_address, *port);
    if (in_address > 0) *port = in_address;
    if (status == GW_OK && torchrun() && *port == 65535)
        return gw_fail(error, GW_INVALID, "MASTER_PORT is 65535, which leaves no port above torchrun's own");
    return status;
}

/* The member id stays the same over generations; without a roster it is the rank. */
static gw_status find_roster(gw_job_env *job_env, gw_error *error) {
    const char *path = variable("GRADWIRE_ROSTER");
    job_env->member = job_env->rank;
    if (!path) return GW_OK;
    if ((size_t)snprintf(job_env->roster, sizeof job_env->roster, "%s", path) >= sizeof job_env->roster)
        return gw_fail(error, GW_INVALID, "GRADWIRE_ROSTER is too long a path: %.64s...", path);
    gw_status status = number("GRADWIRE_MEMBER", 0, GW_ROSTER_MEMBERS_MAX - 1, &job_env->member, error);
    return status ? status : number("GRADWIRE_GENERATION", 0, INT_MAX, &job_env->generation, error);
}

/* Processes of an earlier generation are strangers to a later one. */
static void name_generation(gw_job_env *job_env) {
    size_t used = strlen(job_env->job);
    if (job_env->generation) snprintf(job_env->job + used, GW_JOB_TEXT - used, " generation %d", job_env->generation);
}

gw_status gw_job_env_find(const gw_options *options, gw_job_env *job_env, gw_error *error) {
    gw_job_env found = {.rank = -1, .world = -1, .local_rank = -1, .local_world = -1, .listen_fd = -1, .member = -1};
    const launcher *from = find_launcher();
    bool by_hand = (options && options->rank >= 0) || !from || from == &launchers[0] || from == KUBERNETES;
    int in_address, port;
    gw_status status = find_rank(options, from, &found, error);
    if (status == GW_OK) status = find_master(options, variable("SLURM_PROCID") != NULL, &found, &in_address, error);
    if (status == GW_OK) status = find_port(options, in_address, &port, error);
    if (status == GW_OK && found.rank == 0) status = number("GRADWIRE_LISTEN_FD", 0, INT_MAX, &found.listen_fd, error);
    if (status == GW_OK) status = find_roster(&found, error);
    if (status != GW_OK) return status;
    name_job(by_hand, port > 0, &found);
    name_generation(&found);
    choose_ports(port, &found);
    *job_env = found;
    return GW_OK;
}

void gw_job_env_apply_roster(gw_job_env *job_env, const gw_roster *roster) {
    job_env->rank = gw_roster_rank(roster, job_env->member);
    job_env->world = roster->world;
    job_env->servers = gw_roster_servers(roster);
    job_env->local_rank = job_env->local_world = job_env->listen_fd = -1;
    job_env->generation = roster->generation;
    snprintf(job_env->master, sizeof job_env->master, "%s", roster->address);
    snprintf(job_env->job, sizeof job_env->job, "job");
    name_generation(job_env);
    choose_ports(roster->port, job_env);
}
