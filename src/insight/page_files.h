/* page_files.h - the files of page/, as the build embeds them (cmake/embed.cmake). */
#ifndef GW_INSIGHT_PAGE_FILES_H
#define GW_INSIGHT_PAGE_FILES_H

extern const char gw_page_html[], gw_page_css[], gw_page_js[];

#endif
