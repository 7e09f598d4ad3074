#!/usr/bin/env bash
# accuracy.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS] [LINE...] - the effect of each synchronization and each codec, or of
# these strategy lines, on accuracy with four workers: the cnn (or MODEL=lenet, MODEL=mlp) on Fashion-MNIST, with
# OPTIMIZER=sgd or adamw, or MODEL=gpt on 850 kB of the King James Bible with adamw: bench/results/accuracy.md. Hours for 15 epochs and 3 seeds; runs that the file RESULTS already holds are not repeated, so it can
# be stopped and started again. Accuracies are added to bench/results/accuracies.csv, too, which `gradwire predict --compare`
# goes by. BEFORE, if it is set, is put before each run: a lock, for example. compress=dgc: its warm-up is a fifth of the
# run, and 84 % of the steps have a density of 0.001.
set -uo pipefail
gradwire=$(cd "${1:?usage: accuracy.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS] [LINE...]}" && pwd)/gradwire || exit 2
epochs=${2:-15} seeds=${3:-3} results=${4:-accuracy.csv} model=${MODEL:-cnn}
accuracies=$(cd "$(dirname "$0")" && pwd)/results/accuracies.csv
machine="$(nproc)-core $(sed -n 's/(R)//g; s/ Processor//; s/^model name.*: //p' /proc/cpuinfo | head -1)"
lines=('sync=bsp' 'arch=ps:servers=2 sync=ssp:staleness=3' 'arch=ps:servers=2 sync=asp' 'sync=delayed' 'sync=periodic:every=8'
    'compress=onebit' 'compress=qsgd:bits=4' 'compress=terngrad' 'compress=topk:ratio=0.01' 'compress=dgc' 'compress=doublesqueeze')
[ $# -gt 4 ] && lines=("${@:5}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
data=fashion-mnist optimizer=${OPTIMIZER:-sgd} learns=(--data fashion-mnist)
[ "$optimizer" = sgd ] || learns+=(--optimizer "$optimizer" --lr 0.001)
if [ "$model" = gpt ]; then
    data=bible-850k optimizer=adamw
    head -c 850000 "$("$gradwire" data get bible | sed 's/^bible: //')" >"$scratch/$data" || exit 2
    learns=(--data "$scratch/$data" --optimizer adamw --lr 0.002 --schedule linear --clip 1 --batch 32 --warmup 20)
fi

field() { sed -n "s/.*\"event\": \"${2:-end}\".*\"$1\": \([^,}]*\).*/\1/p"; }

note() { # LINE SEED ACCURACY
    local run="$model;$data;4;$epochs;$2;$optimizer;$1;"
    grep -qF "$run" "$accuracies" || echo "$run$3;$(date +%F);$machine" >>"$accuracies"
}

train() { # LINE SEED. A run whose loss is not a number has learned nothing.
    local options=(-n 4 --model "$model" "${learns[@]}" --epochs "$epochs" --seed "$2" --json --strategy "fixed $1")
    local end late accuracy
    end=$(${BEFORE:-} "$gradwire" train "${options[@]}" 2>&1) || {
        grep -q 'is not a number' <<<"$end" && note "$1" "$2" 0
        echo "$1: gradwire train failed" >&2
        return 1
    }
    late=$(field bytes_sent step <<<"$end" | tail -2 | head -1)
    accuracy=$(field test_accuracy <<<"$end")
    note "$1" "$2" "$accuracy"
    echo "$model;$1;$epochs;$2;$accuracy;$(field bytes_sent <<<"$end");$(field bytes_dense <<<"$end");$late"
}

touch "$results"
for ((seed = 1; seed <= seeds; seed++)); do # a run that was stopped has seen every line
    for line in "${lines[@]}"; do
        grep -qF "$model;$line;$epochs;$seed;" "$results" || train "$line" "$seed" >>"$results"
    done
done

awk -F';' -v epochs="$epochs" -v model="$model" 'BEGIN {
        printf "%-36s %5s %9s %9s %9s %14s %12s %s\n", "STRATEGY", "SEEDS", "ACCURACY", "SPREAD", "TO BSP",
            "SENT AN EPOCH", "A LATE STEP", "OF DENSE" }
    $1 == model && $3 == epochs && $5 != "" { if (!($2 in n)) order[++count] = $2
        n[$2]++; sum[$2] += $5; sent[$2] += $6; dense[$2] += $7; late[$2] += $8 / 50 # updates between two reports
        if (n[$2] == 1 || $5 < low[$2]) low[$2] = $5
        if (n[$2] == 1 || $5 > high[$2]) high[$2] = $5 }
    END { for (i = 1; i <= count; i++) { s = order[i]; bsp = n["sync=bsp"] ? sum["sync=bsp"] / n["sync=bsp"] : sum[s] / n[s]
        printf "%-36s %5d %7.2f %% %7.2f %% %+9.2f %10.1f MiB %8.1f KiB  %s\n", s, n[s], 100 * sum[s] / n[s],
            100 * (high[s] - low[s]), 100 * (sum[s] / n[s] - bsp), sent[s] / n[s] / epochs / 1048576,
            late[s] / n[s] / 1024, sent[s] ? sprintf("1/%.1f", dense[s] / sent[s]) : "in shared memory" } }' \
    "$results"
