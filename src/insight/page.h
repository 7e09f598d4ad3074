/* page.h - writes a report as one self-contained HTML page: no network, no other file. */
#ifndef GW_INSIGHT_PAGE_H
#define GW_INSIGHT_PAGE_H

#include "insight/analyses.h"

/* title: of the page. False if `out` cannot be written (see errno) or there is no memory. */
bool gw_page_write(const gw_view *view, const char *title, FILE *out);

#endif
