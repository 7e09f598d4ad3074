/* stepper_ps.h - pieces carried by parameter servers (Li et al. 2014): a worker pushes what is to be exchanged to the
 * owners of its shares (server/shares.h) and gets back the mean, or weights; no worker talks to another. Servers run
 * beside workers, in the same process and machine (as BytePS colocates them).
 *
 * What a piece has of one server's space travels as parcels of at most GW_PARCEL_BYTES; each is answered as soon as the
 * desk (server/desk.h) allows, whatever the others do. Sums are taken in worker order. What an answer means depends on
 * the synchrony: without a rule of its own it is the mean of all pushes; with one the server has its own copy of the
 * weights, runs the caller's update on it, and answers with weights. Parcels may be compressed (stepper_ps_codec.c).
 *
 * Servers may also be ranks that do nothing else (gw_attendant.only). In such a process there is no update to run: the
 * worker runs it on its own weights and pushes what they moved by, which the server adds to its own (the additive
 * updates of SSP, Ho et al. 2013, and of BytePS).
 *
 * Ranks that are lost: gw_ps_part keeps what this rank knows of servers and workers, gw_ps_rejoin sits down with those
 * who are there now (config.team, config.attendants), and then what servers knew is handed over; see stepper_ps_move.c.
 *
 * Cost, n bytes, S servers, p workers: n out and n in for each worker, p n / S in and out for each server (less what a
 * worker has on its own server). Memory: on each worker n where tensors lie apart; on a server its share times p. */
#ifndef GW_ENGINE_STEPPER_PS_H
#define GW_ENGINE_STEPPER_PS_H

#include "engine/stepper.h"
#include "server/desk.h"
#include "server/placement.h"

/* Of payload: small enough that answers to the first parcels leave soon after their pushes begin to come. And of values
 * in a parcel whose payload is smaller. */
#define GW_PARCEL_BYTES (192 * 1024)
#define GW_CODED_PARCEL_BYTES (1024 * 1024)
#define GW_PS_GRAIN 64 /* elements: shares begin at whole cache lines */

typedef struct gw_ps gw_ps;

gw_status gw_ps_open(gw_ps **ps, gw_stepper *stepper, gw_error *error);
void gw_ps_close(gw_ps *ps); /* NULL is fine */

/* After a cut; nothing is under way on any rank. */
gw_status gw_ps_bind(gw_ps *ps, gw_error *error);
/* What this rank's server keeps of a tensor's weights: so many elements from the first on; NULL: nothing. */
float *gw_ps_weights(const gw_ps *ps, int tensor, size_t *first, size_t *count);

void gw_ps_start(gw_ps *ps, int piece, uint64_t step, gw_time now, gw_error *error);
bool gw_ps_over(const gw_ps *ps, int piece);
bool gw_ps_moves_weights(const gw_ps *ps); /* what is pushed are differences of weights */
bool gw_ps_poll(gw_ps *ps, gw_time now, gw_error *error);

/* This rank's worker makes no more steps. Its server goes on until every worker has left. */
void gw_ps_leave(gw_ps *ps);
bool gw_ps_quiet(const gw_ps *ps); /* all have left */

/* Other ranks. Nobody drives meanwhile. */
void gw_ps_attend(const gw_ps *ps, gw_attendant *mine); /* what it says of itself as to servers and pushes */
gw_status gw_ps_part(gw_ps *ps, gw_error *error);
gw_status gw_ps_rejoin(gw_ps *ps, gw_error *error);
const gw_placement *gw_ps_placement(const gw_ps *ps);
/* Handing over: what a server knew, as placement.source of it gives it, and as its rank and its replica's take it. The
 * bytes are the machine's until the next call. Where nobody has it: from its last snapshot. */
gw_status gw_ps_known(gw_ps *ps, int server, const void **bytes, size_t *count, gw_error *error);
gw_status gw_ps_take(gw_ps *ps, int server, const void *bytes, size_t count, gw_error *error);
gw_status gw_ps_load(gw_ps *ps, gw_error *error);
void gw_ps_fresh(gw_ps *ps); /* all have just been started: a server knows the weights of its own rank */
/* Then workers that came anew: they get the numbers of their next pushes (gw_ps_parcels of them) and weights. */
void gw_ps_admit(gw_ps *ps);
bool gw_ps_has_weights(const gw_ps *ps);
size_t gw_ps_space(const gw_ps *ps, int server); /* bytes */
int gw_ps_parcels(const gw_ps *ps);
void gw_ps_numbers(const gw_ps *ps, int worker, uint64_t *numbers); /* of the own server */
void *gw_ps_space_weights(const gw_ps *ps);                         /* likewise, its space */
bool gw_ps_gives_weights(const gw_ps *ps); /* servers have none to begin with: the first rank gives its own */
void gw_ps_gather(const gw_ps *ps, int server, void *space); /* this rank's weights of what a server owns */
void gw_ps_begin_at(gw_ps *ps, int server, const uint64_t *numbers, const void *weights);
/* Everybody has what he needs: what was kept is forgotten, and snapshots begin. */
gw_status gw_ps_settle(gw_ps *ps, gw_error *error);
void gw_ps_forget(gw_ps *ps);

size_t gw_ps_sent_bytes(const gw_ps *ps); /* by this rank in a step */
size_t gw_ps_memory_bytes(const gw_ps *ps);
size_t gw_ps_codec_state_bytes(const gw_ps *ps);
/* What the codec keeps of a tensor: the worker's, or what this rank's server keeps of its share. NULL: nothing. */
gw_codec_state *gw_ps_codec_state(const gw_ps *ps, int tensor, bool owner);
/* What the server of this rank knows of a worker; zeros where it runs none. */
gw_desk_times gw_ps_times(const gw_ps *ps, int worker, gw_time now);

#endif
