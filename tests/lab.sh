#!/usr/bin/env bash
# lab.sh BUILD: the lab with real packets. Each datagram meets the fate that the seed gives it, delay and rate are as asked,
# and nothing is left when its owner is killed; then a few jobs of tests/bad_networks.sh. Needs root and /dev/net/tun.
set -uo pipefail
build=$(cd "$1" && pwd) || exit 2
passed=0 failed=0
out=$(mktemp) log=$(mktemp) probe=gwlab$$
trap 'rm -f "$out" "$log"' EXIT

can_lab() { # not every root can enter a namespace that it made: not in a chroot, for one
    local code
    [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] && command -v ip >/dev/null && command -v tc >/dev/null &&
        ip netns add "$probe" 2>/dev/null || return
    ip netns exec "$probe" true 2>/dev/null
    code=$?
    ip netns del "$probe" 2>/dev/null
    return "$code"
}

ok() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$out" 2>&1; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name"; fi
    sed 's/^/    /' "$out"
}

measured() { # packets|rate DESCRIPTION; a busy machine may spoil one try
    local try
    for try in 1 2 3; do
        timeout 60 "$build/gradwire" run --lab "$2" --no-prefix -- "$build/tests/helper_lab" "$1" "$2" </dev/null && return
    done
    return 1
}

refused() { # DESCRIPTION WORDS: exit code 2 and a sentence
    local said code
    said=$("$build/gradwire" run --lab "$1" -- true 2>&1)
    code=$?
    echo "$said"
    [ "$code" = 2 ] && [[ $said == *"$2"* ]]
}

left() { { ip netns list; ip -o link; } | grep -oE "\bgw$1[hpb][0-9]*"; }

killed() { # the owner, by SIGKILL: namespaces and forwarder end
    local owner _
    "$build/gradwire" run --lab "hosts=2,delay=1ms,seed=4${probe#gwlab}" -- sleep 77 </dev/null &
    owner=$!
    for _ in $(seq 100); do [ -n "$(ip netns pids "gw${owner}h1" 2>/dev/null)" ] && break; sleep 0.1; done
    [ "$(pgrep -cf "seed=4${probe#gwlab}")" -ge 3 ] || echo "there is no forwarder"
    kill -9 "$owner"
    wait "$owner" 2>/dev/null
    for _ in $(seq 100); do
        [ -z "$(left "$owner")" ] && ! pgrep -f "seed=4${probe#gwlab}" >/dev/null && return
        sleep 0.1
    done
    echo "left: $(left "$owner") $(pgrep -af "seed=4${probe#gwlab}")"
    return 1
}

guarded() { # STRATEGY INSIDE BETWEEN: what the log of four ranks on two hosts says of connections inside a host and between hosts
    GRADWIRE_LOG=debug timeout 60 "$build/gradwire" run --lab hosts=2 -n 4 --no-prefix --strategy "$1" -- \
        "$build/tests/helper_network" 1 >"$log" 2>&1 </dev/null
    sed -nE 's/.*rank ([0-9]+): stream 0 to rank ([0-9]+), generation 0, ([a-z]+)$/\1 \2 \3/p' "$log" |
        awk -v inside="$2" -v between="$3" '
            { near = int($1 / 2) == int($2 / 2); seen[near]++; if ($3 != (near ? inside : between)) { print; wrong++ } }
            END { print seen[1] + 0, "inside and", seen[0] + 0, "between hosts"; exit !seen[0] || !seen[1] || wrong }'
}

warned_once() { # the job of `guarded`: by rank 0
    grep -F 'nothing protects the data between hosts' "$log"
    [ "$(grep -cF 'nothing protects the data between hosts' "$log")" = 1 ] && grep -qE 'warn: rank 0: transport=rdma: nothing' "$log"
}

can_lab || { echo "skipped: network namespaces or TUN devices cannot be made here"; exit 77; }
ok "each packet meets its fate, sums right" measured packets \
    hosts=2,rate=200mbit,delay=20ms,jitter=2ms,loss=2%,reorder=2%,duplicate=1%,corrupt=1%,sums=right,seed=7
ok "altered packets are dropped, sums wrong" measured packets hosts=2,rate=200mbit,delay=1ms,loss=1%,corrupt=3%,seed=8
ok "the rate of a stream" measured rate hosts=2,rate=50mbit,delay=5ms
ok "a killed lab leaves nothing" killed
ok "a bad share" refused hosts=2,loss=7 'a share of the packets'
ok "a bad word" refused hosts=2,los=7% 'not "los=7%"'
ok "mac between hosts, clear inside one" guarded transport=tcp clear mac
ok "where clear is asked for, a checksum between hosts" guarded transport=tcp:security=clear clear checksum
if "$build/gradwire" doctor -n 1 --json 2>/dev/null | grep -F '"transport": "rdma:provider=tcp"' | grep -qF '"usable": true'; then
    ok "rdma: keys go by tls between hosts" guarded transport=rdma:provider=tcp,checksum=on checksum tls
    ok "rdma: one warning that its data is clear" warned_once
else echo "     rdma is left out: it does not work on this machine"; fi
ok "jobs on bad networks" env QUIET=1 "$(dirname "$0")/bad_networks.sh" "$build" 3
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
