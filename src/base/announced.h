/* announced.h - memory for as many bytes as a peer says that it will send. */
#ifndef GW_BASE_ANNOUNCED_H
#define GW_BASE_ANNOUNCED_H

#include "base/status.h"

/* Adds what rank `from` announced to *total; GW_PROTOCOL if no memory is that large. what: for the sentence, "a
 * server's state". */
gw_status gw_announced_add(size_t *total, uint64_t bytes, int from, const char *what, gw_error *error);
/* Memory for them, the caller's to free; at least one byte. NULL: the error says why. */
void *gw_announced_alloc(uint64_t bytes, int from, const char *what, gw_error *error);

#endif
