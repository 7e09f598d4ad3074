/* path.h - the critical path: what a step, or the whole recording, consisted of that could not have been shorter
 * without making it shorter.
 *
 * It is found from the end: the rank that ended last either computed, which goes back to when it last waited; or it
 * waited
 * for an operation, which ended with its last message, which goes back to its sender, which had been waiting for
 * another message, or had only just begun the operation; and so on to the beginning. */
#ifndef GW_INSIGHT_PATH_H
#define GW_INSIGHT_PATH_H

#include "insight/messages.h"
#include "insight/operations.h"

/* name, text */
#define GW_PATH_LIST(X)                                                                                                \
    X(FORWARD, "forward")                                                                                              \
    X(BACKWARD, "backward")                                                                                            \
    X(CODING, "coding")           /* encode, reduce, decode */                                                         \
    X(UPDATE, "update")           /* of the weights */                                                                 \
    X(WIRE, "on the wire")        /* from one rank to another */                                                       \
    X(MEMORY, "shared memory")    /* an operation without messages, from when the last rank had begun it */            \
    X(HANDLING, "handling")       /* between a message and the next: reducing, waiting for room */                     \
    X(OTHER, "other")             /* whatever the caller did that was not recorded */

typedef enum gw_path_kind {
#define GW_PATH_ENUM(name, text) GW_PATH_##name,
    GW_PATH_LIST(GW_PATH_ENUM)
#undef GW_PATH_ENUM
    GW_PATH_KINDS
} gw_path_kind;

typedef struct gw_path_part {
    gw_path_kind kind;
    int rank, from; /* from: the sender of what is on the wire, else -1 */
    uint32_t name;
    gw_time begin, end;
} gw_path_part;

typedef struct gw_path {
    gw_path_part *list; /* in the order of time */
    size_t count, room;
    gw_time total[GW_PATH_KINDS];
    gw_time begin, end;
} gw_path;

const char *gw_path_name(gw_path_kind kind);

/* Back from `end` on that rank to `begin`. */
gw_status gw_path_find(const gw_insight *insight, const gw_operations *operations, const gw_messages *messages,
                       int rank, gw_time begin, gw_time end, gw_path *path, gw_error *error);
void gw_path_free(gw_path *path);

#endif
