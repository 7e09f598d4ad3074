/* control_internal.h - the control plane's state, shared by control.c, control_wait.c and control_shrink.c only. */
#ifndef GW_CONTROL_CONTROL_INTERNAL_H
#define GW_CONTROL_CONTROL_INTERNAL_H

#include "control/agreement.h"
#include "control/control.h"

typedef struct gw_control_member {
    bool lost, left;
    bool died;            /* lost, with proof that its process has ended: not only cut off or silent */
    bool in;              /* belongs to the current generation */
    bool linked;          /* a control link to it is up */
    bool is_neighbour;    /* heartbeats and floods go over that link */
    bool asked;           /* over a link that is up, it has asked to shrink the current generation */
    int waits_for;        /* rank, -1: nobody */
    gw_time heard_at;     /* time of its last message over the link */
    uint64_t serial_seen; /* serial of its newest flood that has arrived here */
} gw_control_member;

typedef enum gw_shrink_phase {
    GW_SHRINK_IDLE,
    GW_SHRINK_ASKING,  /* the survivors of this generation find each other and agree */
    GW_SHRINK_JOINING, /* the next generation has begun, and not all its members are known to be in it */
    GW_SHRINK_OVER     /* the result has not been taken yet */
} gw_shrink_phase;

typedef struct gw_control_shrinking {
    gw_shrink_phase phase;
    gw_time began, until; /* began: of this phase; until: of the whole call */
    gw_time changed_at;   /* when a rank last came or went */
    gw_time voted_at;     /* when the last ballot of this rank began */
    gw_time retry_at;     /* this rank begins no ballot before this time */
    bool dialled;         /* the lower ranks have been dialled too */
    gw_error refused;     /* why this rank does not shrink this generation any more; GW_OK: it may */
    gw_error result;      /* GW_SHRINK_OVER */
    gw_agreement *agreement;
} gw_control_shrinking;

struct gw_control {
    int rank, world;
    bool any_side; /* quorum=off */
    gw_time deadline, beat_every;
    gw_control_events events;
    uint32_t generation;
    uint32_t lineage; /* digest of the members of all generations so far: differs between rivals of one number */
    uint32_t lineage_before;
    gw_error error;  /* first cause in this generation */
    uint64_t serial; /* of the last flood begun here */
    gw_time beat_at; /* of the next beat */
    gw_time polled_at;
    gw_time wait_began;              /* 0: not waiting */
    gw_time wait_deadline;           /* of what it waits in, ns */
    bool wait_chosen, wait_reported; /* the rank to name has been chosen; the user has been warned */
    int *awaited, awaited_count;     /* world entries */
    char wait_what[GW_CONTROL_TEXT];
    gw_control_shrinking shrink;
    gw_control_member *members; /* world entries */
    gw_voter *voters;           /* world entries */
};

/* control.c. gw_control_send_neighbours sends to all neighbours but `except` (-1: to all). */
gw_control_message gw_control_begin(gw_control *control, gw_control_kind kind, int subject, const char *text);
void gw_control_send_neighbours(gw_control *control, const gw_control_message *message, int except);
void gw_control_flood(gw_control *control, gw_control_kind kind, int subject, const char *text);
void gw_control_set_error(gw_control *control, gw_status status, int rank, const char *text);
/* Marks the rank as lost, without informing the others. */
void gw_control_mark_lost(gw_control *control, int rank, const char *text);

/* control_wait.c */
void gw_control_report_slow(gw_control *control, gw_time now);
gw_time gw_control_next_report(const gw_control *control); /* UINT64_MAX: there is nothing to report */

/* control_shrink.c */
void gw_control_receive_shrink(gw_control *control, int from, const gw_control_message *message, gw_time now);
/* A link came or went, or a death was proved. */
void gw_control_shrink_linked(gw_control *control, int rank, gw_time now);
void gw_control_shrink_unlinked(gw_control *control, int rank, gw_time now);
void gw_control_shrink_gone(gw_control *control, gw_time now);
void gw_control_shrink_abort(gw_control *control, const gw_error *error);
/* The others have gone on without this rank, as a message of `from` shows. */
void gw_control_set_excluded(gw_control *control, int from);
void gw_control_shrink_poll(gw_control *control, gw_time now);
gw_time gw_control_shrink_next(const gw_control *control);

#endif
