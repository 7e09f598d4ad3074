/* tuning_file.h - what tuning found, as a file: every trial as a comment, then the schedule as a word of the strategy
 * line, so that it is also a strategy file. */
#ifndef GW_ENGINE_TUNING_FILE_H
#define GW_ENGINE_TUNING_FILE_H

#include "schedule/tune.h"
#include "strategy/strategy.h"

/* "bytescheduler:slice=512K,credit=2M": the schedule of a strategy alone. */
void gw_tuning_schedule_print(const gw_strategy *strategy, char *text, size_t size);

/* True where the file is there, is of this model and of the strategy's schedule: *known is that strategy, with the
 * sizes in the file. */
bool gw_tuning_file_read(const char *path, const char *model, const gw_strategy *strategy, gw_strategy *known);
/* param: which of the schedule's parameters the tuner's axes are. The old file stands until the new one is whole. */
gw_status gw_tuning_file_write(const char *path, const char *model, const gw_tuner *tuner, const int *param,
                               const gw_strategy *strategy, gw_error *error);

#endif
