#!/usr/bin/env bash
# steps.sh BUILD: the step time of a recording beside the wall clock, for the trainer and PyTorch, under every schedule, on
# one host and on two made of network namespaces with links of 100 Mbit/s. Minutes; without root one host only.
set -uo pipefail
build=$(cd "${1:?usage: steps.sh BUILD}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
. tests/with_torch.sh
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
export GRADWIRE_FLIGHT_DIR=$scratch STEPS_CAPTURE=$scratch/run.gwt STEPS=30
export PYTHONPATH=$PWD/python GRADWIRE_LIBRARY=$build/libgradwire.so.1 PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0

verdict() { # NAME COMMAND...
    if timeout 600 "${@:2}" >"$scratch/log" 2>&1 </dev/null; then passed=$((passed + 1)); echo "ok   $1"; return; fi
    failed=$((failed + 1))
    echo "FAIL $1"
    sed 's/^/    /' "$scratch/log"
}

hosts=("-n 2")
if [ "$(id -u)" = 0 ] && ip netns add "gs$$" 2>/dev/null; then
    ip netns del "gs$$"
    hosts+=("--lab hosts=2,rate=100mbit")
else echo "skipped two hosts: network namespaces cannot be made here"; fi
for where in "${hosts[@]}"; do
    for schedule in fifo wfbp mgwfbp p3 bytescheduler tictac dear; do
        # shellcheck disable=SC2086  # options are words
        [ ! -x "$build/tests/test_train_steps" ] || verdict "trainer, $schedule, $where" \
            "$build/gradwire" run $where --deadline 60 --strategy "schedule=$schedule" -- "$build/tests/test_train_steps"
    done
    # shellcheck disable=SC2086
    [ -z "$python" ] || verdict "PyTorch, every schedule and hooks, $where" \
        "$build/gradwire" run $where --deadline 60 --no-prefix -- "$python" python/tests/test_steps.py
done
[ -n "$python" ] || echo "skipped PyTorch: $why"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
