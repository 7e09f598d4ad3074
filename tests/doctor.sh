#!/bin/bash
# doctor.sh - gradwire doctor seen from outside: doctor.sh BUILD_DIRECTORY [WORD]
#
# Each case is a function that prints what is wrong, or nothing. With WORD given only cases whose names contain it are
# run. As root, and where namespaces can be made, four hosts at 1 Gbit/s on a bridge are broken in one way at a time,
# and the doctor has to name the host.

build=$(cd "${1:?usage: doctor.sh BUILD_DIRECTORY [WORD]}" && pwd) || exit 2
only=${2:-}
gradwire=$build/gradwire
scratch=$(mktemp -d) || exit 2
tag=gd$$ # of all that is made here; an interface's name has 15 letters at most
hosts=(a b c d)
clean_up() {
    for h in "${hosts[@]}"; do
        ip link del "$tag$h" 2>/dev/null
        ip netns del "$tag$h" 2>/dev/null
    done
    ip link del "${tag}x" 2>/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
unset GRADWIRE_PORTS GRADWIRE_INTERFACE GRADWIRE_LINKS GRADWIRE_STRATEGY NO_COLOR
passed=0 failed=0

# ---- tools ----

doctor() { # OPTIONS...: at most 2 minutes; sets $out, $err and $code
    timeout -k 1 120 "$gradwire" doctor "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    out=$(cat "$scratch/out") err=$(cat "$scratch/err")
}
is() { [ "$2" = "$3" ] || printf '%s is %s\nnot %s\n' "$1" "$2" "$3"; }                # WHAT GOT WANTED
has() { [[ $2 =~ $3 ]] || printf '%s is %s\nand does not match %s\n' "$1" "$2" "$3"; } # WHAT GOT PATTERN

make_hosts() {
    local n=0
    ip link add "${tag}x" type bridge && ip link set "${tag}x" up || return 1
    for h in "${hosts[@]}"; do
        n=$((n + 1))
        ip netns add "$tag$h" && ip link add "$tag$h" type veth peer name eth0 netns "$tag$h" &&
            ip link set "$tag$h" master "${tag}x" up && ip -n "$tag$h" link set lo up &&
            ip -n "$tag$h" link set eth0 up && ip -n "$tag$h" addr add "10.78.0.$n/24" dev eth0 &&
            shape port "$h" 1gbit && shape host "$h" 1gbit || return 1
    done
}
shape() { # port|host HOST RATE: what the host receives, or sends
    local device=(-n "$tag$2" qdisc replace dev eth0)
    [ "$1" = port ] && device=(qdisc replace dev "$tag$2")
    tc "${device[@]}" root tbf rate "$3" burst 128kb limit 1mb
}
examine() { # OPTIONS...
    doctor -H "${tag}a,${tag}b,${tag}c,${tag}d" --rsh 'ip netns exec' "$@"
}
finds() { # PATTERN: exactly one finding, which matches
    is code "$code" 1
    is findings "$(grep -c '^wrong: ' <<<"$out")" 1
    has verdict "$(grep '^wrong: ' <<<"$out")" "$1"
}

# ---- cases without hosts ----

this_machine() {
    doctor -n 2 -o "$scratch/links"
    is code "$code" 0
    has transports "$out" $'\ntcp +yes +across and within hosts *\n'
    has output "$out" $'\nall is well$'
    is 'the file' "$(sed 's/ [-0-9.e+]* [-0-9.e+]*$//; s/^host \([01]\).*/host \1/' "$scratch/links")" \
        'gradwire-doctor 1
hosts 2
host 0
host 1
link 0 1
link 1 0
end'
}
wrong_use() {
    for words in '-n 0' '-n 2 -H a,b' '--ports x' '--lab hosts=0' '-n 2 surplus' '--no-such'; do
        # shellcheck disable=SC2086
        doctor $words
        is "code of $words" "$code" 2
        is "output of $words" "$out" ""
    done
}
a_host_that_is_not_there() {
    doctor -H "localhost,$tag.invalid" --rsh 'echo no route to >&2; false'
    is code "$code" 1
    has verdict "$out" "wrong: host $tag.invalid cannot be examined: the remote shell ended.*no route to"
}
strangers_are_not_served() {
    local line port reply
    coproc PROBE { "$gradwire" probe; }
    read -r -t 60 line <&"${PROBE[0]}"
    has greeting "$line" '^gradwire-probe version=3 '
    echo "open rank=0 world=2 token=0123456789abcdef master=127.0.0.1 ports=0 interface=" >&"${PROBE[1]}"
    read -r -t 60 line <&"${PROBE[0]}"
    has opened "$line" '^opened address=127.0.0.1 interface=lo mtu=[0-9]+ ports=[0-9]+$'
    port=${line##*=}
    exec 9<>"/dev/tcp/127.0.0.1/$port"
    head -c 200 /dev/zero >&9 2>/dev/null
    reply=$(timeout 60 cat <&9 2>/dev/null | wc -c)
    [ "${PIPESTATUS[0]}" != 124 ] || echo "the stranger's connection stays open"
    is 'bytes for a stranger' "$reply" 0
    exec 9>&-
    exec {PROBE[1]}>&-
    wait "$PROBE_PID" 2>/dev/null
}

# ---- cases with hosts ----

healthy() {
    examine --ports 29500-29503
    is code "$code" 0
    has output "$out" $'\nall is well$'
}
slow_link() {
    shape port c 100mbit
    examine
    shape port c 1gbit
    finds "host ${tag}c receives at [0-9.]+ Mbit/s, the others at [0-9.]+ [MG]bit/s: look at its cable or switch port"
}
predicted_from_here() {
    out=$("$gradwire" predict --here -H "${tag}a:2,${tag}b:2" --rsh 'ip netns exec' --model vgg16 2>"$scratch/err")
    has links "$out" $'^measured here\n  links     (8|9)[0-9][0-9][.0-9]* Mbit/s, [.0-9]+ us, the medians of 2 hosts\n'
    has header "$out" $'\nvgg16, .*; 4 ranks on 2 hosts; (8|9)[0-9][0-9]'
}
closed_port() {
    ip -n "${tag}b" rule add ipproto tcp sport 29502 blackhole
    examine --ports 29500-29503
    ip -n "${tag}b" rule del ipproto tcp sport 29502 blackhole
    finds "no other host can reach host ${tag}b at port 29502 \(10.78.0.2:29502 does not answer\)"
}
no_way_between_two() {
    ip -n "${tag}a" route add blackhole 10.78.0.4
    examine
    ip -n "${tag}a" route del blackhole 10.78.0.4
    finds "hosts ${tag}a and ${tag}d cannot reach each other"
}
wrong_mtu() {
    ip -n "${tag}d" link set eth0 mtu 1400
    examine
    ip -n "${tag}d" link set eth0 mtu 1500
    finds "host ${tag}d has an MTU of 1400 on eth0, the others 1500"
}
large_packets_vanish() {
    ip link set "${tag}a" mtu 900
    examine --json
    ip link set "${tag}a" mtu 1500
    is code "$code" 1
    is findings "$(grep -c '"finding"' <<<"$out")" 1
    has finding "$out" "\"finding\": \"mtu\", \"host\": \"${tag}a\", \"text\": \"packets over 90[0-9] bytes to and from"
}
slow_between() { # HOST ADDRESS RATE: what the host sends to this address
    local at=(-n "$tag$1")
    tc "${at[@]}" qdisc replace dev eth0 root handle 1: htb default 10 &&
        tc "${at[@]}" class add dev eth0 parent 1: classid 1:10 htb rate 1gbit burst 128kb cburst 128kb quantum 9000 &&
        tc "${at[@]}" class add dev eth0 parent 1: classid 1:20 htb rate "$3" burst 64kb cburst 64kb quantum 9000 &&
        tc "${at[@]}" filter add dev eth0 parent 1: protocol ip u32 match ip dst "$2/32" flowid 1:20
}
ring_time() { # [LINKS]: us of a checked all-reduce of 2 MiB around a ring
    GRADWIRE_LINKS=${1:-} timeout -k 1 120 "$gradwire" run -H "${tag}a,${tag}b,${tag}c,${tag}d" --rsh 'ip netns exec' \
        --master-addr 10.78.0.1 --no-prefix -- "$gradwire" bench allreduce -b 2M -e 2M --arch ring --iters 3 --check --json \
        >"$scratch/out" 2>"$scratch/err" || echo "bench: $(tail -n 1 "$scratch/err")" >&2
    grep -q '"wrong": 0' "$scratch/out" || echo "results are wrong: $(cat "$scratch/out")" >&2
    sed -n 's/.*"time_us": \([0-9]*\).*/\1/p' "$scratch/out"
}
rings_avoid_a_slow_pair() {
    local plain around
    slow_between a 10.78.0.2 100mbit && slow_between b 10.78.0.1 100mbit
    examine -o "$scratch/links"
    has verdict "$out" "wrong: .*${tag}a.*${tag}b"
    plain=$(ring_time) around=$(ring_time "$scratch/links")
    shape host a 1gbit
    shape host b 1gbit
    [ "$((2 * around))" -lt "$plain" ] || echo "a ring takes $plain us, and $around us where it knows of the slow pair"
    has plan "$("$gradwire" plan --arch ring --links "$scratch/links" --rank 0)" '^ring order: ranks 0 (2 1 3|3 1 2) '
    has explanation "$("$gradwire" explain -n 4 --links "$scratch/links")" 'ring order: ranks 0 (2 1 3|3 1 2) '
    sed -i '/^host 3/s/ 10.78.0.4 / 10.78.0.9 /; /^host 3/s/ gd[^ ]* / elsewhere /' "$scratch/links"
    has 'a file that lacks a host' "$(ring_time "$scratch/links" 2>&1; cat "$scratch/err")" \
        'GRADWIRE_LINKS does not know host .*10.78.0.4. of rank 3: run gradwire doctor'
}
interrupted_lab() {
    local pid left
    env --default-signal=INT "$gradwire" doctor --lab hosts=2,rate=100mbit >/dev/null 2>&1 </dev/null &
    pid=$!
    for _ in {1..300}; do
        sleep 0.1
        [ -n "$(ip netns pids "gw${pid}h1" 2>/dev/null)" ] && break
    done
    sleep 0.3
    kill -INT "$pid"
    wait "$pid" 2>/dev/null
    for _ in {1..300}; do
        left=$(ip netns list | grep -c "^gw${pid}h")$(grep -lza "^$gradwire\$" /proc/[0-9]*/cmdline 2>/dev/null | wc -l)
        [ "$left" = 00 ] && return
        sleep 0.1
    done
    echo "namespaces and processes left behind: $left"
}

# Other processes disturb measurements: a case may be tried several times. A real fault fails every try.
try() { # CASE [TRIES]
    [[ $1 == *"$only"* ]] || return 0
    local left=${2:-1}
    "$1" >"$scratch/reason" 2>&1
    while [ -s "$scratch/reason" ] && [ $((left -= 1)) -gt 0 ]; do
        echo "     $1, once more: $(tail -n 1 "$scratch/reason")"
        "$1" >"$scratch/reason" 2>&1
    done
    if [ -s "$scratch/reason" ]; then
        echo "FAIL $1"
        sed 's/^/    /' "$scratch/reason"
        failed=$((failed + 1))
    else
        echo "ok   $1"
        passed=$((passed + 1))
    fi
}

try this_machine 5
for case in wrong_use a_host_that_is_not_there strangers_are_not_served; do try "$case"; done
if [ "$(id -u)" = 0 ] && make_hosts 2>"$scratch/why"; then
    for case in healthy slow_link predicted_from_here closed_port no_way_between_two wrong_mtu large_packets_vanish \
        rings_avoid_a_slow_pair interrupted_lab; do
        try "$case" 5
    done
else
    echo "skip the hosts: namespaces with shaped links cannot be made here ($(head -n 1 "$scratch/why" 2>/dev/null))"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
