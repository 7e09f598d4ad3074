#!/usr/bin/env bash
# accuracy_async.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS] [OPTIMIZER...] - asp and ssp:staleness=3 beside bsp with each
# optimizer: MODEL (cnn unless it is set) on Fashion-MNIST, four workers. Fails if the accuracy of a run is more than a
# point below that of bsp with the same seed. Runs that the file RESULTS already holds are not repeated, so it can be
# stopped and started again.
set -uo pipefail
usage="usage: accuracy_async.sh BUILD_DIRECTORY [EPOCHS] [SEEDS] [RESULTS] [OPTIMIZER...]"
model=${MODEL:-cnn}
gradwire=$(cd "${1:?$usage}" && pwd)/gradwire || exit 2
epochs=${2:-5} seeds=${3:-3} results=${4:-accuracy_async.csv}
optimizers=("${@:5}")
[ ${#optimizers[@]} = 0 ] && optimizers=(sgd adam lars lamb)
lines=('arch=ps:servers=2 sync=bsp' 'arch=ps:servers=2 sync=ssp:staleness=3' 'arch=ps:servers=2 sync=asp')

train() { # LINE OPTIMIZER SEED
    local end
    end=$("$gradwire" train -n 4 --model "$model" --data fashion-mnist --epochs "$epochs" --seed "$3" --optimizer "$2" --json \
        --strategy "$1" 2>/dev/null) || { echo "$1, $2: gradwire train failed" >&2; return 1; }
    echo "$2;$1;$epochs;$3;$(sed -n 's/.*"event": "end".*"test_accuracy": \([^,}]*\).*/\1/p' <<<"$end")"
}

touch "$results"
for ((seed = 1; seed <= seeds; seed++)); do
    for optimizer in "${optimizers[@]}"; do
        for line in "${lines[@]}"; do
            grep -qF "$optimizer;$line;$epochs;$seed;" "$results" || train "$line" "$optimizer" "$seed" >>"$results"
        done
    done
done

awk -F';' -v epochs="$epochs" -v seeds="$seeds" -v wanted="${optimizers[*]}" 'BEGIN { split(wanted, names, " ")
        for (i in names) asked[names[i]] = 1
        printf "%-9s %-38s %4s %9s %10s\n", "OPTIMIZER", "STRATEGY", "SEED", "ACCURACY", "BESIDE BSP" }
    $3 == epochs && $4 <= seeds && $1 in asked && $5 != "" { if ($2 ~ /bsp/) bsp[$1 $4] = $5
        away = 100 * ($5 - bsp[$1 $4])
        if (away < -1) bad++
        printf "%-9s %-38s %4d %7.2f %% %+10.2f\n", $1, $2, $4, 100 * $5, away }
    END { if (bad) print bad " runs are more than a point below bsp"
        exit bad > 0 }' "$results"
