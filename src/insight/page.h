/* page.h - writes a report as one self-contained HTML page: no network, no other file. */
#ifndef GW_INSIGHT_PAGE_H
#define GW_INSIGHT_PAGE_H

#include "insight/analyses.h"

typedef struct gw_page_texts {
    const char *title;
    const char *const *advice; /* sentences, shown at the top */
    int advice_count;
} gw_page_texts;

/* False if `out` cannot be written (see errno) or there is no memory. */
bool gw_page_write(const gw_view *view, const gw_page_texts *texts, FILE *out);

#endif
