/* ps_sim_internal.h - shared by ps_sim.c (processes and their programs), ps_sim_regroup.c (regrouping after a loss) and
 * ps_sim_check.c (checks). */
#ifndef GW_SIM_PS_SIM_INTERNAL_H
#define GW_SIM_PS_SIM_INTERNAL_H

#include "base/rng.h"
#include "ps/ps.h"
#include "reducer/step_engine.h"
#include "sim/control_sim.h"
#include "sim/ps_sim.h"

#define GW_PS_SIM_DEADLINE (10 * GW_SECOND)

/* PULL: the forward pass waits for a tensor; HAND_OVER: hands over gradients one by one; BARRIER: has made all steps,
 * and waits for the others. */
typedef enum gw_ps_sim_phase {
    GW_PS_SIM_PULL,
    GW_PS_SIM_COMPUTE,
    GW_PS_SIM_HAND_OVER,
    GW_PS_SIM_FLUSH,
    GW_PS_SIM_BARRIER,
    GW_PS_SIM_LEAVE,
    GW_PS_SIM_OVER
} gw_ps_sim_phase;

typedef struct gw_ps_sim_job gw_ps_sim_job;

/* Pushes of one process, and the counts at its start. */
typedef struct gw_ps_sim_life {
    int begun[GW_PS_SIM_TENSORS_MAX], answered[GW_PS_SIM_TENSORS_MAX]; /* pushes by tensor */
    uint32_t begun_in[GW_PS_SIM_TENSORS_MAX];                          /* generation in which the last push began */
    float *before; /* each weight at the start of this process; NULL: no such process */
} gw_ps_sim_life;

typedef struct gw_ps_sim_process {
    gw_control_sim_rank base; /* first; rank: of this generation */
    gw_ps_sim_job *job;
    int member;
    bool lives, fresh; /* fresh: not yet regrouped with the others */
    uint32_t born;     /* the generation in which it was started */
    bool failed;       /* its core has reported a loss */
    gw_team *team;
    gw_step_engine *step_engine; /* NULL: not committed yet */
    gw_progress_callback callback;
    float *gradients, *weights, *flat;
    gw_ps_sim_phase phase;
    int tensor;
    uint64_t first; /* the number of its first step */
    int steps_done; /* by this process */
    gw_time until;  /* end of its compute */
    gw_rng rng;
    gw_ps_sim_life now, past; /* past: of the previous process of this member, until it is checked */
} gw_ps_sim_process;

struct gw_ps_sim_job {
    gw_control_sim base; /* first; net and world: of this generation */
    const gw_ps_sim *spec;
    gw_ps_sim_outcome *outcome;
    gw_rng rng;
    int generation; /* from 0; the next begins after each loss */
    gw_ps_sim_process members[GW_PS_SIM_MEMBERS_MAX];
    int member_of[GW_PS_SIM_MEMBERS_MAX];    /* member id of each rank of this generation */
    size_t at[GW_PS_SIM_TENSORS_MAX], total; /* offset of each tensor in gradients and weights; floats */
    bool counts;                             /* weights count pushes exactly */
    bool loss;                               /* a process was killed in this generation */
    int kill_after;                          /* events until the next kill */
    bool regrouping;                         /* gw_ps_sim_regroup is running */
    int interrupt_after;                     /* steps of regrouping until another loss; -1: none */
};

static inline int gw_ps_sim_members(const gw_ps_sim *s) { return s->workers + s->apart; }
static inline bool gw_ps_sim_works(const gw_ps_sim_process *p) { return p->member < p->job->spec->workers; }
static inline bool gw_ps_sim_keeps(const gw_ps_sim_job *job) { /* servers hold the weights */
    return gw_sync_of(job->spec->strategy.axes[GW_AXIS_SYNC].technique)->rule != NULL;
}

/* ps_sim.c: a check failed; the first failure is the outcome. */
void gw_ps_sim_broken(gw_ps_sim_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
gw_status gw_ps_sim_start_process(gw_ps_sim_job *job, int member, gw_error *error);
void gw_ps_sim_kill_process(gw_ps_sim_process *process); /* and frees its state; may be all zeros */
gw_status gw_ps_sim_connect(gw_ps_sim_process *process, int rank, gw_error *error);
void gw_ps_sim_disconnect(gw_ps_sim_process *process); /* after a failure, or if nothing is in flight */
gw_status gw_ps_sim_commit(gw_ps_sim_process *process, const gw_ps_member *who, gw_error *error);
void gw_ps_sim_continue(gw_ps_sim_process *process);

/* ps_sim_regroup.c: connects all live processes, including those just started, and transfers the servers' state. */
gw_status gw_ps_sim_regroup(gw_ps_sim_job *job, gw_error *error);
/* Chooses a process at random, and kills it if the job can do without it. */
void gw_ps_sim_kill_one(gw_ps_sim_job *job);

/* ps_sim_check.c */
float gw_ps_sim_gradient(const gw_ps_sim_job *job, int member, size_t element);
double gw_ps_sim_clip(const gw_ps_sim_job *job, int member);       /* as in gw_reducer_options */
void gw_ps_sim_check_pull(gw_ps_sim_process *process, int tensor); /* its weights have just arrived */
void gw_ps_sim_check_end(gw_ps_sim_job *job);
/* Called after regrouping, when servers have their state: checks the processes that have died since the last time, and
 * sets the counts of those just started. */
void gw_ps_sim_check_lives(gw_ps_sim_job *job);

#endif
