# route.awk: draws the route of a bucket from `gradwire explain LINE -n RANKS --hosts HOSTS`: a column for each hop with
# what rank 0 sends at most, a row for each rank; lines join the ranks that a hop brings together.
#
#     gradwire explain 'arch=hierarchical compress=int8' -n 4 --hosts 2 --model vgg11 |
#         awk -v ranks=4 -v hosts=2 -f route.awk > route.svg
/^route of/ { inside = 1; model = $0; next }
inside && /^  / {
    hop = $0; sub(/^ +/, "", hop); bytes = hop
    sub(/  +.*/, "", hop); sub(/^.*  +/, "", bytes)
    hops++; name[hops] = hop; sends[hops] = bytes; next
}
{ inside = 0 }
/^arch=/ { line = $1 " " $3 }
/of [0-9.]+ [KMG]iB, in/ { about = $0; sub(/:.*of /, ", ", about); sub(/, in.*/, "", about) }
function text(across, y, size, anchor, fill, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", across, y, size, anchor, fill, words
}
function row(rank) { return 96 + 58 * rank + 26 * int(rank / per_host) }
function column(hop) { return 190 + (hop - 0.5) * step }
function joined(hop, a, b) { # do these two ranks exchange in this hop?
    if (name[hop] ~ /in each host/) return int(a / per_host) == int(b / per_host)
    if (name[hop] ~ /between hosts/) return a % per_host == b % per_host
    return 1
}
function link(across, from, to, colour,    bend) {
    bend = across + 26 + 10 * (to - from)
    printf "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\"/>\n", \
        across + 9, row(from), bend, row(from), bend, row(to), across + 9, row(to), colour
}
END {
    if (!hops) { print "route.awk: no route in the input" > "/dev/stderr"; exit 1 }
    per_host = ranks / hosts; step = 220
    width = 190 + hops * step + 10; height = row(ranks - 1) + 84
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height
    text(16, 24, 14, "start", "#333", "<tspan font-weight=\"bold\">" line "</tspan>")
    text(width - 16, 24, 12, "end", "#333", about " of gradients")
    for (host = 0; host < hosts; host++) {
        top = row(host * per_host) - 34
        printf "<rect x=\"16\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"8\" fill=\"#f4f6fa\" stroke=\"#c8d0dc\"/>\n", top, width - 32, 58 * per_host + 8
        text(28, top + 20, 12, "start", "#333", "host " host)
    }
    for (rank = 0; rank < ranks; rank++) {
        text(108, row(rank) + 4, 12, "end", "#333", "rank " rank)
        printf "<path d=\"M120 %.1fH%.1f\" stroke=\"#b8c0cc\"/>\n", row(rank), width - 40
    }
    for (hop = 1; hop <= hops; hop++) {
        colour = name[hop] ~ /coded/ ? "#e4572e" : "#4c78a8"
        for (a = 0; a < ranks; a++)
            for (b = a + 1; b < ranks; b++) if (joined(hop, a, b)) link(column(hop), a, b, colour)
        for (rank = 0; rank < ranks; rank++)
            printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" fill=\"%s\"/>\n", column(hop), row(rank), colour
        text(column(hop), 46, 12, "middle", colour, "<tspan font-weight=\"bold\">" name[hop] "</tspan>")
        text(column(hop), height - 36, 12, "middle", "#333", "rank 0 sends " sends[hop])
    }
    text(16, height - 12, 11, "start", "#666", "blue: values as they are, in shared memory where ranks share it; red: payloads of the codec, over the network")
    print "</svg>"
}
