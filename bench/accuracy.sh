#!/usr/bin/env bash
# accuracy.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS] - the effect of each synchronization and each codec on the accuracy of the
# cnn on Fashion-MNIST with four workers: the table of docs/synchronization.md. Hours for 15 epochs and 3 seeds; runs that the
# file RESULTS already holds are not repeated, so it can be stopped and started again.
set -uo pipefail
gradwire=$(cd "${1:?usage: accuracy.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS]}" && pwd)/gradwire || exit 2
epochs=${2:-15} seeds=${3:-3} results=${4:-accuracy.csv}
dgc="compress=dgc:ratio=0.001,warmup=$((469 * epochs / 3))" # denser in the first third of the updates
lines=('sync=bsp' 'arch=ps:servers=2 sync=ssp:staleness=3' 'arch=ps:servers=2 sync=asp' 'sync=delayed' 'sync=periodic:every=8'
    'compress=onebit' 'compress=qsgd:bits=4' 'compress=terngrad' 'compress=topk:ratio=0.01' "$dgc" 'compress=doublesqueeze')

field() { sed -n "s/.*\"event\": \"end\".*\"$1\": \([^,}]*\).*/\1/p"; }

train() { # LINE SEED
    local options=(-n 4 --model cnn --data fashion-mnist --epochs "$epochs" --seed "$2" --json --strategy "$1") end
    # dgc keeps a momentum of its own, which takes the optimiser's place.
    [[ $1 == *dgc* ]] && options+=(--momentum 0)
    end=$("$gradwire" train "${options[@]}" 2>/dev/null) || { echo "$1: gradwire train failed" >&2; return 1; }
    echo "$1;$epochs;$2;$(field test_accuracy <<<"$end");$(field bytes_sent <<<"$end");$(field bytes_dense <<<"$end")"
}

touch "$results"
for ((seed = 1; seed <= seeds; seed++)); do # a run that was stopped has seen every line
    for line in "${lines[@]}"; do
        grep -qF "$line;$epochs;$seed;" "$results" || train "$line" "$seed" >>"$results"
    done
done

awk -F';' -v epochs="$epochs" 'BEGIN { printf "%-36s %5s %9s %9s %14s %s\n", "STRATEGY", "SEEDS", "ACCURACY", "SPREAD",
        "SENT AN EPOCH", "OF DENSE" }
    $2 == epochs && $4 != "" { if (!($1 in n)) order[++count] = $1
        n[$1]++; sum[$1] += $4; sent[$1] += $5; dense[$1] += $6
        if (n[$1] == 1 || $4 < low[$1]) low[$1] = $4
        if (n[$1] == 1 || $4 > high[$1]) high[$1] = $4 }
    END { for (i = 1; i <= count; i++) { s = order[i]
        printf "%-36s %5d %7.2f %% %7.2f %% %10.1f MiB  %s\n", s, n[s], 100 * sum[s] / n[s], 100 * (high[s] - low[s]),
            sent[s] / n[s] / epochs / 1048576, sent[s] ? sprintf("1/%.1f", dense[s] / sent[s]) : "in shared memory" } }' \
    "$results"
