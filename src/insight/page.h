/* page.h - a capture as one HTML page that needs nothing else: no network, no other file. */
#ifndef GW_INSIGHT_PAGE_H
#define GW_INSIGHT_PAGE_H

#include "insight/view.h"

/* title: what the page calls the recording. False where `out` cannot be written, which errno tells about, or memory ran
 * out. */
bool gw_page_write(const gw_view *view, const char *title, FILE *out);

#endif
