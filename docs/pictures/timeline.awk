# timeline.awk: draws two captures of `gradwire bench step` above each other, from the CSV of `gradwire trace export`.
#
#     awk -f timeline.awk wfbp.csv dear.csv > timeline.svg
#
# One rank, from the begin of its step FIRST for SPAN ms: what it computes, and one row for each bucket, the one that
# backward completes first at the top. A file's title is the schedule in its steps' strategy line.
BEGIN {
    FS = ","; RANK = 0; FIRST = 4; SPAN = 520
    WIDTH = 900; LEFT = 96; ROW = 11; PLOT = WIDTH - LEFT - 16
    split("forward backward waited allreduce reduce_scatter allgather", kinds, " ")
    split("#4c78a8 #f58518 #d9d9d9 #7a5195 #54a24b #2a9d8f", colours, " ")
    for (i in kinds) colour[kinds[i]] = colours[i]
}
FNR == 1 { file++; begin[file] = -1 }
{ gsub(/, /, ";"); gsub(/"/, "") }
$1 != RANK { next }
$2 == "step" && $6 == FIRST {
    begin[file] = $4
    for (i = split($3, words, " "); i > 0; i--) if (words[i] ~ /^schedule=/) { sub(/^schedule=/, "", words[i]); title[file] = words[i] }
}
$2 == "step" && $4 >= begin[file] && begin[file] >= 0 { steps[file]++; ends[file, steps[file]] = $5 }
$2 == "forward" || $2 == "backward" || ($2 == "waited" && $9 == 0) { keep(file, "compute", $2, $4, $5) }
$2 == "operation" && $10 != "" {
    sub(/;.*/, "", $3); sub(/:.*/, "", $10)
    keep(file, $10, $3, $4, $5)
    if (!((file, $10) in known)) { known[file, $10] = 1; bucket[file, ++buckets[file]] = $10 }
}
function keep(f, row, kind, from, to) { n++; at[n] = f; rows[n] = row; what[n] = kind; since[n] = from; until[n] = to }
function place_of(f, ns) { return LEFT + PLOT * (ns - begin[f]) / 1e6 / SPAN }
function text(across, y, size, anchor, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"#333\">%s</text>\n", across, y, size, anchor, words
}
function bar(f, from, to, y, height, fill,    left, right) {
    left = place_of(f, from); right = place_of(f, to)
    if (right <= LEFT || left >= LEFT + PLOT) return
    if (left < LEFT) left = LEFT
    if (right > LEFT + PLOT) right = LEFT + PLOT
    if (right - left < 0.4) right = left + 0.4
    printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", left, y, right - left, height, fill
}
# Layers are named by their numbers: the bucket with the highest is the first that backward completes.
function sort_buckets(f,    i, j, kept) {
    for (i = 2; i <= buckets[f]; i++)
        for (j = i; j > 1 && bucket[f, j] + 0 > bucket[f, j - 1] + 0; j--) {
            kept = bucket[f, j]; bucket[f, j] = bucket[f, j - 1]; bucket[f, j - 1] = kept
        }
}
function panel(f, top,    i, y, place) {
    sort_buckets(f)
    text(LEFT, top + 14, 14, "start", "<tspan font-weight=\"bold\">schedule=" title[f] "</tspan>")
    place["compute"] = top + 22
    text(LEFT - 8, top + 33, 11, "end", "compute")
    for (i = 1; i <= buckets[f]; i++) {
        place[bucket[f, i]] = y = top + 42 + i * ROW
        printf "<path d=\"M%d %.1fh%d\" stroke=\"#eee\"/>\n", LEFT, y + ROW - 2, PLOT
    }
    text(LEFT - 8, top + 42 + 2 * ROW, 11, "end", "last layers")
    text(LEFT - 8, top + 40 + (buckets[f] + 1) * ROW, 11, "end", "first layers")
    for (i = 1; i <= n; i++) # what was waited for stands below what was computed meanwhile
        if (at[i] == f && what[i] == "waited") bar(f, since[i], until[i], place["compute"], 14, colour["waited"])
    for (i = 1; i <= n; i++)
        if (at[i] == f && what[i] != "waited")
            bar(f, since[i], until[i], place[rows[i]], rows[i] == "compute" ? 14 : ROW - 3, colour[what[i]])
    y = top + 46 + (buckets[f] + 1) * ROW
    for (i = 1; i <= steps[f]; i++)
        if (place_of(f, ends[f, i]) < LEFT + PLOT) {
            printf "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#333\" stroke-dasharray=\"3 3\"/>\n", place_of(f, ends[f, i]), top + 18, y
            text(place_of(f, ends[f, i]) - 4, top + 14, 11, "end", sprintf("a step: %.0f ms", (ends[f, i] - (i > 1 ? ends[f, i - 1] : begin[f])) / 1e6))
        }
    return y + 18
}
function legend(y,    i, place, names) {
    split("forward|backward|wait|all-reduce|reduce-scatter|all-gather", names, "|")
    for (i = 1; i <= 6; i++) {
        place = LEFT + (i - 1) * 122
        printf "<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"10\" fill=\"%s\"/>\n", place, y, colours[i]
        text(place + 17, y + 9, 11, "start", names[i])
    }
}
END {
    height = 0
    for (f = 1; f <= file; f++) {
        if (begin[f] < 0) { print "timeline.awk: file " f " has no step " FIRST " of rank " RANK > "/dev/stderr"; exit 1 }
        height += 64 + (buckets[f] + 1) * ROW
    }
    height += 58
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", WIDTH, height
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, height
    y = 6
    for (f = 1; f <= file; f++) y = panel(f, y)
    for (i = 0; i <= SPAN; i += 100) text(LEFT + PLOT * i / SPAN, y + 8, 11, "middle", i " ms")
    legend(y + 24)
    print "</svg>"
}
