#!/usr/bin/env bash
# overlap.sh BUILD [replay|routes|tune|figure|engine]: the measurements of bench/results/schedules.md, all or one part. Labs need root;
# about nine minutes on a quiet machine with two cores.
set -uo pipefail
build=$(cd "${1:?usage: bench/overlap.sh BUILD [replay|routes|tune|figure|engine]}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
PATH=$build:$PATH
only=${2:-}
rate=1gbit

# Tensors are so much smaller that a step takes a fraction of a second; sizes that fuse are divided alike.
replay() { # PROFILE SHRINK RATIO SCHEDULES [OPTIONS]; at $rate
    echo "## $1, tensors divided by $2, communication $3 of compute"
    gradwire bench step --model "bench/profiles/$1.csv" -n 4 --lab rate="$rate" --shrink "$2" --ratio "$3" --steps 4 \
        --schedule "$4" "${@:5}"
    echo
}

part_replay() {
    local order="p3:slice=256K,bytescheduler"
    replay resnet50 4 1.3333 "wfbp:fuse=2500K,dear:fuse=2500K,$order"
    replay vgg16 32 1 "fifo:fuse=800K,wfbp:fuse=800K,dear:fuse=800K,$order,mgwfbp,tictac"
    for ratio in 0.5 1 2; do
        replay resnet50 4 $ratio "wfbp:fuse=2500K,dear:fuse=2500K,$order"
        [ $ratio = 1 ] || replay vgg16 32 $ratio "wfbp:fuse=800K,dear:fuse=800K,$order"
        replay gnmt 48 $ratio "wfbp:fuse=512K,dear:fuse=512K,$order"
    done
}

part_routes() { # two hosts of two ranks; slices of coded tensors; one host
    local two=(--lab "hosts=2,rate=$rate")
    for arch in ring hierarchical; do
        for compress in none int8; do
            replay vgg16 32 1 "wfbp:fuse=800K,dear:fuse=800K,p3:slice=256K" "${two[@]}" --arch $arch --compress $compress
        done
    done
    replay vgg16 32 4 "wfbp:fuse=800K,dear:fuse=800K,p3:slice=256K" --compress int8
    echo "## resnet50 on one host, a tenth of the recorded compute"
    gradwire bench step --model bench/profiles/resnet50.csv -n 2 --scale 0.1 --steps 16 --schedule wfbp,dear
    echo
}

part_tune() { # beside a grid of twelve
    local grid="" slice credit
    for slice in 64K 192K 512K 1536K; do
        for credit in 256K 1M 4M; do grid+=,bytescheduler:slice=$slice,credit=$credit; done
    done
    replay vgg16 48 1 "bytescheduler$grid" --tune on
    replay gnmt 64 1 "bytescheduler$grid" --tune on
    rate=250mbit replay resnet50 16 1 "bytescheduler$grid" --tune on # many small tensors: hosts share two cores
}

part_figure() {
    echo "## the survey's figure 6: 5 units synchronously, 3 under OD-SGD, a unit is a third of compute"
    gradwire bench step --model bench/profiles/figure6.csv --lab hosts=2,rate=100mbit --shrink 2 --ratio 1 --steps 8 \
        --schedule wfbp:fuse=1,delayed:fuse=1
    echo
}

part_engine() {
    echo "## the step engine itself, over shared memory; then with 100 ms of compute"
    gradwire run -n 2 --no-prefix -- "$build/bench/bench_reducer" 300
    gradwire run -n 2 --no-prefix -- "$build/bench/bench_reducer" 100 100
}

for part in replay routes tune figure engine; do
    [ -n "$only" ] && [ "$only" != $part ] || part_$part
done
