#!/usr/bin/env bash
# large_batch.sh BUILD_DIRECTORY [WORKERS] - the same epochs with a small batch and with one eight times as large, in
# several ways: the table of bench/results/large-batch.md. Each run takes about a minute on two free cores.
set -uo pipefail
gradwire=$(cd "${1:?usage: large_batch.sh BUILD_DIRECTORY [WORKERS]}" && pwd)/gradwire || exit 2
workers=${2:-2}
same=(-n "$workers" --model cnn --data fashion-mnist --epochs 6)
small=(--batch 64 --warmup 938) # one epoch of 60,000 examples
large=(--batch 512 --warmup 118)

field() { sed -n "s/.*\"event\": \"end\".*\"$1\": \([^,}]*\).*/\1/p"; }
row() { # NAME OPTIONS...
    local name=$1 end
    shift
    end=$("$gradwire" train --json "${same[@]}" "$@" 2>/dev/null) || { echo "$name: gradwire train failed" >&2; exit 1; }
    awk -v name="$name" -v accuracy="$(field test_accuracy <<<"$end")" -v updates="$(field step <<<"$end")" \
        -v seconds="$(field seconds <<<"$end")" -v options="$*" 'BEGIN {
            printf "%-34s %6.2f %%  %7d  %6.1f s  %s\n", name, 100 * accuracy, updates, seconds, options }'
}

printf '%-34s %8s  %7s  %8s  %s\n' WAY ACCURACY UPDATES TIME "OPTIONS: gradwire train ${same[*]}"
row 'small batch' "${small[@]}" --lr 0.01
row '8x, rate scaled, warm-up' "${large[@]}" --lr 0.01 --lr-batch 64
row '8x, LARS, warm-up' "${large[@]}" --lr 0.025 --lr-batch 64 --optimizer lars
row '8x, rate as it was' "${large[@]}" --lr 0.01
row '8x, rate scaled, no warm-up' --batch 512 --warmup 0 --lr 0.01 --lr-batch 64
