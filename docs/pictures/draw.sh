#!/usr/bin/env bash
# draw.sh BUILD_DIRECTORY [architecture|route|timeline|report]...: the pictures of docs, all or those named. timeline and
# report record a job in a lab first (root, a quiet machine, half a minute); report needs chromium. fashion.svg is drawn by
# bench/torch_fashion.sh, train-peers.svg by bench/train_peers.py --svg.
set -euo pipefail
build=$(cd "${1:?usage: draw.sh BUILD_DIRECTORY [architecture|route|timeline|report]...}" && pwd)
cd "$(dirname "$0")"
PATH=$build:$PATH
profiles=$PWD/../../bench/profiles
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

draw_architecture() { awk -f architecture.awk architecture.txt >architecture.svg; }

draw_route() {
    gradwire explain 'arch=hierarchical compress=int8:form=twopass' -n 4 --hosts 2 --model vgg11 |
        awk -v ranks=4 -v hosts=2 -f route.awk >route.svg
}

# VGG-16 with tensors divided by 32 at 1 Gbit/s: communication takes as long as compute.
draw_timeline() {
    for schedule in wfbp dear; do
        GRADWIRE_CAPTURE=$scratch/$schedule.gwt gradwire bench step --model "$profiles/vgg16.csv" --lab hosts=4,rate=1gbit \
            --shrink 32 --ratio 1 --steps 6 --schedule $schedule:fuse=800K
        gradwire trace export "$scratch/$schedule.gwt" -o "$scratch/$schedule.csv" >/dev/null
    done
    awk -f timeline.awk "$scratch/wfbp.csv" "$scratch/dear.csv" >timeline.svg
}

draw_report() {
    gradwire run --lab hosts=4,rate=300mbit --capture "$scratch/run.gwt" -- gradwire train --steps 60 --epochs 1 --quiet \
        --strategy 'arch=ring schedule=wfbp'
    (cd "$scratch" && gradwire trace report run.gwt -o run.html >/dev/null)
    chromium --headless --no-sandbox --disable-gpu --disable-background-networking --hide-scrollbars \
        --window-size=1280,1740 --screenshot="$PWD/report.png" "file://$scratch/run.html" >/dev/null 2>&1
}

[ $# -gt 0 ] || set -- architecture route timeline report
for picture in "$@"; do
    case $picture in
    architecture | route | timeline | report) "draw_$picture" ;;
    *) echo "draw.sh: unknown picture $picture (allowed: architecture, route, timeline, report)" >&2; exit 2 ;;
    esac
done
