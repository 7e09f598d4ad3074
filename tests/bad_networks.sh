#!/usr/bin/env bash
# bad_networks.sh BUILD [RUNS [FIRST]] - jobs in a lab with loss up to 5 %, delay up to 100 ms one way, reordering,
# duplication and corruption, over each transport that crosses hosts: every value is checked, and no job hangs. 200 runs,
# half an hour; run N is the same in each set but for timing. Needs root. SUMS=right has corruption that TCP does not
# see: then a job may end with an error, but not with a wrong value. BEFORE, if it is set, is put before each job: a lock.
set -uo pipefail
build=$(cd "${1:?usage: bad_networks.sh BUILD [RUNS [FIRST]]}" && pwd) || exit 2
runs=${2:-200} first=${3:-1}
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
passed=0 failed=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

[ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] || { echo "skipped: a lab with loss needs root and /dev/net/tun"; exit 77; }

usable() { grep -qF "\"transport\": \"$1\"" <(grep '"usable": true' <<<"$known"); } # TRANSPORT: as the doctor sees it

known=$("$build/gradwire" doctor -n 1 --json)
transports=(tcp tcp:streams=2)
for one in rdma:provider=tcp zmq; do
    if usable "$one"; then transports+=("$one"); else echo "$one is left out: it does not work on this machine"; fi
done

pick() { # SALT WORD...: one of them, by the number of the run
    local words=("${@:2}") drawn
    drawn=$(cksum <<<"$run $1")
    echo "${words[$((${drawn% *} % ${#words[@]}))]}"
}

network() { # the description of the lab of this run
    local delay
    delay=$(pick 1 0ms 1ms 5ms 20ms 50ms 100ms)
    echo "hosts=$(pick 2 2 3),rate=$(pick 3 100mbit 300mbit 1gbit),delay=$delay,jitter=$([ "$delay" = 0ms ] && echo 0 || pick 4 0 1ms)" \
        "loss=$(pick 5 0% 0.1% 1% 3% 5%),reorder=$(pick 6 0% 1% 5%),duplicate=$(pick 7 0% 0.1% 1%)" \
        "corrupt=$(pick 8 0.1% 1% 0%),sums=${SUMS:-wrong},seed=$run" | tr ' ' ','
}

good() { # CODE: of the job, whose output is in $log
    [ "$1" = 0 ] && [ "$(tail -n 1 "$log")" = "0 wrong" ] && return
    [ "${SUMS:-wrong}" = right ] && [ "$1" != 124 ] && [ "$1" != 137 ] && ! grep -q 'wrong values' "$log"
}

for ((run = first; run < first + runs; run++)); do
    lab=$(network) transport=${transports[$((run % ${#transports[@]}))]} begin=$SECONDS
    ${BEFORE:-} timeout -k 10 300 "$build/gradwire" run --lab "$lab" -n 3 --deadline 120 --no-prefix --strategy "transport=$transport" -- \
        "$build/tests/helper_network" 2 >"$log" 2>&1 </dev/null
    code=$?
    if good "$code"; then passed=$((passed + 1)) verdict=ok
    else failed=$((failed + 1)) verdict=FAIL; fi
    [ "$verdict" = ok ] && [ -n "${QUIET:-}" ] || echo "$verdict $run: $transport over $lab, $((SECONDS - begin)) s"
    [ "$verdict" = ok ] || { echo "    exit code $code"; tail -n 20 "$log" | sed 's/^/    /'; }
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
