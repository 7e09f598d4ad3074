/* critical_path.h - the critical path of a step, or of the whole recording: the chain of work and messages that
 * determined its length.
 *
 * It is followed backwards, from the rank that ended last. If that rank computed, the path goes back to the end of its
 * last wait. If it waited for an operation, the path goes to the operation's last message and on to its sender. The
 * sender had waited for an earlier message, or had only just begun the operation; and so on to the beginning. */
#ifndef GW_INSIGHT_CRITICAL_PATH_H
#define GW_INSIGHT_CRITICAL_PATH_H

#include "insight/messages.h"
#include "insight/operations.h"

/* name, text */
#define GW_PATH_LIST(X)                                                                                                \
    X(FORWARD, "forward")                                                                                              \
    X(BACKWARD, "backward")                                                                                            \
    X(CODING, "coding")        /* encode, reduce, decode */                                                            \
    X(UPDATE, "update")        /* of the weights */                                                                    \
    X(WIRE, "on the wire")     /* from one rank to another */                                                          \
    X(MEMORY, "shared memory") /* an operation without messages, since the last rank began it */                       \
    X(HANDLING, "handling")    /* between two messages: reducing, waiting for a grant or credit */                     \
    X(OTHER, "other")          /* work of the caller that was not recorded */

typedef enum gw_critical_path_kind {
#define GW_PATH_ENUM(name, text) GW_PATH_##name,
    GW_PATH_LIST(GW_PATH_ENUM)
#undef GW_PATH_ENUM
        GW_PATH_KINDS
} gw_critical_path_kind;

typedef struct gw_critical_path_part {
    gw_critical_path_kind kind;
    int rank, from; /* from: the sender, for GW_PATH_WIRE; else -1 */
    uint32_t name;
    gw_time begin, end;
} gw_critical_path_part;

typedef struct gw_critical_path {
    gw_critical_path_part *list; /* by time */
    size_t count, capacity;
    gw_time total[GW_PATH_KINDS];
    gw_time begin, end;
} gw_critical_path;

const char *gw_critical_path_name(gw_critical_path_kind kind);

/* Finds the path back from `end` on that rank to `begin`. */
gw_status gw_critical_path_find(const gw_insight *insight, const gw_operations *operations, const gw_messages *messages,
                                int rank, gw_time begin, gw_time end, gw_critical_path *path, gw_error *error);
void gw_critical_path_free(gw_critical_path *path);

#endif
