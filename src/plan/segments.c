/* segments.c - cutting a range into columns and segments, so that what is in flight stays small and the last message is
 * not a crumb: pieces are as equal as whole vectors of 16 elements allow. */
#include "plan/build.h"

#define VECTOR_ELEMENTS 16

gw_segments gw_segments_cut(size_t count, uint64_t ways, size_t chunk, int depth) {
    gw_segments cut = {.count = count, .ways = ways};
    if (count == 0) return cut;
    size_t per_way = gw_ceil_div(count, (size_t)ways);
    cut.columns = gw_ceil_div(per_way, chunk);
    size_t piece = gw_ceil_div(per_way, (size_t)cut.columns);
    cut.piece = gw_min_size(chunk, gw_ceil_div(piece, VECTOR_ELEMENTS) * VECTOR_ELEMENTS);
    cut.segments = gw_ceil_div((size_t)cut.columns, (size_t)depth);
    return cut;
}

gw_segment gw_segment_number(const gw_segments *cut, uint64_t number) {
    uint64_t small = cut->columns / cut->segments, large = cut->columns % cut->segments;
    return (gw_segment){.number = number,
                        .columns = small + (number < large),
                        .before = number * small + (number < large ? number : large)};
}

gw_segment gw_segment_of_step(const gw_segments *cut, uint64_t per_column, uint64_t index) {
    uint64_t small = cut->columns / cut->segments, large = cut->columns % cut->segments;
    uint64_t large_steps = large * (small + 1) * per_column;
    uint64_t number =
        index < large_steps ? index / ((small + 1) * per_column) : large + (index - large_steps) / (small * per_column);
    gw_segment segment = gw_segment_number(cut, number);
    segment.within = index - segment.before * per_column;
    return segment;
}

gw_range gw_segment_range(const gw_segments *cut, const gw_segment *segment) {
    size_t column = (size_t)cut->ways * cut->piece, from = (size_t)segment->before * column;
    return (gw_range){from, from + gw_min_size(cut->count - from, (size_t)segment->columns * column)};
}

gw_range gw_piece_of(gw_range range, uint64_t pieces, uint64_t index) {
    size_t offset, length;
    gw_part(range.to - range.from, (int)pieces, (int)index, &offset, &length);
    return (gw_range){range.from + offset, range.from + offset + length};
}
