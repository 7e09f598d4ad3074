# architecture.awk: draws the rows of architecture.txt; what is above uses what is below.
#
#     awk -f architecture.awk architecture.txt > architecture.svg
BEGIN { FS = "|"; WIDTH = 900; LEFT = 124; HIGH = 50; GAP = 12; split("#dbe7f5 #dff0df #fdebd3 #e9e2f3 #e9e2f3 #f7dede #eeeeee", fills, " ") }
/^#/ { next }
{ rows++; caption[rows] = $1; boxes[rows] = NF - 1; for (i = 2; i <= NF; i++) box[rows, i - 1] = $i }
function text(across, y, size, anchor, fill, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", across, y, size, anchor, fill, words
}
function draw(row, number, left, wide, y,    words, folders) {
    words = folders = box[row, number]
    sub(/: .*/, "", words); sub(/.*: /, "", folders)
    printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"6\" fill=\"%s\" stroke=\"#8894a8\"/>\n", left, y, wide, HIGH, fills[row]
    text(left + wide / 2, y + 21, 12, "middle", "#222", words)
    text(left + wide / 2, y + 39, 11, "middle", "#555", "<tspan font-family=\"monospace\">" folders "</tspan>")
}
# A box is as wide as its words need, the row as wide as the picture.
function weight(row, number,    words, folders) {
    words = folders = box[row, number]
    sub(/: .*/, "", words); sub(/.*: /, "", folders)
    return (length(words) > length(folders) ? length(words) : length(folders)) + 6
}
END {
    height = rows * (HIGH + GAP) + 34
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", WIDTH, height
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, height
    for (row = 1; row <= rows; row++) {
        y = 12 + (row - 1) * (HIGH + GAP) + (row == rows ? 12 : 0)
        text(LEFT - 14, y + HIGH / 2 + 4, 12, "end", "#333", "<tspan font-weight=\"bold\">" caption[row] "</tspan>")
        sum = 0
        for (i = 1; i <= boxes[row]; i++) sum += weight(row, i)
        left = LEFT; free = WIDTH - LEFT - 12 - GAP * (boxes[row] - 1)
        for (i = 1; i <= boxes[row]; i++) { wide = free * weight(row, i) / sum; draw(row, i, left, wide, y); left += wide + GAP }
    }
    printf "<path d=\"M%d %.1fH%d\" stroke=\"#8894a8\" stroke-dasharray=\"4 4\"/>\n", LEFT, 12 + (rows - 1) * (HIGH + GAP), WIDTH - 12
    print "</svg>"
}
