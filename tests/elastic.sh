#!/bin/bash
# elastic.sh - elastic jobs whose ranks hang and whose hosts are lost: elastic.sh BUILD_DIRECTORY [WORD]
#              elastic.sh BUILD_DIRECTORY soak [STOPS] [CUTS]
#
# Without soak: quick cases; with WORD only those whose names contain it. With it: STOPS (100) ranks get SIGSTOP, and
# CUTS (50) hosts lose their link, in jobs of four; half as many lose it while their remote shells work. Prints how long it
# took until every other rank had a right sum in the next generation, and fails where that was longer than the deadline
# plus 2 s. DEADLINE=2 s. Hosts need root.
build=$(cd "${1:?usage: elastic.sh BUILD_DIRECTORY [WORD | soak [STOPS] [CUTS]]}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
only=${2:-}
gradwire=$build/gradwire
helper=$build/tests/helper_elastic
deadline=${DEADLINE:-2}
top=$(mktemp -d) || exit 2
scratch=$top
forever=97532.$$
printf '%s' "$forever" >"$scratch/marker"
passed=0 failed=0 at_once=8
# shellcheck source=tests/launch_tools.sh
. "$here/launch_tools.sh"
unset GRADWIRE_STRATEGY GRADWIRE_PORTS GRADWIRE_DEADLINE
export GRADWIRE_LOG=warn GRADWIRE_FLIGHT_DIR=$top

# ---- hosts: namespaces on a bridge, each with a remote shell over its link ----

net=10.214.$(($$ % 250)) bridge=gwe$$ hosts=0
make_hosts() { # COUNT: 10.214.N.1 and so on; this machine is .254
    ip link add "$bridge" type bridge && ip addr add "$net.254/24" dev "$bridge" && ip link set "$bridge" up || return
    for ((hosts = 1; hosts <= $1; hosts++)); do
        local space=$bridge.$hosts port=${bridge}p$hosts
        ip netns add "$space" && ip link add "$port" type veth peer name eth0 netns "$space" &&
            ip link set "$port" master "$bridge" up && ip -n "$space" addr add "$net.$hosts/24" dev eth0 &&
            ip -n "$space" link set eth0 up && ip -n "$space" link set lo up || return
        ip netns exec "$space" "$here/remote_shell.py" serve "$net.$hosts" &
        shells+=($!)
        disown # cases are waited for, these are not
    done
    hosts=$1
    for ((i = 1; i <= hosts; i++)); do until_true 20 answers "$net.$i" || return; done
}
answers() { (exec 3<>"/dev/tcp/$1/22022") 2>/dev/null; } # ADDRESS
cut_command() { echo "ip link set ${bridge}p$1 down"; } # HOST
mend() { for ((i = 1; i <= hosts; i++)); do ip link set "${bridge}p$i" up; done; }
remove_hosts() {
    [ "${#shells[@]}" = 0 ] || kill "${shells[@]}" 2>/dev/null
    for ((i = 1; i <= hosts; i++)); do # the kernel keeps a namespace, and its link, until its last connection has ended
        ip link del "${bridge}p$i" 2>/dev/null
        ip netns del "$bridge.$i" 2>/dev/null
    done
    ip link del "$bridge" 2>/dev/null
}
shells=()
clean_up() {
    for process in $(processes); do kill -9 "$process"; done
    remove_hosts
    rm -rf "$top"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# ---- jobs ----

own_port() { echo $((20000 + ($$ * 37 + 10#${forever: -3} * 40) % 10000)); } # cases run side by side on one machine
begin() { # OPTIONS...: a job of helpers, in the background
    tally=$scratch/tally.$forever
    rm -f "$tally"
    start --deadline "$deadline" "$@" -- "$helper" work "$tally"
}
pid_of() { "$helper" pid "$tally" "$1"; } # MEMBER
strike() { # dropped|back COMMAND MEMBER...: the ms until the others went on, as $took
    took=$("$helper" strike "$tally" "$@") || echo "after $2: $took; $(tail -n 5 "$scratch/err")"
}
stop_command() { echo "kill -STOP $(pid_of "$1")"; } # MEMBER
end() { # of the job: it must end well
    "$helper" end "$tally"
    finish
    is code "$code" 0
    [ "$code" = 0 ] || echo "$err"
    nothing_left 5
}
goes_on() { # ...without a loss
    sleep "$1"
    [ "$(pid_of 0)" -gt 0 ] || echo "rank 0 has gone"
    end
    is losses "$(grep -c 'go on without\|heartbeat\|was lost' <<<"$err")" 0
}

# ---- quick cases ----

stopped_ranks_are_ended() { # rank 0 among them; the last rank continues alone, and has no heartbeat
    begin -n 3 --elastic
    strike dropped "$(stop_command 1)" 1
    strike dropped "$(stop_command 0)" 0
    sleep $((deadline + 2))
    end
    has sentence "$err" 'gradwire: rank 1 on host [^ ]+ has had no heartbeat for [0-9.]+ s: it is stopped, or'
    has sentence "$err" 'gradwire: rank 1 on host [^ ]+ was killed by signal 9 .*; the other 2 go on without it'
}
stopped_ranks_come_back() {
    begin -n 3 --restarts 5
    strike back "$(stop_command 1)" 1
    strike back "$(stop_command 0)" 0
    end
}
stopped_while_others_regroup() { # one is killed and another stopped at once: two generations within one regroup
    begin -n 4 --elastic
    local dead=$(pid_of 3)
    strike dropped "$(stop_command 1); kill -9 $dead" 1 3
    strike dropped "kill -9 $(pid_of 2)" 2
    end
}
no_heartbeat() {
    begin -n 2 --elastic --no-heartbeat
    local pid=$(pid_of 1)
    kill -STOP "$pid"
    sleep $((2 * deadline))
    kill -0 "$pid" || echo "the stopped rank was ended"
    kill -CONT "$pid"
    kill -TERM "$launcher"
    finish
    nothing_left 5
}
debugger() {
    begin -n 2 --elastic
    local pid=$(pid_of 1)
    "$helper" hold "$tally" "$pid" $((2 * deadline)) &
    until_true 20 grep -qs "rank 1 on host .* has had no heartbeat .* a debugger holds it .process $pid" "$scratch/err" ||
        echo "the rank in the debugger is not named: $(cat "$scratch/err")"
    kill -0 "$pid" || echo "the rank in the debugger was ended"
    kill -TERM "$launcher"
    finish
    nothing_left 8
}
programs_without_gradwire() { # owe no heartbeat
    start -n 2 --elastic --deadline 0.2 -- sleep "4.${forever#*.}"
    printf '%s' "4.${forever#*.}" >"$scratch/marker"
    until_true 5 at_least 3 || echo "the ranks did not start"
    local pid=$(pgrep -f "^sleep 4.${forever#*.}\$" | head -1)
    kill -STOP "$pid"
    sleep 2
    kill -CONT "$pid"
    finish
    is code "$code" 0
}
computing_ranks() { # beat between calls; and those that have left owe nothing
    run -n 2 --elastic --deadline 1 -- "$helper" compute "$scratch/tally.$forever" 3
    is code "$code" 0
    is errors "$err" ""
}
family_of() { echo "$1"; for child in $(pgrep -P "$1"); do family_of "$child"; done; } # PID
whole_job_stopped() {
    begin -n 2 --elastic
    pid_of 0 >/dev/null
    local all=$(family_of "$launcher")
    # shellcheck disable=SC2086  # a list
    { kill -STOP $all; sleep $((2 * deadline)); kill -CONT $all; }
    goes_on "$deadline"
}
launcher_stopped() { # alone: its own sleep is not the ranks' silence
    begin -n 2 --elastic
    pid_of 0 >/dev/null
    kill -STOP "$launcher"
    sleep $((2 * deadline))
    kill -CONT "$launcher"
    goes_on 1
}
launcher_suspended() { # by Ctrl-Z: other hosts are notified
    stand_in
    begin -H alpha:1,beta:1 --rsh "$scratch/rsh" --master-addr 127.0.0.1 --port "$(own_port)" --elastic
    pid_of 0 >/dev/null
    kill -TSTP "$launcher"
    sleep $((2 * deadline))
    has "state of the launcher" "$(cut -d' ' -f3 "/proc/$launcher/stat")" T
    kill -CONT "$launcher"
    goes_on 1
}
silent_launcher() { # is lost to other hosts, which end their ranks
    stand_in
    begin -H alpha:1,beta:1 --rsh "$scratch/rsh" --master-addr 127.0.0.1 --port "$(own_port)" --elastic
    local pids="$(pid_of 0) $(pid_of 1)"
    kill -STOP "$launcher"
    # shellcheck disable=SC2086  # a list
    all_gone() { ! kill -0 $pids 2>/dev/null; }
    until_true 20 all_gone || echo "ranks live without a launcher"
    kill -CONT "$launcher"
    finish
    nothing_left 5
}
remote_shell_dies() { # of the host with rank 0: the others meet at the address where they have met rank 2
    stand_in "echo \$\$ >'$scratch/pid.'\$host"
    begin -H alpha:2,beta:2 --rsh "$scratch/rsh" --master-addr 127.0.0.1 --port "$(own_port)" --elastic
    pid_of 0 >/dev/null
    strike dropped "kill -9 $(cat "$scratch/pid.alpha")" 0 1
    end
    has sentence "$err" 'gradwire: host alpha was lost with ranks 0 to 1: .*exit code 137; the other 2 go on without it'
}
lost_hosts_are_not_restarted() {
    stand_in "echo \$\$ >'$scratch/pid.'\$host"
    begin -H alpha:2,beta:2 --rsh "$scratch/rsh" --master-addr 127.0.0.1 --port "$(own_port)" --restarts 10
    pid_of 0 >/dev/null
    strike dropped "kill -STOP $(cat "$scratch/pid.beta")" 2 3 # its supervisor
    strike back "kill -9 $(pid_of 1)" 1
    end
    has sentence "$err" 'gradwire: host beta was lost with ranks 2 to 3: it has not answered for [0-9.]+ s; the other 2'
    has sentence "$err" 'gradwire: rank 1 on host alpha was killed by signal 9 .*; it is started again in 0.1 s'
}
silent_host_ends_other_jobs() {
    stand_in "echo \$\$ >'$scratch/pid.'\$host"
    start -H alpha:1,beta:1 --rsh "$scratch/rsh" --deadline 1 -- sleep "$forever"
    until_true 5 at_least 3 || echo "the ranks did not start"
    kill -STOP "$(cat "$scratch/pid.beta")"
    finish
    is code "$code" 255
    has sentence "$err" 'gradwire: host beta was lost with ranks 1 to 1: it has not answered for'
    nothing_left 5
}
output_that_nobody_reads() { # holds up the hosts' answers, and is not their silence
    stand_in
    mkfifo "$scratch/fifo"
    sleep 6 3<>"$scratch/fifo" &
    timeout 20 "$gradwire" run -H alpha:2 --rsh "$scratch/rsh" --elastic --deadline 0.5 -- \
        sh -c "yes | head -c 3000000; : $forever" >"$scratch/fifo" 2>"$scratch/err" &
    launcher=$!
    sleep 4
    ended && echo "the launcher has ended: $(cat "$scratch/err")"
    cat "$scratch/fifo" >"$scratch/out" &
    finish >/dev/null
    is code "$code" 0
}
ports_of_ranks() { # those at which they listen
    # shellcheck disable=SC2046  # a list
    ss -ltnpH | grep -E "$(printf 'pid=%s,|' $(pgrep -f "$tally") | sed 's/|$//')" | awk '{print $4}' | sed 's/.*://'
}
later_generations_keep_to_the_ports() {
    local low=$((21000 + $$ % 9000)) high port member
    high=$((low + 11))
    begin -n 4 --elastic --ports "$low-$high" --strategy transport=tcp
    for member in 0 2; do
        strike dropped "kill -9 $(pid_of $member)" "$member"
        for port in $(ports_of_ranks); do
            [ "$port" -ge "$low" ] && [ "$port" -le "$high" ] || echo "port $port is not in $low-$high"
        done
        [ -n "$port" ] || echo "nobody listens"
    done
    end
}
children_of_dead_ranks() { # go at once, whatever session they are in
    start -n 2 --elastic -- bash -c "if [ \$RANK = 1 ]; then
        sleep ${forever}1 & setsid sleep ${forever}1 & (setsid bash -c 'sleep ${forever}1 & wait' &)
        sleep 0.5; kill -9 \$\$; else setsid sleep ${forever}0 & until [ -e '$scratch/end' ]; do sleep 0.1; done; fi"
    gone() { grep -qs 'go on without it' "$scratch/err" && ! pgrep -f "^sleep ${forever}1\$" >/dev/null; }
    until_true 10 gone || echo "children of the dead rank are left: $(pgrep -af "^sleep $forever")"
    pgrep -f "^sleep ${forever}0\$" >/dev/null || echo "the child of the living rank was killed"
    touch "$scratch/end"
    finish
    is code "$code" 0
    nothing_left 0
}
children_of_lost_supervisors() { # where they are processes of this machine
    stand_in "echo \$\$ >'$scratch/pid.'\$host"
    start -H alpha:1,beta:1 --rsh "$scratch/rsh" --elastic -- bash -c "setsid sleep ${forever}\$RANK &
        until [ -e '$scratch/end' ]; do sleep 0.1; done"
    both() { pgrep -f "^sleep ${forever}0\$" >/dev/null && pgrep -f "^sleep ${forever}1\$" >/dev/null; }
    gone() { grep -qs 'go on without it' "$scratch/err" && ! pgrep -f "^sleep ${forever}1\$" >/dev/null; }
    until_true 10 both || echo "the ranks did not start"
    kill -9 "$(cat "$scratch/pid.beta")"
    until_true 10 gone || echo "children of the lost host's rank are left: $(pgrep -af "^sleep $forever")"
    pgrep -f "^sleep ${forever}0\$" >/dev/null || echo "the child of the living rank was killed"
    touch "$scratch/end"
    finish
    is code "$code" 0
    nothing_left 0
}
restarts_back_off() { # 0.1 s, 0.2 s, and so on
    run -n 2 --restarts 100000 --deadline 30 -- sh -c '[ $RANK = 1 ] && exit 1; sleep 4'
    local starts=$(grep -c 'it is started again' <<<"$err")
    [ "$starts" -ge 3 ] && [ "$starts" -le 7 ] || echo "started $starts times in 4 s"
}
all_regroup() { # though no rank has died
    begin -n 3 --elastic
    strike dropped "'$helper' abort '$tally'" 15
    strike dropped "'$helper' abort '$tally'" 15
    end
    is losses "$(grep -c 'without it' <<<"$err")" 0
}
late_rank() { # its heartbeat is there, but it does not call
    begin -n 3 --elastic
    strike dropped "'$helper' hang '$tally' 1" 1
    end
    has sentence "$err" 'rank 1 on host [^ ]+ does not come to gw_regroup, where the others wait. It is killed'
}
cut_data_network() { # the remote shells work, but the ranks of one host and the others do not reach each other
    begin --lab hosts=3,rate=1gbit -n 3 --elastic
    strike dropped "ip -n gw${launcher}h0 link set eth0 down" 0
    end
    has sentence "$err" 'host [^ ]+ was lost with ranks 0 to 0: its ranks and those of the other hosts do not reach'
}
cut_link() {
    begin -H "$net.1:2,$net.2:1,$net.3:1" --rsh "$here/remote_shell.py" --elastic
    local pids="$(pid_of 0) $(pid_of 1)"
    strike dropped "$(cut_command 1)" 0 1
    # shellcheck disable=SC2086  # a list
    all_gone() { ! kill -0 $pids 2>/dev/null; }
    until_true 10 all_gone || echo "the ranks of the host that was cut off live on"
    strike dropped "$(cut_command 2)" 2
    end
}

quick() {
    local case
    for case in stopped_ranks_are_ended stopped_ranks_come_back stopped_while_others_regroup no_heartbeat debugger \
        programs_without_gradwire computing_ranks whole_job_stopped launcher_stopped launcher_suspended \
        silent_launcher remote_shell_dies lost_hosts_are_not_restarted silent_host_ends_other_jobs \
        output_that_nobody_reads later_generations_keep_to_the_ports children_of_dead_ranks children_of_lost_supervisors \
        restarts_back_off all_regroup late_rank; do
        try "$case"
    done
    if [ "$(id -u)" = 0 ] && make_hosts 3 2>/dev/null; then
        try cut_link
        try cut_data_network
    else echo "skip cut_link cut_data_network: namespaces cannot be made here"; fi
    wait
    for case in "${names[@]}"; do tell "$case"; done
}

# ---- the soak ----

# Prints the figures of a file of milliseconds, and counts those not within the deadline plus 2 s.
figures() { # NAME FILE WANTED
    local count late
    count=$(wc -l <"$2")
    late=$(awk -v most=$((deadline * 1000 + 2000)) '$1 > most' "$2" | wc -l)
    sort -n "$2" | awk -v name="$1" -v failures=$(($3 - count + late)) '{v[NR] = $1} END {
        printf "%-28s %6d %8d %8d %8d %9d\n", name, NR, v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)], v[NR], failures}'
    passed=$((passed + count - late)) failed=$((failed + $3 - count + late))
}
note() { # FILE: the time of the last strike, if it ended
    [[ $took =~ ^[0-9]+$ ]] && echo "$took" >>"$1"
}
soak_stops() { # COUNT FILE HOW OPTIONS...: of random ranks; the rank that was dropped comes back with the next job
    local left=$1 file=$2 how=$3 members
    shift 3
    while [ "$left" -gt 0 ]; do
        begin -n 4 "$@"
        for members in $(shuf -i 0-3 -n 3); do
            [ "$left" -gt 0 ] || break
            strike "$how" "$(stop_command "$members")" "$members"
            note "$file"
            left=$((left - 1))
        done
        end
    done
}
soak_cuts() { # COUNT FILE: three of four hosts, one after the other
    local left=$1 host
    while [ "$left" -gt 0 ]; do
        begin -H "$net.1:1,$net.2:1,$net.3:1,$net.4:1" --rsh "$here/remote_shell.py" --elastic
        for host in $(shuf -i 1-4 -n 3); do
            [ "$left" -gt 0 ] || break
            strike dropped "$(cut_command "$host")" $((host - 1))
            note "$2"
            left=$((left - 1))
        done
        end
        mend
    done
}
soak_data_cuts() { # COUNT FILE: one host of a lab of four, whose remote shells still work
    local left=$1 host
    for ((; left > 0; left--)); do
        begin --lab hosts=4,rate=1gbit -n 4 --elastic
        host=$((RANDOM % 4))
        strike dropped "ip -n gw${launcher}h$host link set eth0 down" "$host"
        note "$2"
        end
    done
}
soak() {
    local stops=${1:-100} cuts=${2:-50}
    touch "$top/dropped" "$top/back" "$top/cuts" "$top/data"
    soak_stops $((stops / 2)) "$top/dropped" dropped --elastic
    soak_stops $((stops - stops / 2)) "$top/back" back --restarts 1000
    if make_hosts 4; then soak_cuts "$cuts" "$top/cuts"; else echo "namespaces cannot be made here"; fi
    soak_data_cuts $((cuts / 2)) "$top/data"
    printf 'deadline %s s; ms from stop or cut until every other rank had a right sum in the next generation\n' "$deadline"
    printf '%-28s %6s %8s %8s %8s %9s\n' "" count median p99 worst failures
    figures "SIGSTOP, --elastic" "$top/dropped" $((stops / 2))
    figures "SIGSTOP, --restarts" "$top/back" $((stops - stops / 2))
    figures "link cut" "$top/cuts" "$cuts"
    figures "link cut, shell works" "$top/data" $((cuts / 2))
}

if [ "$only" = soak ]; then soak "${@:3}"; else quick; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
