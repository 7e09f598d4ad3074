#!/usr/bin/env bash
# model_tables.sh BUILD_DIRECTORY - predictions of others' measurements: HKBU's rows and DeAR's claim, two tables of
# bench/results/prediction.md. Half an hour on two cores.
#
# HKBU's cluster (hosts of 4 GPUs) runs collectives one after the other (at_once 1) around one ring. The steps of a
# network are dealt out like the squares of a chessboard: a fit to the black ones predicts the white ones, and the other
# way round. BytePS' rows are left to it: its servers have hosts of their own, behind a reduction in each host.
# DeAR is asked on 64 GPUs with the links that two of HKBU's columns need.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gradwire=$(cd "${1:?usage: model_tables.sh BUILD_DIRECTORY}" && pwd)/gradwire || exit 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

ring='arch=ring:chunk=64M transport=tcp schedule='
networks=(10GbE 100GbE 100GbIB)
learned=latency,rate,memory,compute,interference,update,decide
models=(resnet50 densenet201 inception4 bert-base bert-large)
dear=(dear:fuse=2M dear:fuse=5M dear:fuse=10M dear:fuse=25M dear:fuse=50M)
bytescheduler=(bytescheduler:slice=1M,credit=4M bytescheduler:slice=4M,credit=16M bytescheduler:slice=16M,credit=64M)

# HKBU's table.

# Steps of one colour of the board. ByteScheduler fuses nothing and cuts tensors above 16 MB, in one queue: tictac, which
# sends whole tensors by priority, is the schedule most like it.
steps() { # NETWORK COLOUR
    awk -F, -v network="$1" -v colour="$2" -v ring="$ring" '
        BEGIN {
            as["BSP-A2A"] = "fifo:fuse=1G"; as["WFBP-A2A"] = "wfbp:fuse=1"; as["MG-WFBP"] = "mgwfbp"
            as["ByteScheduler-A2A"] = "tictac"
            print "profile,ranks,per_host,step_ms,strategy" }
        $1 == network && ($5 in as) {
            row++
            if ($2 != last) row++ # the next model begins with the other colour
            last = $2
            for (i = 0; i < 4; i++) if ((row + i) % 2 == colour)
                printf "%s batch=%d throughput=%s,%d,4,%.3f,%s%s\n", $2, $3, $4, 4 * 2 ^ i, 4 * 2 ^ i * $3 / $(6 + i) * 1e3,
                    ring, as[$5] }' "$here/published/hkbu.csv"
}

nominal() { # NETWORK: what is known before a fit
    local rate=5e9 # without GPUDirect
    [ "$1" = 10GbE ] && rate=1.25e9
    printf 'gradwire-machines 1\nlatency 1e-05\nrate %s\nmemory 2e10\nmemory_latency 5e-06\nreduce 3e11\n' "$rate"
    printf 'interference 1e10\nupdate 2e10\ndecide 1e-4\nat_once 1\nend\n'
}

# Fits to one colour and predicts the other: lines "network;colour;profile;ranks;schedule;measured;predicted".
judge() { # NETWORK COLOUR
    local at=$scratch/$1-$2
    steps "$1" "$2" >"$at.csv"
    steps "$1" $((1 - $2)) >"$at.other.csv"
    nominal "$1" >"$at.start"
    "$gradwire" fit --from "$at.start" --steps "$at.csv" --move "$learned" -o "$at.model" >/dev/null
    "$gradwire" fit --from "$at.model" --steps "$at.other.csv" --move none -o "$at.none" | awk -v of="$1;$2" '
        $3 ~ /^[+-]/ {
            for (i = 7; i <= NF; i++) if (sub(/^schedule=/, "", $i)) print of ";" $6 ";" $5 ";" $i ";" $1 ";" $2 }' >"$at.judged"
}

figure() { awk -v word="$2" '$1 == word { print $2 }' "$1"; } # MODEL WORD

found() {
    local network colour model
    echo '| network | fitted to | latency | rate | memory | compute | interference | update | decide |'
    echo '|---|---|---|---|---|---|---|---|---|'
    for network in "${networks[@]}"; do
        for colour in 0 1; do
            model=$scratch/$network-$colour.model
            awk -v row="$network | $( ((colour)) && echo black || echo white)" -v latency="$(figure "$model" latency)" \
                -v rate="$(figure "$model" rate)" -v memory="$(figure "$model" memory)" \
                -v compute="$(figure "$model" compute)" -v interference="$(figure "$model" interference)" \
                -v update="$(figure "$model" update)" -v decide="$(figure "$model" decide)" 'BEGIN {
                    printf "| %s | %.0f us | %.1f Gbit/s | %.1f GB/s | %.3f | %.1f GB/s | %.1f GB/s | %.0f us |\n", row,
                        latency * 1e6, rate * 8e-9, memory * 1e-9, compute, interference * 1e-9, update * 1e-9, decide * 1e6 }'
        done
    done
}

chessboard() {
    cat "$scratch"/*.judged | awk -F';' -v networks="${networks[*]}" '
        { cell[$1, $3, $5, $4] = sprintf("%.0f, %+.1f %%", $6, 100 * ($7 / $6 - 1))
          all++
          if ($7 <= 1.1 * $6 && $7 >= 0.9 * $6) good++ }
        END {
          split(networks, network, " "); split("resnet50 bert-base bert-large", profile, " ")
          split("fifo:fuse=1G wfbp:fuse=1 mgwfbp tictac", schedule, " ")
          split("no overlap;WFBP;MG-WFBP;ByteScheduler", name, ";"); split("4 8 16 32", ranks, " ")
          print "| network | model | method | 4 GPUs | 8 GPUs | 16 GPUs | 32 GPUs |\n|---|---|---|---|---|---|---|"
          for (n = 1; n <= 3; n++) for (p = 1; p <= 3; p++) for (s = 1; s <= 4; s++) {
              row = "| " network[n] " | " profile[p] " | " name[s] " |"
              for (r = 1; r <= 4; r++) row = row " " cell[network[n], profile[p], schedule[s], ranks[r]] " |"
              print row }
          printf "\n%d of %d steps within 10 %%: %.0f %%\n", good, all, 100 * good / all }'
}

hkbu() {
    local network
    for network in "${networks[@]}"; do
        judge "$network" 0 &
        judge "$network" 1
        wait $!
    done
    found
    echo
    chessboard
}

# DeAR's claim.

predict() { # MODEL PROFILE RANKS SCHEDULE
    "$gradwire" predict --model "$2" --ranks "$3" --per-host 4 --machines "$1" --strategy "$ring$4" --json |
        sed 's/.*"samples_per_s": \([0-9.e+]*\).*/\1/'
}

best() { # MODEL PROFILE SCHEDULE...
    local model=$1 profile=$2 schedule
    shift 2
    for schedule; do predict "$model" "$profile" 64 "$schedule"; done | sort -g | tail -n 1
}

gpu() { printf 'gradwire-machines 1\nmemory 4e10\nmemory_latency 5e-06\nreduce 3e11\nat_once 1\nend\n'; }

fit() { # MODEL PROFILE NO_OVERLAP WFBP
    gpu >"$scratch/gpu.model"
    awk -v profile="$2" -v plain="$3" -v wfbp="$4" -v ring='arch=ring transport=tcp schedule=' 'BEGIN {
        print "profile,ranks,per_host,step_ms,strategy"
        printf "%s,32,4,%.3f,%sfifo:fuse=1G\n", profile, 32 * 64e3 / plain, ring
        printf "%s,32,4,%.3f,%swfbp:fuse=1\n", profile, 32 * 64e3 / wfbp, ring }' >"$scratch/steps.csv"
    "$gradwire" fit --from "$scratch/gpu.model" --steps "$scratch/steps.csv" -o "$1" >/dev/null
}

gains() { # TITLE AT_ONCE
    local network profile model=$scratch/dear.model
    printf '\n%s:\n\n| network | model | dear | over wfbp | over mgwfbp | over fusion | over bytescheduler |\n' "$1"
    echo '|---|---|---|---|---|---|---|'
    for network in '10 GbE;ethernet' 'InfiniBand;infiniband'; do
        sed "s/^at_once .*/at_once $2/" "$scratch/${network#*;}.model" >"$model"
        for profile in "${models[@]}"; do
            awk -v row="${network%;*} | $profile" -v dear="$(best "$model" "$profile" "${dear[@]}")" \
                -v wfbp="$(best "$model" "$profile" wfbp:fuse=1)" -v mgwfbp="$(best "$model" "$profile" mgwfbp)" \
                -v fusion="$(best "$model" "$profile" wfbp:fuse=64M)" \
                -v bytescheduler="$(best "$model" "$profile" "${bytescheduler[@]}")" '
                function gain(other,   more) {
                    more = 100 * (dear / other - 1); return more > -0.5 && more < 0.5 ? "0 %" : sprintf("%+.0f %%", more) }
                BEGIN { printf "| %s | %.0f | %s | %s | %s | %s |\n", row, dear, gain(wfbp), gain(mgwfbp), gain(fusion),
                    gain(bytescheduler) }'
        done
    done
}

hkbu
fit "$scratch/ethernet.model" resnet50 4921 5113
fit "$scratch/infiniband.model" bert-base 4184 4099
gains 'One collective at a time, as the libraries that the paper compares' 1
gains 'As gradwire starts them, several under way at once' 0
