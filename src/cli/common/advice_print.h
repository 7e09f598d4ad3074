/* advice_print.h - advice (predict/advice.h) on standard output. */
#ifndef GW_CLI_COMMON_ADVICE_PRINT_H
#define GW_CLI_COMMON_ADVICE_PRINT_H

#include "predict/advice.h"

/* An empty line, a heading and a line for each finding; nothing without findings. */
void gw_advice_print(const gw_advice *advice);
/* `"advice": [...]` */
void gw_advice_json(const gw_advice *advice);

#endif
