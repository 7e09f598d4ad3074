#!/usr/bin/env bash
# results.sh BUILD_DIRECTORY [NAME]... - repeats the measurements of bench/results that take less than ten minutes, or those
# named. Each leaves BUILD_DIRECTORY/results/NAME.txt: date, machine, command and the raw figures. schedules needs root.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: results.sh BUILD_DIRECTORY [NAME]...}
[ -x "$build/gradwire" ] || { echo "results.sh: there is no $build/gradwire: run make" >&2; exit 2; }
shift
PATH=$(cd "$build" && pwd):$PATH

declare -A commands=(
    [codecs]="gradwire bench codec fp16 bf16 int8 qsgd:bits=1 qsgd:bits=2 qsgd:bits=4 qsgd:bits=8 qsgd:bits=2,elias
        terngrad terngrad:shared onebit topk:ratio=0.01 threshold:ratio=0.01 powersgd:rank=4
        dgc:ratio=0.001,momentum=0.9 --bytes 64M --repeats 9"
    [collectives]="gradwire bench allreduce -n 2 -b 4K -e 16M -f 16 --transport shm
        $([ -x "$build/peers/peer_openmpi" ] && echo --against openmpi)"
    [guards]="$build/bench/bench_tcp guards 7"
    [straggler]="$build/bench/bench_straggler 3"
    [recording]="gradwire run -n 2 --no-prefix -- $build/bench/bench_train_trace 60"
    [binding]="PYTHON bench/python_overhead.py"
    [schedules]="bench/overlap.sh $build"
    [large-batch]="bench/large_batch.sh $build"
)
order=(codecs collectives guards straggler recording binding schedules large-batch)

machine() { # what the figures were measured on
    echo "$(nproc) cores, $(lscpu | sed -n 's/^Model name: *//p'), Linux $(uname -r), $(. /etc/os-release && echo "$PRETTY_NAME")"
}

repeat() { # NAME: a file with date, machine, command and figures
    local file=$build/results/$1.txt command code python
    command=$(tr -s ' \n' ' ' <<<"${commands[$1]}")
    if [[ $command == PYTHON* ]]; then # one that has torch
        python=$(scripts/torch) || { echo "results.sh: $1 is left out: $python" >&2; failed=1; return; }
        command=$python${command#PYTHON}
    fi
    printf 'date     %s\nmachine  %s\ncommand  %s\n\n' "$(date +%F)" "$(machine)" "$command" >"$file"
    echo "$1: $command"
    # shellcheck disable=SC2086  # the words of a command
    $command 2>&1 | tee -a "$file"
    code=$?
    [ "$code" = 0 ] || { echo "results.sh: $1 ended with exit code $code" | tee -a "$file" >&2; failed=1; }
}

failed=0
mkdir -p "$build/results"
[ $# -gt 0 ] || set -- "${order[@]}"
for name in "$@"; do
    [ -n "${commands[$name]:-}" ] || { echo "results.sh: unknown \"$name\" (allowed: ${order[*]})" >&2; exit 2; }
    repeat "$name"
done
exit "$failed"
