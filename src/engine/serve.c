/* serve.c - see serve.h. Steps are carried by whoever drives (gw_rider), which is this thread while it waits for the
 * next errand. */
#include "engine/serve.h"

#include <stdlib.h>

#include "base/log.h"
#include "engine/step.h"

/* Goes over the wire as it is. */
typedef struct errand_head {
    uint32_t errand, number;
    uint64_t bytes; /* of the table */
} errand_head;

static gw_status heard(gw_status status, gw_comm *comm, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

/* The worker's side. */

gw_status gw_servers_call(gw_comm *everyone, gw_errand errand, uint32_t number, const gw_step_table *table,
                          gw_error *error) {
    errand_head head = {.errand = errand, .number = number, .bytes = table ? table->count : 0};
    gw_status status = GW_OK;
    if (everyone->rank != 0) return GW_OK;
    for (int r = everyone->size - everyone->node->place.servers; r < everyone->size && !status; r++) {
        status = heard(gw_send(everyone, &head, sizeof head, GW_U8, r), everyone, error);
        if (!status && table) status = heard(gw_send(everyone, table->bytes, table->count, GW_U8, r), everyone, error);
    }
    return status;
}

void gw_servers_dismiss(gw_comm *everyone) {
    gw_error ignored = {.rank = -1};
    if (!atomic_load(&everyone->failed)) gw_servers_call(everyone, GW_ERRAND_BYE, 0, NULL, &ignored);
}

/* The server's side. */

/* A step, as long as a worker has it open. */
typedef struct served {
    struct served *next;
    gw_step_table table;
    gw_step_request request;
    gw_step *step;
} served;

typedef struct server {
    gw_comm *everyone;
    served *steps;
} server;

/* Nobody knows when: its deadline does not run. */
static gw_status await_errand(server *s, errand_head *head, gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_RECV, .out = head, .count = sizeof *head, .dtype = GW_U8, .root = 0,
                       .patient = true};
    return heard(gw_comm_run(s->everyone, &spec), s->everyone, error);
}

static void forget(served *one) {
    gw_step_close(one->step);
    gw_step_request_free(&one->request);
    gw_step_table_free(&one->table);
    free(one);
}

/* Those that workers have closed; all: those that they are about to. */
static void close_steps(server *s, bool all) {
    for (served **at = &s->steps; *at;) {
        served *one = *at;
        if (!all && !gw_step_over(one->step)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        forget(one);
    }
}

static gw_status read_table(server *s, served *one, const errand_head *head, gw_error *error) {
    one->table.bytes = malloc(head->bytes + 1);
    one->table.count = head->bytes;
    if (!one->table.bytes) return gw_fail(error, GW_MEMORY, "out of memory for what is said of a step");
    return heard(gw_recv(s->everyone, one->table.bytes, head->bytes, GW_U8, 0), s->everyone, error);
}

/* A step that lost others goes on among those who are there now. */
static served *interrupted(const server *s) {
    served *one = s->steps;
    while (one && one->step->comm->node == s->everyone->node) one = one->next;
    return one;
}

/* Only what concerns the whole job is an error here: a step that this server cannot take part in is the workers'. */
static gw_status take_step(server *s, const errand_head *head, gw_error *error) {
    served *one = calloc(1, sizeof *one), *before = interrupted(s);
    gw_error refused = {.rank = -1};
    if (!one) return gw_fail(error, GW_MEMORY, "out of memory for a step");
    gw_status status = read_table(s, one, head, error);
    if (status || before) {
        gw_step_table_free(&one->table);
        free(one);
        if (status) return status;
        before->step->number = head->number;
        status = gw_step_move_served(before->step, s->everyone, &refused);
    } else {
        status = gw_step_request_read(&one->request, &one->table, &refused);
        status = gw_step_commit_served(&one->step, s->everyone, &one->request, status, &refused);
        if (status) {
            forget(one);
        } else {
            one->step->number = head->number;
            one->next = s->steps;
            s->steps = one;
        }
    }
    if (status) gw_log(GW_LOG_WARN, s->everyone->rank, "%s", refused.text);
    return GW_OK;
}

static gw_status tell_times(server *s, const errand_head *head, gw_error *error) {
    served *one = s->steps;
    while (one && one->step->number != head->number) one = one->next;
    if (!one) return gw_fail(error, GW_PROTOCOL, "the first worker asks for the times of step %u, which is not known",
                             head->number);
    gw_step_worker *workers = calloc((size_t)one->step->workers, sizeof *workers);
    if (!workers) return gw_fail(error, GW_MEMORY, "out of memory for the times of workers");
    gw_status status = gw_step_share_times(one->step, workers, error);
    free(workers);
    return status;
}

/* True when the job is over. */
static bool run_errand(server *s, gw_error *error) {
    errand_head head;
    if (await_errand(s, &head, error)) return false;
    close_steps(s, false);
    switch (head.errand) {
    case GW_ERRAND_STEP: take_step(s, &head, error); return false;
    case GW_ERRAND_TIMES: tell_times(s, &head, error); return false;
    case GW_ERRAND_BYE: return true;
    default: gw_fail(error, GW_PROTOCOL, "the first worker has an errand of kind %u, which is not known", head.errand);
    }
    return false;
}

/* Somebody was lost: where the job is elastic it goes on. */
static gw_status regroup(server *s, gw_error *error) {
    gw_comm *old = s->everyone, *next = NULL;
    if (!atomic_load(&old->failed) || !old->node->place.roll[0]) return error->status;
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
    if (!s.everyone->node->everyone || s.everyone->node->everyone != s.everyone) {
        gw_finalize(s.everyone);
        return gw_fail(error, GW_INVALID, "this process is not one of the servers of a job: gradwire run --servers "
                                          "starts them");
    }
    while (!status && !run_errand(&s, error))
        if (error->status) status = regroup(&s, error);
    close_steps(&s, true);
    gw_finalize(s.everyone);
    return status;
}
