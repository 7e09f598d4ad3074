/* server_process.c - see server_process.h. The driver polls the reducers (gw_progress_callback). While this thread
 * waits for the next command, it is the driver. */
#include "ps/server_process.h"

#include <stdlib.h>

#include "base/announced.h"
#include "base/log.h"
#include "reducer/reducer_internal.h"

/* Sent as it is. */
typedef struct command_head {
    uint32_t command, number;
    uint64_t bytes; /* of the table */
} command_head;

static gw_status fill_error(gw_status status, gw_comm *comm, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

/* The worker's side. */

gw_status gw_servers_call(gw_comm *everyone, gw_server_command command, uint32_t number, const gw_reducer_table *table,
                          gw_error *error) {
    command_head head = {.command = command, .number = number, .bytes = table ? table->count : 0};
    gw_status status = GW_OK;
    if (everyone->rank != 0) return GW_OK;
    for (int r = everyone->size - everyone->context->job_env.servers; r < everyone->size && !status; r++) {
        status = fill_error(gw_send(everyone, &head, sizeof head, GW_U8, r), everyone, error);
        if (!status && table)
            status = fill_error(gw_send(everyone, table->bytes, table->count, GW_U8, r), everyone, error);
    }
    return status;
}

void gw_servers_dismiss(gw_comm *everyone) {
    gw_error ignored = {.rank = -1};
    if (!atomic_load(&everyone->failed)) gw_servers_call(everyone, GW_SERVER_COMMAND_BYE, 0, NULL, &ignored);
}

/* The server's side. */

/* A reducer, as long as a worker has it open. */
typedef struct served {
    struct served *next;
    gw_reducer_table table;
    gw_reducer_request request;
    gw_reducer *reducer;
} served;

typedef struct server {
    gw_comm *everyone;
    served *reducers; /* in the order in which they were committed */
} server;

/* The next command may come at any time, so no deadline runs. */
static gw_status await_command(server *s, command_head *head, gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_RECV, .out = head, .count = sizeof *head, .dtype = GW_U8, .root = 0,
                       .patient = true, .tagged = true}; /* matches a gw_send */
    return fill_error(gw_comm_run(s->everyone, &spec), s->everyone, error);
}

static void forget(served *one) {
    gw_reducer_close(one->reducer);
    gw_reducer_request_free(&one->request);
    gw_reducer_table_free(&one->table);
    free(one);
}

/* Closes the reducers that workers have closed; all: every one. */
static void close_reducers(server *s, bool all) {
    for (served **at = &s->reducers; *at;) {
        served *one = *at;
        if (!all && !gw_reducer_quiet(one->reducer)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        forget(one);
    }
}

static gw_status read_table(server *s, served *one, const command_head *head, gw_error *error) {
    one->table.bytes = gw_announced_alloc(head->bytes, 0, "a reducer's tensors", error);
    one->table.count = head->bytes;
    if (!one->table.bytes) return error->status;
    return fill_error(gw_recv(s->everyone, one->table.bytes, head->bytes, GW_U8, 0), s->everyone, error);
}

/* Finds the first reducer of that table that lost ranks and has to be resumed on the present ranks; NULL: none. */
static served *interrupted(const server *s, const gw_reducer_table *table) {
    served *one = s->reducers;
    while (one && (one->reducer->comm->context == s->everyone->context || !gw_reducer_table_same(&one->table, table)))
        one = one->next;
    return one;
}

static void append(server *s, served *one) {
    served **at = &s->reducers;
    while (*at) at = &(*at)->next;
    *at = one;
}

/* Commits a reducer that is not known yet. */
static gw_status commit(server *s, served *one, uint32_t number, gw_error *refused) {
    gw_status status = gw_reducer_request_read(&one->request, &one->table, refused);
    status = gw_reducer_commit_as_server(&one->reducer, s->everyone, &one->request, status, refused);
    if (status) {
        forget(one);
        return status;
    }
    one->reducer->number = number;
    append(s, one);
    return GW_OK;
}

/* Returns only errors of the whole job. If this server cannot take part in a reducer, the workers get that error. */
static gw_status take_reducer(server *s, const command_head *head, gw_error *error) {
    served *one = calloc(1, sizeof *one);
    gw_error refused = {.rank = -1};
    if (!one) return gw_fail(error, GW_MEMORY, "out of memory for a reducer");
    gw_status status = read_table(s, one, head, error);
    served *before = status ? NULL : interrupted(s, &one->table);
    if (status || before) forget(one);
    if (status) return status;
    if (before) {
        before->reducer->number = head->number;
        status = gw_reducer_resume_as_server(before->reducer, s->everyone, &refused);
    } else {
        status = commit(s, one, head->number, &refused);
    }
    if (status) gw_log(GW_LOG_WARN, s->everyone->rank, "%s", refused.text);
    return GW_OK;
}

static gw_reducer *find_reducer(const server *s, const command_head *head, gw_error *error) {
    const served *one = s->reducers;
    while (one && one->reducer->number != head->number) one = one->next;
    if (!one)
        gw_fail(error, GW_PROTOCOL, "the first worker sent a command for reducer %u, which is not known", head->number);
    return one ? one->reducer : NULL;
}

static gw_status recut(server *s, const command_head *head, gw_error *error) {
    gw_reducer *reducer = find_reducer(s, head, error);
    return reducer ? fill_error(gw_reducer_recut_by_timing(reducer), s->everyone, error) : error->status;
}

static gw_status share_times(server *s, const command_head *head, gw_error *error) {
    gw_reducer *reducer = find_reducer(s, head, error);
    if (!reducer) return error->status;
    gw_reducer_worker_stats *workers = calloc((size_t)reducer->workers, sizeof *workers);
    if (!workers) return gw_fail(error, GW_MEMORY, "out of memory for the times of workers");
    gw_status status = gw_reducer_share_times(reducer, workers, error);
    free(workers);
    return status;
}

/* True when the job is over. */
static bool run_command(server *s, gw_error *error) {
    command_head head;
    if (await_command(s, &head, error)) return false;
    close_reducers(s, false);
    switch (head.command) {
    case GW_SERVER_COMMAND_REDUCER: take_reducer(s, &head, error); return false;
    case GW_SERVER_COMMAND_TIMES: share_times(s, &head, error); return false;
    case GW_SERVER_COMMAND_RECUT: recut(s, &head, error); return false;
    case GW_SERVER_COMMAND_BYE: return true;
    default: gw_fail(error, GW_PROTOCOL, "the first worker sent command %u, which is not known", head.command);
    }
    return false;
}

/* A rank was lost: an elastic job continues. */
static gw_status regroup(server *s, gw_error *error) {
    gw_comm *old = s->everyone, *next = NULL;
    if (!atomic_load(&old->failed) || !old->context->job_env.roster[0]) return error->status;
    if (gw_regroup(old, &next)) return gw_fail(error, GW_ABORTED, "%s", gw_last_error(NULL));
    s->everyone = next;
    gw_finalize(old);
    *error = (gw_error){.rank = -1};
    return GW_OK;
}

gw_status gw_serve(gw_error *error) {
    server s = {0};
    gw_status status = gw_init(&s.everyone, NULL);
    if (status) return gw_fail(error, status, "%s", gw_last_error(NULL));
    if (!s.everyone->context->everyone || s.everyone->context->everyone != s.everyone) {
        gw_finalize(s.everyone);
        return gw_fail(error, GW_INVALID,
                       "this process is not one of the servers of a job: gradwire run --servers "
                       "starts them");
    }
    while (!status && !run_command(&s, error))
        if (error->status) status = regroup(&s, error);
    close_reducers(&s, true);
    gw_finalize(s.everyone);
    return status;
}
