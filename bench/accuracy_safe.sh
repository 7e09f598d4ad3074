#!/usr/bin/env bash
# accuracy_safe.sh BUILD_DIRECTORY [SEEDS] [RESULTS] [MODEL...] - what accuracy=safe does to accuracy, and to the time of a
# step: each model of gradwire model learns with four workers, dense (strategy=fixed) and with what accuracy=safe chooses on
# four hosts of a lab at 100 Mbit/s (root): bench/results/accuracy.md. Runs that the file RESULTS already holds are not
# repeated, so it can be stopped and started again. BEFORE, if it is set, is put before each run: a lock, for example.
set -uo pipefail
gradwire=$(cd "${1:?usage: accuracy_safe.sh BUILD_DIRECTORY [SEEDS] [RESULTS] [MODEL...]}" && pwd)/gradwire || exit 2
seeds=${2:-3} results=${3:-accuracy_safe.csv}
lab=(-n 4 --lab hosts=4,rate=100mbit --no-prefix --deadline 120)
models=(mlp lenet cnn gpt resnet20)
[ $# -gt 3 ] && models=("${@:4}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
touch "$results"

# What a model learns; updates of a part of a run, which ends with a checkpoint so that others can use the machine.
declare -A learns=(
    [mlp]='--data fashion-mnist --epochs 3' [lenet]='--data fashion-mnist --epochs 3' [cnn]='--data fashion-mnist --epochs 2'
    [gpt]='--data bible --optimizer adamw --lr 0.002 --schedule linear --clip 1 --batch 32 --epochs 1 --warmup 50'
    [resnet20]='--data cifar10 --augment --lr 0.1 --weight-decay 0.0001 --epochs 3')
declare -A updates=([mlp]=1407 [lenet]=1407 [cnn]=938 [gpt]=400 [resnet20]=1173)
declare -A part=([mlp]=1407 [lenet]=1407 [cnn]=938 [gpt]=200 [resnet20]=400)

field() { sed -n "s/.*\"event\": \"$2\".*\"$1\": \([^,}]*\).*/\1/p" | tail -1; }

train() { # MODEL SEED LINE COMMAND...: a whole run, in parts; its last line of JSON in $scratch/end
    local model=$1 seed=$2 line=$3 step=0
    shift 3
    rm -f "$scratch/weights" "$scratch/weights.previous"
    while [ "$step" -lt "${updates[$model]}" ]; do
        step=$((step + part[$model]))
        # shellcheck disable=SC2086  # what a model learns is a list of words
        ${BEFORE:-} "$@" --model "$model" ${learns[$model]} --seed "$seed" --strategy "$line" --checkpoint "$scratch/weights" \
            --resume --steps "$step" --json --log-every 50 >"$scratch/run" 2>"$scratch/said" || {
            echo "$model, seed $seed, $line: gradwire train failed" >&2
            tail -n 3 "$scratch/said" >&2
            return 1
        }
        sed -n 's/.*strategy=auto, step [0-9]*: \(.*\), [0-9.]* m*u*s a step.*/\1/p' "$scratch/said" >>"$scratch/chosen"
    done
}

accuracy() { # MODEL SEED dense|safe
    : >"$scratch/chosen"
    if [ "$3" = dense ]; then train "$1" "$2" fixed "$gradwire" train -n 4
    else train "$1" "$2" accuracy=safe "$gradwire" run "${lab[@]}" -- "$gradwire" train; fi || return
    echo "$1;$2;$3;$(field test_accuracy end <"$scratch/run");$(sort "$scratch/chosen" | uniq -c | sort -rn | awk '{ $1 = ""; sub(/^ /, ""); printf "%s%s", sep, $0; sep = " | " }')"
}

for ((seed = 1; seed <= seeds; seed++)); do
    for model in "${models[@]}"; do
        for how in dense safe; do
            grep -q "^$model;$seed;$how;" "$results" || accuracy "$model" "$seed" "$how" >>"$results"
        done
    done
done

awk -F';' 'BEGIN { printf "%-10s %4s %9s %9s %7s  %s\n", "MODEL", "SEED", "DENSE", "SAFE", "POINTS", "CHOSEN" }
    $3 == "dense" { dense[$1, $2] = $4; next }
    { printf "%-10s %4d %7.2f %% %7.2f %% %+7.2f  %s\n", $1, $2, 100 * dense[$1, $2], 100 * $4, 100 * ($4 - dense[$1, $2]), $5
      sum[$1] += 100 * ($4 - dense[$1, $2]); n[$1]++ }
    END { for (m in n) printf "%-10s mean of %d: %+.2f points\n", m, n[m], sum[m] / n[m] }' "$results"
