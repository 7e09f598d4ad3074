/* ps_internal.h - what ps_client.c (the worker, messages), ps_bind.c (partitions, memory), ps_server.c (the server),
 * ps_codec.c (partitions through a codec), ps_replica.c (replicas), ps_server_serialize.c (a server's state as bytes),
 * ps_snapshot.c (snapshots) and ps_resume.c (other ranks) share. */
#ifndef GW_PS_PS_INTERNAL_H
#define GW_PS_PS_INTERNAL_H

#include "engine/active_message.h"
#include "ps/ps.h"
#include "ps/shards.h"
#include "ps/snapshot_writer.h"
#include "reducer/step_engine_internal.h"

/* The part of a bucket that goes to one server in one message: contiguous in the server's space. */
typedef struct gw_partition {
    int bucket, server;
    size_t at, bytes; /* in the server's space */
    size_t count;     /* elements */
    gw_dtype dtype;
    int segments, first; /* of gw_ps.segments */
    uint8_t *from, *to;  /* the worker's: what is pushed, where the answer is written */
    bool packs, unpacks; /* from, to are in gw_ps.staging */
    uint64_t round;      /* the number of the worker's next push */
    int left;            /* the worker's: events (pushes sent, answers) until it is over */
    bool gone, answered; /* the worker's: its memory has been read, its answer has arrived */
    bool again;          /* push it again: ranks were lost before it was answered */
    uint64_t step;       /* the worker's: the step of its push */
    /* Through a codec. */
    bool coded;
    uint32_t rounds;            /* of push and answer in a step: 1, or those of a codec whose payloads are merged */
    size_t slot_at, slot_bytes; /* in a worker's receive buffer; without a codec: at and bytes */
    size_t push_bytes, answer_bytes; /* at most, of all rounds; the answer where it is coded */
    size_t second_at;                /* where round 1 begins in the worker's slot, in bytes */
    uint8_t *slot;                   /* the worker's payloads */
} gw_partition;

/* A contiguous range of one tensor. */
typedef gw_tensor_range gw_segment;

typedef enum gw_ps_message {
    GW_PS_PUSH,
    GW_PS_ANSWER, /* values as they are */
    GW_PS_CODED_ANSWER,
    GW_PS_LEAVE,     /* the worker makes no more pushes */
    GW_PS_LEAVE_ACK, /* the server's reply to LEAVE: it sends no more answers */
    GW_PS_COPY,      /* a push that the server has used, or the sum of a round, for its replica */
    GW_PS_COPY_ACK,  /* the replica's reply to COPY */
    GW_PS_CLOSE,     /* to the replica: there will be no more copies */
    GW_PS_CLOSE_ACK, /* the replica's reply to CLOSE: its last message */
    GW_PS_AT_STEP    /* after a loss: the worker's next push of that partition is of that step */
} gw_ps_message;

_Static_assert(GW_PS_AT_STEP < GW_AM_KINDS, "messages of different kinds do not wait for each other");

/* The kind field of a message holds its kind and, for copies, the worker of the push (-1: the sum of a round). */
static inline gw_ps_message gw_ps_message_kind(const gw_am_message *message) {
    return (gw_ps_message)(message->kind & 0xff);
}
static inline int gw_ps_message_worker(const gw_am_message *message) { return (int)(message->kind >> 8) - 1; }
static inline uint32_t gw_ps_message_of(gw_ps_message kind, int worker) {
    return (uint32_t)kind | (uint32_t)(worker + 1) << 8;
}

/* The state of one server. */
typedef struct gw_shard_store {
    int server; /* -1: none */
    bool known; /* false: its state is still to be transferred */
    gw_clock_table *clocks;
    uint8_t *result;  /* its space: means; coded: sums, or merged payloads where each partition's values begin */
    uint8_t *weights; /* its space, where weights live on servers */
} gw_shard_store;

/* The state of a server from before a loss, for the rank that runs it now. */
typedef struct gw_kept_state {
    int server; /* -1: none */
    void *bytes;
    size_t count;
} gw_kept_state;

typedef struct gw_ps_codec gw_ps_codec;

struct gw_ps {
    gw_step_engine *step_engine;
    int rank, world, servers, own; /* own: the server of this rank, -1: none */
    gw_placement placement;
    int workers;   /* ranks that make steps */
    uint64_t base; /* the number of the job's first step, or of the first since the last cut: pushes are counted from
                      there */
    gw_sync_rule rule;
    bool weights_here; /* servers keep weights and answer with them */
    bool additive;     /* these servers cannot run the caller's update: differences of weights are pushed */
    bool whole;        /* no tensor is cut */
    uint8_t *moved;    /* additive, a worker's: weights after the update, of the largest partition */
    size_t moved_bytes;
    size_t partition_bytes; /* at most */
    gw_shards shards;
    size_t *space_at; /* where each server's space begins in staging */
    gw_am *am;
    gw_ps_codec *codec; /* NULL: values are sent as they are */
    gw_partition *partitions;
    int partition_count, partition_room;
    gw_segment *segments;
    int *first_partition; /* of each bucket, buckets + 1 entries */
    int *bucket_left;     /* of each bucket: partitions that are not over */
    int *bucket_here;     /* of each bucket: partitions whose memory has not been read yet */
    uint8_t *staging;     /* all spaces, one after the other; NULL: nothing needs packing */
    size_t staging_bytes;
    int *answers_due; /* by rank of a server: answers that this worker waits for */
    int *ends_due;    /* by rank: LEAVE, LEAVE_ACK, CLOSE and CLOSE_ACK messages still to come */
    bool leaving, said_leave;
    bool repeats; /* after a loss: push partitions again, or send GW_PS_AT_STEP */
    /* The server's. */
    gw_shard_store store;
    size_t recv_buffer_bytes;
    uint8_t **recv_buffer; /* by worker: slots of the own space; NULL: the own worker, whose memory is read in place */
    const void **sources;  /* world entries, scratch */
    gw_snapshot_writer *writer; /* NULL: no snapshots */
    uint64_t used;              /* partitions used since the last snapshot */
    void *snapshot;             /* memory for a snapshot */
    int own_partitions;         /* partitions of the own server */
    int known_workers;          /* workers that were not restarted, when it was restored from a snapshot */
    bool tells_lost;            /* restored from a snapshot: the number of lost steps is still to be logged */
    /* A replica of another server here, and the replica of the own server elsewhere. */
    gw_shard_store copy;
    uint8_t *copy_recv_buffer; /* its space */
    int *copy_queue;           /* by partition, world entries each: workers whose pushes are to be copied, in order */
    uint64_t *copy_step;       /* by partition and worker: the step of its push */
    int *copy_waiting;         /* by partition: entries of its queue; the first is in flight */
    uint8_t *scratch;          /* a copy of a push while it is applied, if the own server has a replica */
    int copies_due;            /* in flight, or queued */
    bool said_close;
    gw_kept_state kept[2];
};

/* ps_bind.c */
gw_status gw_ps_cut(gw_ps *ps, gw_error *error);
/* A tensor is cut at multiples of so many elements, which are multiples of `grain`, to shards and to partitions; 0:
 * never. */
size_t gw_ps_grain(const gw_ps *ps, int tensor, size_t grain);
size_t gw_partition_message_bytes(const gw_ps *ps, const gw_segment *segment);
/* The next stripe of a shard after that segment, which begins as {.tensor}. False: none. */
static inline bool gw_ps_next_stripe(const gw_shard *shard, gw_segment *segment) {
    uint64_t from = segment->first + segment->count, count = 0;
    bool more = gw_stripes_next(&shard->covers, &from, shard->covers.end, &count);
    *segment = (gw_segment){shard->tensor, from, count};
    return more;
}
uint8_t *gw_ps_tensor_at(const gw_ps *ps, const gw_segment *segment, bool weights);

/* ps_server.c */
gw_status gw_ps_serve_open(gw_ps *ps, gw_error *error);
void gw_ps_serve_close(gw_ps *ps);
size_t gw_ps_serve_bytes(const gw_ps *ps);
void gw_ps_pushed(gw_ps *ps, int partition, int worker, uint64_t round, uint64_t step, gw_time now, gw_error *error);
void gw_ps_left(gw_ps *ps, int worker, gw_time now, gw_error *error);
void gw_ps_worker_at_step(gw_ps *ps, int partition, int worker, uint64_t next, gw_time now, gw_error *error);
void gw_ps_answer_due(gw_ps *ps, int partition, gw_time now, gw_error *error);
/* What a worker has pushed; coded: its payload, or once that is decoded, if there is a replica, its values. */
const uint8_t *gw_ps_pushed_by(const gw_ps *ps, const gw_partition *partition, int worker);
/* The caller's optimiser, on a server's weights: with the gradient of a step. A push that is applied at once has been
 * counted by the store's clocks before. */
void gw_ps_update(gw_ps *ps, gw_shard_store *store, int partition, const uint8_t *gradient, uint64_t step);
/* Additive: the worker runs the caller's update on a copy of its weights, and the difference replaces the gradient. */
void gw_ps_take_difference(gw_ps *ps, const gw_partition *partition, uint64_t step);
gw_status gw_shard_store_open(gw_ps *ps, gw_shard_store *store, int server, gw_error *error);
void gw_shard_store_close(gw_shard_store *store);
gw_status gw_ps_open_clock_tables(gw_ps *ps, gw_error *error); /* for the current partitions */

/* ps_replica.c: replicas. */
gw_status gw_ps_replica_open(gw_ps *ps, gw_error *error);
void gw_ps_replica_close(gw_ps *ps);
void gw_ps_replica_clear(gw_ps *ps);     /* nothing is being copied: partitions will change */
bool gw_ps_has_replica(const gw_ps *ps); /* the own server has a replica */
/* A push or a round (worker -1) has been used: sends it to the replica, and holds answers until the replica has it. */
void gw_ps_replicate(gw_ps *ps, int partition, int worker, uint64_t number, uint64_t step, gw_time now,
                     gw_error *error);
void gw_ps_replica_apply(gw_ps *ps, int from, const gw_am_message *message, gw_time now, gw_error *error);
void gw_ps_replica_acked(gw_ps *ps, const gw_am_message *message, gw_time now, gw_error *error);
bool gw_ps_replica_end(gw_ps *ps, gw_time now, gw_error *error); /* sends CLOSE to the replica; true if it did */

/* ps_server_serialize.c */
size_t gw_ps_state_bytes(const gw_ps *ps, const gw_shard_store *store);
void gw_ps_state_save(const gw_ps *ps, const gw_shard_store *store, void *memory);
gw_status gw_ps_state_restore(gw_ps *ps, gw_shard_store *store, const void *memory, size_t bytes, bool old,
                              gw_error *error);

/* ps_snapshot.c: snapshots. */
gw_status gw_ps_snapshot_open(gw_ps *ps, gw_error *error);
void gw_ps_snapshot_close(gw_ps *ps);
void gw_ps_snapshot_count_used(gw_ps *ps); /* a partition has been used: a snapshot may be due */
void gw_ps_snapshot_log_lost(gw_ps *ps);   /* a push arrived: the number of lost steps may be known now */

/* ps_codec.c. Set-up: open, then cut shards with gw_ps_codec_grain, then serve. After each cut of buckets: lay. */
gw_status gw_ps_codec_open(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_serve(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_lay(gw_ps *ps, gw_error *error);
void gw_ps_codec_close(gw_ps *ps);
size_t gw_ps_codec_partition(const gw_ps *ps); /* bytes of values, at most */
size_t gw_ps_codec_grain(const gw_ps *ps, int tensor, size_t grain);
size_t gw_ps_codec_memory(const gw_ps *ps);
/* The worker calls begin before and begun after it pushes a bucket's partitions, encode to encode one partition into
 * its slot, and answered when a coded answer is in the slot. */
void gw_ps_codec_begin(gw_ps *ps, int bucket, uint64_t step);
void gw_ps_codec_begun(gw_ps *ps, int bucket);
uint8_t *gw_ps_codec_slot(const gw_partition *partition); /* of the next round */
/* Whether a push, or an answer to this worker, may have that many bytes. Merged payloads have one length. */
bool gw_ps_codec_fits(const gw_ps *ps, const gw_partition *partition, bool answer, size_t bytes);
gw_status gw_ps_codec_encode(gw_ps *ps, const gw_partition *partition, uint64_t step, size_t *bytes, gw_error *error);
gw_status gw_ps_codec_answered(gw_ps *ps, const gw_partition *partition, int from, const gw_am_message *message,
                               gw_error *error);
/* The server calls note when a push has arrived. decode writes one push, sum those of a round that so many workers have
 * joined, to the store's result. */
void gw_ps_codec_note(gw_ps *ps, int worker, const gw_am_message *message);
gw_status gw_ps_codec_decode(gw_ps *ps, int partition, int worker, gw_error *error);
gw_status gw_ps_codec_sum(gw_ps *ps, int partition, int joined, gw_error *error);
bool gw_ps_codec_answers(const gw_ps *ps, const gw_partition *partition, int worker); /* the answer is coded */
const uint8_t *gw_ps_codec_answer(gw_ps *ps, int partition, int worker, gw_am_message *message, gw_error *error);

/* ps_client.c */
/* The answer is in partition->to or, if it is coded, in the slot. */
void gw_ps_answered(gw_ps *ps, int from, const gw_am_message *message, gw_time now, gw_error *error);
void gw_ps_partition_event_done(gw_ps *ps, int partition);
void gw_ps_partition_gone(gw_ps *ps, int partition);   /* its memory has been read */
gw_status gw_ps_open_team(gw_ps *ps, gw_error *error); /* placement, memory and messages for the current team */
void gw_ps_close_team(gw_ps *ps);
int gw_ps_server_rank(const gw_ps *ps, int server);
void gw_ps_listen(gw_ps *ps); /* to the ranks that will send messages */

#endif
