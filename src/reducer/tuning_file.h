/* tuning_file.h - the result of tuning, as a file that is also a strategy file:
 *
 *     # gradwire tune: 62 tensors, 1640032 bytes, arch=auto sync=bsp compress=none schedule=wfbp transport=auto
 *     # trial 1: fuse 4M, 12.345 ms a step, 4 steps, spread 1.2 %
 *     schedule=wfbp:fuse=2M
 *
 * The first line names the model and the other axes; a file of others is not used. */
#ifndef GW_REDUCER_TUNING_FILE_H
#define GW_REDUCER_TUNING_FILE_H

#include "schedule/tune.h"
#include "strategy/strategy.h"

/* "bytescheduler:slice=512K,credit=2M": the schedule of a strategy alone. */
void gw_tuning_schedule_print(const gw_strategy *strategy, char *text, size_t size);

/* True if the file exists and is for this model and the strategy's schedule: *known is the strategy with the file's
 * sizes. */
bool gw_tuning_file_read(const char *path, const char *model, const gw_strategy *strategy, gw_strategy *known);
/* param: the schedule's parameter of each axis of the tuner. The old file stays until the new one is complete. */
gw_status gw_tuning_file_write(const char *path, const char *model, const gw_tuner *tuner, const int *param,
                               const gw_strategy *strategy, gw_error *error);

#endif
