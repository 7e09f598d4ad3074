/* pipeline_cut.c - cuts a range into columns and windows, so that little is in flight at once and the last message is
 * not tiny: chunks are as equal as whole vectors of 16 elements allow. */
#include "plan/build.h"

#define VECTOR_ELEMENTS 16

gw_pipeline_cut gw_pipeline_cut_make(size_t count, uint64_t ways, size_t chunk, int depth) {
    gw_pipeline_cut cut = {.count = count, .ways = ways};
    if (count == 0) return cut;
    size_t per_way = gw_ceil_div(count, (size_t)ways);
    cut.columns = gw_ceil_div(per_way, chunk);
    size_t even = gw_ceil_div(per_way, (size_t)cut.columns);
    cut.chunk = gw_min_size(chunk, gw_ceil_div(even, VECTOR_ELEMENTS) * VECTOR_ELEMENTS);
    cut.windows = gw_ceil_div((size_t)cut.columns, (size_t)depth);
    return cut;
}

gw_pipeline_window gw_pipeline_window_at(const gw_pipeline_cut *cut, uint64_t number) {
    uint64_t small = cut->columns / cut->windows, large = cut->columns % cut->windows;
    return (gw_pipeline_window){.number = number,
                                .columns = small + (number < large),
                                .before = number * small + (number < large ? number : large)};
}

gw_pipeline_window gw_pipeline_window_of_step(const gw_pipeline_cut *cut, uint64_t per_column, uint64_t index) {
    uint64_t small = cut->columns / cut->windows, large = cut->columns % cut->windows;
    uint64_t large_steps = large * (small + 1) * per_column;
    uint64_t number =
        index < large_steps ? index / ((small + 1) * per_column) : large + (index - large_steps) / (small * per_column);
    gw_pipeline_window window = gw_pipeline_window_at(cut, number);
    window.within = index - window.before * per_column;
    return window;
}

gw_range gw_pipeline_window_range(const gw_pipeline_cut *cut, const gw_pipeline_window *window) {
    size_t column = (size_t)cut->ways * cut->chunk, from = (size_t)window->before * column;
    return (gw_range){from, from + gw_min_size(cut->count - from, (size_t)window->columns * column)};
}

gw_range gw_range_part(gw_range range, uint64_t parts, uint64_t index) {
    size_t offset, length;
    gw_part(range.to - range.from, (int)parts, (int)index, &offset, &length);
    return (gw_range){range.from + offset, range.from + offset + length};
}
