/* mend.h - a timeline whose writers were killed becomes whole JSON again. */
#ifndef GW_INSIGHT_MEND_H
#define GW_INSIGHT_MEND_H

#include <stdbool.h>

/* Leaves out objects that were cut short and closes the array; a file that is whole, or that is not there, or somebody
 * still writes to, is left alone. False where that cannot be done. */
bool gw_timeline_mend(const char *path);

#endif
