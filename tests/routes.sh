#!/usr/bin/env bash
# routes.sh BUILD: codecs, schedules and architectures, all pairs of them, by four processes on two hosts made of network
# namespaces; tests/helper_routes.c compares weights and the bytes on the link. Needs root.
set -uo pipefail
build=$(cd "$1" && pwd) || exit 2
log=$(mktemp)
probe=gwroutes$$
trap 'rm -f "$log"' EXIT

# Not every root can enter a namespace that it made: not in a chroot, for one.
can_lab() {
    local code
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null && ip netns add "$probe" 2>/dev/null || return
    ip netns exec "$probe" true 2>/dev/null
    code=$?
    ip netns del "$probe" 2>/dev/null
    return "$code"
}

can_lab || { echo "skipped: network namespaces cannot be made here"; exit 77; }
timeout 300 "$build/gradwire" run --lab hosts=2,rate=10gbit -n 4 -- "$build/tests/helper_routes" >"$log" 2>&1 </dev/null
code=$?
passed=$(grep -c '^\[[0-3]\] ok   routes_between_hosts$' "$log")
cat "$log"
if [ "$code" = 0 ] && [ "$passed" = 4 ]; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; exit 1; fi
