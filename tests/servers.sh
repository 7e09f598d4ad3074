#!/usr/bin/env bash
# servers.sh BUILD [quick]: ranks of jobs over parameter servers are killed at random moments, and the servers'
# counts are compared with the workers' pushes. Without quick 20 kills each: minutes. SEED=N: other moments.
set -uo pipefail
build=$(cd "$1" && pwd) || exit 2
quick=${2:-}
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seed=${SEED:-1}
kills=20
[ -n "$quick" ] && kills=2

# play NAME LINE KILLS HOW MEMBERS LOST OPTIONS...: a job of 4 whose ranks of those MEMBERS are killed (4 and 5 are server
# processes). LOST: how many steps of all workers together may be lost at most with each kill.
play() {
    local name=$1 line=$2 times=$3 how=$4 members=$5 lost=$6 tally log killer code=0 text
    shift 6
    tally=$folder/tally log=$folder/log
    rm -rf "$tally" "$folder"/snapshots; mkdir -p "$folder/snapshots"
    # shellcheck disable=SC2086  # MEMBERS is a list
    timeout 280 "$build/tests/helper_servers" kill "$tally" "$times" "$seed" "$how" $members >"$folder/killer" 2>&1 &
    killer=$!
    GRADWIRE_LOG=warn GRADWIRE_FLIGHT_DIR=$folder timeout 300 "$build/gradwire" run -n 4 --deadline 10 --snapshots "$folder/snapshots" "$@" -- \
        "$build/tests/helper_servers" work "$tally" 50 "$line" >"$log" 2>&1 || code=$?
    wait "$killer" || code=1
    text=$("$build/tests/helper_servers" check "$tally" $((lost * times))) || code=1
    if [ "$code" = 0 ]; then passed=$((passed + 1)); echo "ok   $name: $text"
    else failed=$((failed + 1)); echo "FAIL $name (exit code $code): $text"; cat "$folder/killer"; tail -n "${LINES_SHOWN:-40}" "$log"; fi
}

play "asp: a dead worker is dropped" "arch=ps:servers=2 sync=asp" 1 dropped "1 3" 0 --elastic
play "asp, replicas, fp16: ranks come back, nothing is lost" "arch=ps:servers=2,replicas=1 sync=asp compress=fp16" "$kills" \
    back "0 1 2 3" 0 --restarts 1000
play "server processes, replicas: they come back, nothing is lost" "arch=ps:servers=2,replicas=1 sync=asp" "$kills" back \
    "4 5" 0 --restarts 1000 --servers 2
play "asp, snapshots: what is lost is what came since" "arch=ps:servers=2,snapshot=2 sync=asp" "$kills" back "0 2" 20 \
    --restarts 1000
[ -n "$quick" ] || {
    play "server processes: a dead worker is dropped" "sync=ssp:staleness=2" 1 dropped "1 3" 0 --elastic --servers 2
    play "server processes, bsp, elastic: the mean over those left" "sync=bsp" 1 dropped "1 3" 0 --elastic --servers 2
    play "server processes: workers come back" "sync=ssp:staleness=2" "$kills" back "0 1 3" 0 --restarts 1000 --servers 1
    play "server processes, snapshots: what is lost is what came since" "arch=ps:servers=2,snapshot=2 sync=asp" "$kills" \
        back "4 5" 20 --restarts 1000 --servers 2
    play "ssp: a dead worker is dropped" "arch=ps:servers=2 sync=ssp:staleness=2" 1 dropped "1 3" 0 --elastic
    play "bsp, elastic: the mean over those left" "arch=ps:servers=2 sync=bsp" 1 dropped "1 3" 0 --elastic
    play "bsp, replicas: the loss of a server loses nothing" "arch=ps:servers=2,replicas=1 sync=bsp" 2 dropped "0 2" 0 \
        --elastic
    play "bsp, replicas, fp16: the loss of a server loses nothing" "arch=ps:servers=2,replicas=1 sync=bsp compress=fp16" 2 \
        dropped "0 2" 0 --elastic
    play "ssp: workers come back" "arch=ps:servers=2 sync=ssp:staleness=2" "$kills" back "1 3" 0 --restarts 1000
    play "ssp, replicas: servers come back, nothing is lost" "arch=ps:servers=2,replicas=1 sync=ssp:staleness=3" "$kills" back \
        "0 2" 0 --restarts 1000
    play "ssp, snapshots, p3" "arch=ps:servers=2,snapshot=2 sync=ssp:staleness=1 schedule=p3:slice=64K" "$kills" back "0 2" 20 \
        --restarts 1000
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
