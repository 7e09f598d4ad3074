#!/usr/bin/env bash
# networks.sh BUILD [SECONDS [TURNS]] - one-way gw_send beside iperf3 over paths with delay and loss, in turns, with the same
# congestion control; the table of bench/results/transports.md. 30 s and 5 turns unless said otherwise: an hour and a half.
# Needs root and iperf3. PATHS and CONTROLS choose rows: PATHS='rate=100mbit,delay=100ms' CONTROLS=auto. BEFORE, if it is
# set, is put before each run: a lock, for example.
set -uo pipefail
build=$(cd "${1:?usage: networks.sh BUILD [SECONDS [TURNS]]}" && pwd) || exit 2
seconds=${2:-30} turns=${3:-5}
paths=${PATHS:-rate=300mbit,delay=1ms rate=300mbit,delay=10ms,loss=0.1% rate=300mbit,delay=20ms,loss=1% rate=100mbit,delay=100ms
    rate=100mbit,delay=100ms,loss=1%}
controls=${CONTROLS:-auto bbr cubic}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE

in_lab() { # PATH SEED COMMAND...: on both hosts
    ${BEFORE:-} timeout 200 "$build/gradwire" run --lab "hosts=2,$1,seed=$2" --no-prefix --deadline 60 "${@:3}" </dev/null 2>/dev/null
}

iperf() { # PATH SEED CONTROL: Mbit/s as received
    in_lab "$1" "$2" -- sh -c '
        if [ "$RANK" = 1 ]; then exec iperf3 -s -1 >/dev/null; fi
        for try in $(seq 50); do
            iperf3 -c 10.77.0.2 -t '"$seconds"' -C '"$3"' -f k >'"$scratch/iperf"' && break
            sleep 0.1
        done
        awk "/receiver/ { printf \"%.1f\n\", \$(NF - 2) / 1000 }" '"$scratch/iperf"
}

ours() { # PATH SEED CONTROL
    in_lab "$1" "$2" --strategy "transport=tcp:congestion=$3" -- "$build/bench/bench_send" "$seconds"
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

echo "| path | congestion | gw_send, Mbit/s | iperf3 | ratio |"
echo "|---|---|---|---|---|"
for path in $paths; do
    for control in $controls; do
        theirs=$control
        [ "$control" = auto ] && theirs=bbr # what auto takes on such paths
        ours=() iperfs=()
        for ((turn = 1; turn <= turns; turn++)); do
            ours+=("$(ours "$path" "$turn" "$control")")
            iperfs+=("$(iperf "$path" "$turn" "$theirs")")
        done
        a=$(printf '%s\n' "${ours[@]}" | median) b=$(printf '%s\n' "${iperfs[@]}" | median)
        echo "| $path | $control | $a | $b ($theirs) | $(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", b ? a / b : 0 }') |"
        [ -z "${VERBOSE:-}" ] || echo "    ${ours[*]} beside ${iperfs[*]}"
    done
done
