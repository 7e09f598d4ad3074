#!/usr/bin/env bash
# model_tables.sh BUILD_DIRECTORY - predictions of others' measurements: HKBU's rows and DeAR's claim, two tables of
# docs/model.md. A minute.
#
# HKBU's cluster (8 hosts of 4 GPUs) runs collectives one after the other (at_once 1) around one ring; alpha and beta are
# fitted for each row to "no overlap" and "WFBP", and MG-WFBP is predicted. DeAR is asked with those links on 64 GPUs.
set -euo pipefail
gradwire=$(cd "${1:?usage: model_tables.sh BUILD_DIRECTORY}" && pwd)/gradwire || exit 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

ring='arch=ring transport=tcp schedule='
# profile, network, samples/s without overlap, with WFBP, with MG-WFBP
rows=('resnet50;10 GbE;4921;5113;6884' 'bert-base;10 GbE;1927;2013;1926' 'bert-base;InfiniBand;4184;4099;4940')
models=(resnet50 densenet201 inception4 bert-base bert-large)
dear=(dear:fuse=2M dear:fuse=5M dear:fuse=10M dear:fuse=25M dear:fuse=50M)
bytescheduler=(bytescheduler:slice=1M,credit=4M bytescheduler:slice=4M,credit=16M bytescheduler:slice=16M,credit=64M)

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
    awk -v profile="$2" -v plain="$3" -v wfbp="$4" -v ring="$ring" 'BEGIN {
        print "profile,ranks,per_host,step_ms,strategy"
        printf "%s,32,4,%.3f,%sfifo:fuse=1G\n", profile, 32 * 64e3 / plain, ring
        printf "%s,32,4,%.3f,%swfbp:fuse=1\n", profile, 32 * 64e3 / wfbp, ring }' >"$scratch/steps.csv"
    "$gradwire" fit --from "$scratch/gpu.model" --steps "$scratch/steps.csv" -o "$1" >/dev/null
}

figure() { awk -v word="$2" '$1 == word { print $2 }' "$1"; } # MODEL WORD

hkbu() {
    local row profile network plain wfbp merged number=0 model
    echo '| model | network | alpha | beta as rate | no overlap | WFBP | MG-WFBP measured | predicted | error |'
    echo '|---|---|---|---|---|---|---|---|---|'
    for row in "${rows[@]}"; do
        IFS=';' read -r profile network plain wfbp merged <<<"$row"
        model=$scratch/$((number++)).model
        fit "$model" "$profile" "$plain" "$wfbp"
        awk -v row="$profile | $network" -v alpha="$(figure "$model" latency)" -v rate="$(figure "$model" rate)" \
            -v plain="$(predict "$model" "$profile" 32 fifo:fuse=1G)" -v merged="$merged" \
            -v wfbp="$(predict "$model" "$profile" 32 wfbp:fuse=1)" \
            -v got="$(predict "$model" "$profile" 32 mgwfbp)" 'BEGIN {
                printf "| %s | %.0f us | %.1f Gbit/s | %.0f | %.0f | %d | %.0f | %+.1f %% |\n", row, alpha * 1e6,
                    rate * 8e-9, plain, wfbp, merged, got, 100 * (got / merged - 1) }'
    done
}

gains() { # TITLE AT_ONCE
    local network profile model=$scratch/dear.model
    printf '\n%s:\n\n| network | model | dear | over wfbp | over mgwfbp | over fusion | over bytescheduler |\n' "$1"
    echo '|---|---|---|---|---|---|---|'
    for network in '10 GbE;0' 'InfiniBand;2'; do
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
gains 'One collective at a time, as the libraries that the paper compares' 1
gains 'As gradwire starts them, several under way at once' 0
