/* ps.h - buckets through parameter servers (Li et al. 2014). A worker pushes its values to the servers that own their
 * shards (ps/shards.h) and gets back the mean, or weights; workers do not talk to each other. Servers run beside
 * workers, in the same process (colocated, as in BytePS).
 *
 * The part of a bucket that one server owns is sent in partitions of at most GW_PARTITION_BYTES. Each is answered as
 * soon as the clock table (ps/clock_table.h) allows, independently of the others. Sums are taken in worker order. The
 * answer depends on the synchronization: if it has no rule, it is the mean of all pushes; if it has one, the server
 * keeps its own copy of the weights, runs the caller's update on it, and answers with weights. Partitions may be
 * compressed (ps_codec.c).
 *
 * Servers may also be ranks that do nothing else (gw_ps_member.serves_only). Such a process cannot run the caller's
 * update. The worker runs it on its own weights and pushes the difference, and the server adds that to its weights (the
 * additive updates of SSP, Ho et al. 2013, and of BytePS).
 *
 * Lost ranks: gw_ps_suspend keeps this rank's state of servers and workers, gw_ps_rejoin starts among the present ranks
 * (config.team, config.members), and then each server's state is transferred; see ps_resume.c.
 *
 * Cost, n bytes, S servers, p workers: n out and n in for each worker, p n / S in and out for each server (less the
 * worker's shards on its own server). Memory: n on each worker if tensors are not contiguous, or are cut between
 * servers; on a server its shards times p, the pushes as they arrive. */
#ifndef GW_PS_PS_H
#define GW_PS_PS_H

#include "ps/clock_table.h"
#include "ps/placement.h"
#include "reducer/step_engine.h"

/* Largest payload of a partition: small enough that the first answers leave soon after the first pushes arrive. */
#define GW_PARTITION_BYTES (192 * 1024)
#define GW_CODED_PARTITION_BYTES (1024 * 1024) /* most bytes of values in a partition that a codec encodes */
#define GW_PS_GRAIN 64                         /* elements: shards begin at whole cache lines */

typedef struct gw_ps gw_ps;

gw_status gw_ps_open(gw_ps **ps, gw_step_engine *step_engine, gw_error *error);
void gw_ps_close(gw_ps *ps); /* NULL is fine */

/* After a cut; nothing is in flight on any rank. */
gw_status gw_ps_bind(gw_ps *ps, gw_error *error);
/* This rank's server's shard of a tensor's weights: the elements of *covers, one after the other; NULL: none. */
float *gw_ps_weights(const gw_ps *ps, int tensor, gw_stripes *covers);

void gw_ps_start(gw_ps *ps, int bucket, uint64_t step, gw_time now, gw_error *error);
bool gw_ps_over(const gw_ps *ps, int bucket);
bool gw_ps_moves_weights(const gw_ps *ps); /* workers push differences of weights */
bool gw_ps_poll(gw_ps *ps, gw_time now, gw_error *error);

/* This rank's worker makes no more steps. Its server continues until every worker has left. */
void gw_ps_leave(gw_ps *ps);
bool gw_ps_quiet(const gw_ps *ps); /* all workers have left */

/* Moving to other ranks, while no thread drives it. */
void gw_ps_describe_member(const gw_ps *ps, gw_ps_member *mine); /* fills in this rank's servers, replicas and pushes */
gw_status gw_ps_suspend(gw_ps *ps, gw_error *error);
gw_status gw_ps_rejoin(gw_ps *ps, gw_error *error);
const gw_placement *gw_ps_placement(const gw_ps *ps);
/* Transfer of a server's state: get_state on rank placement.source[server], set_state on the rank that runs the server
 * and on the rank of its replica. The bytes are valid until the next call. If no rank has the state: load_snapshot,
 * from the server's last snapshot. */
gw_status gw_ps_get_state(gw_ps *ps, int server, const void **bytes, size_t *count, gw_error *error);
gw_status gw_ps_set_state(gw_ps *ps, int server, const void *bytes, size_t count, gw_error *error);
gw_status gw_ps_load_snapshot(gw_ps *ps, gw_error *error);
void gw_ps_begin_fresh(gw_ps *ps); /* all ranks have just started: a server begins with the weights of its own rank */
/* After that, restarted workers get weights and the numbers of their next pushes (gw_ps_partitions of them). */
void gw_ps_admit(gw_ps *ps);
bool gw_ps_has_weights(const gw_ps *ps);
size_t gw_ps_space(const gw_ps *ps, int server); /* bytes */
int gw_ps_partitions(const gw_ps *ps);
void gw_ps_next_push_numbers(const gw_ps *ps, int worker, uint64_t *numbers); /* at this rank's server */
void *gw_ps_space_weights(const gw_ps *ps);                                   /* all weights of this rank's server */
bool gw_ps_gives_weights(const gw_ps *ps); /* servers begin without weights: rank 0 sends its own */
void gw_ps_pack_weights(const gw_ps *ps, int server, void *space); /* copies this rank's weights of a server's shards */
void gw_ps_begin_at(gw_ps *ps, int server, const uint64_t *numbers, const void *weights);
/* All state is transferred: frees the states that were kept for the transfer, and begins snapshots. */
gw_status gw_ps_transfer_done(gw_ps *ps, gw_error *error);
void gw_ps_free_kept(gw_ps *ps);

size_t gw_ps_sent_bytes(const gw_ps *ps); /* by this rank in a step */
size_t gw_ps_memory_bytes(const gw_ps *ps);
size_t gw_ps_codec_state_bytes(const gw_ps *ps);
bool gw_ps_encodes(const gw_ps *ps, int tensor); /* not all of them: small ones are sent exact */
/* Codec state of a tensor: the worker's, or that of this rank's server for its shard. NULL: none. */
gw_codec_state *gw_ps_codec_state(const gw_ps *ps, int tensor, bool owner);
/* A worker's times at the server of this rank; zeros if it runs none. */
gw_clock_table_times gw_ps_times(const gw_ps *ps, int worker, gw_time now);

#endif
