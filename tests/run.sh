#!/bin/bash
# run.sh - gradwire run seen from outside: run.sh BUILD_DIRECTORY [WORD]
#
# Real jobs of small shell programs. Each case is a function that prints what is wrong, or nothing. With WORD given only
# cases whose names contain it are run. As root, and where namespaces can be made, two of them stand in for hosts.
# shellcheck disable=SC2016  # what stands in single quotes is for the ranks

build=$(cd "${1:?usage: run.sh BUILD_DIRECTORY [WORD]}" && pwd) || exit 2
only=${2:-}
gradwire=$build/gradwire
top=$(mktemp -d) || exit 2
scratch=$top      # a directory of its own for each case
forever=97531.$$  # seconds to sleep, and how processes are found; each case adds its number
printf '%s' "$forever" >"$scratch/marker"
spaces=()
clean_up() {
    for process in $(processes); do kill -9 "$process"; done
    for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null; done
    rm -rf "$top"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
unset GRADWIRE_STRATEGY GRADWIRE_PORTS GRADWIRE_LOG NO_COLOR
passed=0 failed=0
# shellcheck source=tests/launch_tools.sh
. "$(dirname "$0")/launch_tools.sh"

# ---- cases ----

environment_local() {
    run -n 2 --strategy arch=ring --deadline 500ms --interface =lo --log info -- bash -c \
        'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR ${#GRADWIRE_TOKEN} \
        $GRADWIRE_STRATEGY $GRADWIRE_DEADLINE $GRADWIRE_INTERFACE $GRADWIRE_LOG "$PWD"'
    is code "$code" 0
    is output "$(sort <<<"$out")" "[0] 0 2 0 2 0 127.0.0.1 64 arch=ring 0.5 =lo info $PWD
[1] 1 2 1 2 0 127.0.0.1 64 arch=ring 0.5 =lo info $PWD"
}
environment_of_the_launcher() {
    export GRADWIRE_LOG=debug GRADWIRE_TOKEN=old GRADWIRE_TOKEN_FILE=/old GRADWIRE_LISTEN_FD=77
    run -n 1 --rsh "sh -c 'shift; exec env -i \"\$@\"' sh" -H far -- /bin/sh -c \
        'echo $GRADWIRE_LOG ${#GRADWIRE_TOKEN} x$GRADWIRE_TOKEN_FILE x$GRADWIRE_LISTEN_FD'
    unset GRADWIRE_LOG GRADWIRE_TOKEN GRADWIRE_TOKEN_FILE GRADWIRE_LISTEN_FD
    is output "$out" "[0] debug 64 x x"
}
server_processes() {
    run -n 2 --servers 2 -- bash -c 'echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GRADWIRE_SERVERS'
    is code "$code" 0
    is output "$(sort <<<"$out")" "[0] 0 2 2 2
[1] 1 2 2 2"
    run -n 2 --servers 1 --strategy arch=ring -- true
    is code "$code" 2
    has sentence "$err" 'which are for arch=ps'
    begin_training
    kill -9 "$server"
    finish
    is code "$code" 137
    has sentence "$err" 'gradwire: server [01] on host [^ ]+ was killed by signal 9'
    has sentence "$err" 'rank [23] on [^ ]+ \(server [01]\) is gone'
}
# A job of two workers and two server processes; $server is one of these.
start_training() { # EPOCHS PROGRAM OPTIONS...
    start -n 2 --servers 2 --deadline 10 "${@:3}" -- "$2" train --data synthetic --model mlp --epochs "$1"
    find_server() {
        server=$(pgrep -P "$(pgrep -d, -P "$launcher" || echo 1)" -f 'gradwire server$' | head -1)
        [ -n "$server" ]
    }
    until_true 10 find_server || echo "no server was started"
}
begin_training() { # OPTIONS...
    start_training 1000 "$gradwire" "$@"
    until_true 20 grep -q '] epoch 1/' "$scratch/out" || echo "training does not begin"
}
none_serves() { ! pgrep -P "$supervisor" -f 'gradwire (server|train)' >/dev/null; }
server_processes_and_signals() {
    local signal supervisor since
    for signal in INT TERM; do
        begin_training
        supervisor=$(pgrep -d, -P "$launcher")
        since=$(clock)
        kill -s "$signal" "$launcher"
        finish
        within "$since" 5000
        is code "$code" "$([ "$signal" = INT ] && echo 130 || echo 143)"
        has sentence "$err" 'gradwire: ended by signal'
        until_true 3 none_serves || echo "servers or workers are left"
    done
}
server_processes_that_fail() {
    local since wrapper=$scratch/wrapper
    printf '#!/bin/sh\n[ "$1" = server ] && { echo "cannot load" >&2; exit 3; }\nexec %s "$@"\n' "$gradwire" >"$wrapper"
    chmod +x "$wrapper"
    since=$(clock)
    run -n 2 --servers 1 --remote-path "$wrapper" -- "$gradwire" train --data synthetic --model mlp --quiet
    within "$since" 6000
    is code "$code" 3
    has sentence "$err" 'server 0\] cannot load.*gradwire: server 0 on host [^ ]+ ended with exit code 3'
    begin_training --elastic --strategy sync=asp
    since=$(clock)
    kill -9 "$server"
    finish
    within "$since" 6000
    is code "$code" 137
    has sentence "$err" 'and no other takes its place: --restarts N starts a server again'
    begin_training --restarts 1 --strategy sync=asp
    since=$(clock)
    kill -9 "$server"
    finish
    within "$since" 9000
    is code "$code" 1
    has sentence "$err" '\[[01]\] gradwire train: [^[]*server [01] is lost with what it knew: arch=ps:snapshot=N'
    run -n 2 --elastic -- "$gradwire" train --data synthetic --model mlp --strategy 'arch=ps compress=topk'
    is code "$code" 2
    has sentence "$err" 'a push cannot be encoded twice'
    # Before the first step there is nothing to lose: the workers wait with theirs until the server was killed.
    printf '#!/bin/sh\nuntil [ -e %s/go ]; do sleep 0.02; done\nexec %s "$@"\n' "$scratch" "$gradwire" >"$wrapper"
    start_training 1 "$wrapper" --restarts 1 --strategy sync=asp
    kill -9 "$server"
    touch "$scratch/go"
    finish
    is code "$code" 0
    has output "$out" 'epoch 1/1 '
    # During the start it may come before or after, and the message differs.
    start_training 1 "$gradwire" --restarts 1 --strategy sync=asp
    kill -9 "$server"
    finish
    if [ "$code" = 0 ]; then has output "$out" 'epoch 1/1 '; else
        is code "$code" 1
        has sentence "$err" 'server [01] is lost with what it knew: arch=ps:snapshot=N'
    fi
}
socket_of_rank_0() {
    run -n 2 -- bash -c 'if [ $RANK = 0 ]; then
        [[ $(readlink /proc/$$/fd/$GRADWIRE_LISTEN_FD) == socket:* ]] && echo has
        until [ -e '"$scratch/reached"' ]; do sleep 0.02; done
        else exec 5<>/dev/tcp/$MASTER_ADDR/$GRADWIRE_MASTER_PORT && echo reached ${GRADWIRE_LISTEN_FD-none}
        touch '"$scratch/reached"'; fi'
    is output "$(sort <<<"$out")" "[0] has
[1] reached none"
    run --ports 29510-29519 -- bash -c 'echo $GRADWIRE_MASTER_PORT $GRADWIRE_PORTS'
    has output "$out" '^\[0\] 295[0-9][0-9] 29510-29519$'
}
token_is_on_no_command_line() {
    run -H a:1,b:1 --rsh "sh -c 'shift; exec \"\$@\"' sh" -- bash -c \
        'printf %s "$GRADWIRE_TOKEN" >"'"$scratch"'/token.$RANK"; sleep 0.3
         grep -slaF -f "'"$scratch"'/token.$RANK" /proc/[0-9]*/cmdline; exit 0'
    is output "$out$err" ""
    is tokens "$(cat "$scratch/token.1")" "$(cat "$scratch/token.0")"
}
exit_codes() {
    run -n 2 -- true; is true "$code" 0
    run -n 3 -- sh -c 'exit $((RANK == 1 ? 42 : 0))'; is exit "$code" 42
    has sentence "$err" '^gradwire: rank 1 on host [^ ]+ ended with exit code 42 after [0-9.]+ s$'
    run -n 2 -- sh -c 'test $RANK = 1 && kill -SEGV $$; sleep 5'; is signal "$code" 139
    has sentence "$err" 'rank 1 on host [^ ]+ was killed by signal 11 \(Segmentation fault.*\) after [0-9.]+ s$'
}
wrong_use() {
    local words
    while IFS='|' read -r words code_wanted sentence; do
        eval "run $words"
        is "code of $words" "$code" "$code_wanted"
        has "sentence of $words" "$err" "^gradwire( run)?: ${sentence}[^"$'\n'"]*\$"
    done <<'CASES'
-n 0 true|2|--ranks cannot be "0"
-n x true|2|--ranks cannot be "x"
-n 2|2|no program to run is given
-H a:x true|2|"x" is not a number of slots for host a
-H a -n 2 true|2|2 ranks do not fit into the 1 slots
-H a --hostfile b true|2|give only one of --hosts, --hostfile and --lab
--hostfile /nonexistent true|2|cannot read the host file /nonexistent: No such file
--ports 9-1 true|2|.*9-1
--strategy arch=rign true|2|.*rign
--log loud true|2|--log cannot be "loud"
--grace -1 true|2|--grace cannot be "-1"
--wrong true|2|unknown option "--wrong"
-n 3 /nonexistent|127|cannot start /nonexistent on host .* as rank 0: No such file or directory
-n 3 no-such-program-here|127|cannot start no-such-program-here on host .*: No such file or directory
-n 3 /etc/passwd|126|cannot start /etc/passwd on host .*: Permission denied
-H far --rsh 'exit 255; ' true|255|cannot reach host far: the remote shell ended with exit code 255
-H far --remote-path /no/gw --rsh 'sh -c "shift; exec \"\$@\" 2>/dev/null" sh' true|255|cannot start /no/gw on host far
CASES
}
streams_and_labels() {
    run -n 2 -- sh -c 'echo out $RANK; echo err $RANK >&2; printf "tail %s" $RANK'
    is output "$(sort <<<"$out")" "$(printf '[0] out 0\n[0] tail 0\n[1] out 1\n[1] tail 1')"
    is errors "$(sort <<<"$err")" "$(printf '[0] err 0\n[1] err 1')"
}
bytes_without_labels() {
    head -c 3000000 /dev/urandom >"$scratch/bytes"
    "$gradwire" run --no-prefix -- cat "$scratch/bytes" | cmp - "$scratch/bytes"
}
lines_are_not_mixed() {
    run -n 4 -- bash -c 'for i in {1..300}; do printf "%0*d\n" $((i * 37 % 9000 + 1)) 0 | tr 0 $RANK
        printf "%0300d\n" 0 | tr 0 $RANK >&2; done'
    is code "$code" 0
    is "mixed lines" "$(cat "$scratch/out" "$scratch/err" | tr -s 0-3 | grep -cvE '^\[([0-3])\] \1$')" 0
    is lines "$(cat "$scratch/out" "$scratch/err" | wc -l)" 2400
}
colours() {
    local term
    has "on a terminal" "$(TERM=xterm script -qec "$gradwire run -n 1 echo hi" /dev/null)" \
        $'\033\[[0-9]+m\[0\]\033\[0m hi'
    for term in "TERM=xterm NO_COLOR=1" "TERM=dumb"; do
        # shellcheck disable=SC2086  # several words
        has "$term" "$(env $term script -qec "$gradwire run -n 1 echo hi" /dev/null)" '^\[0\] hi'
    done
}
first_failure_ends_all() {
    local since
    since=$(clock)
    run -n 4 -- sh -c "test \$RANK = 2 && { sleep 0.2; exit 5; }; sleep $forever"
    is code "$code" 5
    has sentence "$err" "rank 2 .* exit code 5"
    nothing_left 0
    within "$since" 6000
}
survivors_have_a_moment() {
    run -n 3 -- bash -c 'if [ $RANK = 1 ]; then kill -9 $$; else sleep 0.1; echo "lost rank 1" >&2; exit 1; fi'
    is code "$code" 137
    is errors "$(head -n 2 <<<"$err" | sort)" "$(printf '[0] lost rank 1\n[2] lost rank 1')"
    has "last line" "$(tail -n 1 <<<"$err")" '^gradwire: rank 1 .* killed by signal 9 \(Killed\)'
}
the_killed_rank_is_the_cause() { # though the others end first in the eyes of the launcher
    run -n 4 -- bash -c 'if [ $RANK = 3 ]; then sleep 0.3; kill -9 $$; else sleep 0.25; exit 1; fi'
    is code "$code" 137
}
stubborn_ranks_are_killed() {
    local since
    since=$(clock)
    run -n 2 --grace 0.3 -- bash -c "trap '' TERM; [ \$RANK = 0 ] && exit 3; while :; do sleep $forever; done"
    is code "$code" 3
    nothing_left 0
    within "$since" 6000
}
polite_ranks_may_end_in_their_way() {
    run -n 2 --grace 5 -- bash -c \
        'trap "echo saved; exit 0" TERM; [ $RANK = 0 ] && exit 3; while :; do sleep 0.05; done'
    is output "$out" "[1] saved"
}
one_session() { # or the kernel shares cores out by session, and sched_yield among ranks does nothing
    run -n 3 --no-prefix -- bash -c 'cut -d" " -f6 /proc/$$/stat'
    is code "$code" 0
    is sessions "$(sort -u <<<"$out" | wc -l)" 1
    stand_in # hosts that are one machine
    run -H alpha:1,beta:2 --rsh "$scratch/rsh" --no-prefix -- bash -c 'cut -d" " -f6 /proc/$$/stat'
    is code "$code" 0
    is ranks "$(wc -l <<<"$out")" 3
    is sessions "$(sort -u <<<"$out" | wc -l)" 1
}
lab_is_taken_down() { # at its end, and when it is terminated
    spaces_left() { ip netns list | grep -c "^gw${launcher}h"; }
    no_spaces() { [ "$(spaces_left)" = 0 ]; }
    rank_runs() { [ -n "$(ip netns pids "gw${launcher}h1" 2>/dev/null)" ]; }
    start --lab hosts=2,rate=1gbit -- true
    finish
    is code "$code" 0
    is 'namespaces left' "$(spaces_left)" 0
    start --lab hosts=2,rate=1gbit -- sleep "$forever"
    until_true 10 rank_runs || echo "the ranks do not start"
    kill -TERM "$launcher"
    finish
    until_true 5 no_spaces || echo "namespaces left after SIGTERM: $(spaces_left)"
}
grandchildren() { # in the group, in a session of their own, and after their parents went well
    run -n 2 -- bash -c \
        "sleep $forever & setsid sleep $forever & (setsid bash -c 'sleep $forever & wait' &) ; sleep 0.2"
    is code "$code" 0
    nothing_left 0
}
launcher_killed() {
    start -n 3 --grace 0.3 -- bash -c "trap '' TERM; setsid sleep $forever & sleep $forever; sleep $forever"
    until_true 5 at_least 10 || echo "the ranks did not start"
    kill -9 "$launcher"
    finish
    nothing_left 3
}
supervisor_killed() {
    start -n 3 -- bash -c "setsid sleep $forever & sleep $forever & wait"
    until_true 5 at_least 10 || echo "the ranks did not start"
    kill -9 "$(cat "/proc/$launcher/task/$launcher/children")"
    finish
    is code "$code" 255
    has sentence "$err" 'was lost with ranks 0 to 2: its supervisor ended with exit code 137'
    nothing_left 0
}
both_killed() { # then the kernel ends the ranks
    start -n 3 -- sleep "$forever"
    until_true 5 at_least 4 || echo "the ranks did not start"
    kill -9 "$launcher" "$(cat "/proc/$launcher/task/$launcher/children")"
    finish
    nothing_left 3
}
interrupt() {
    start -n 2 -- bash -c "trap 'echo caught; exit 0' INT; sleep $forever & wait"
    until_true 5 at_least 5 || echo "the ranks did not start"
    kill -INT "$launcher"
    finish
    is code "$code" 130
    is output "$(sort <<<"$out")" "$(printf '[0] caught\n[1] caught')"
    has sentence "$err" '^gradwire: ended by signal 2 \(Interrupt\)$'
    nothing_left 0
}
complaints_after_an_interrupt() {
    start -n 2 -- bash -c "trap 'echo gradwire warn: rank 9: rank 8 is gone >&2; echo saved >&2; exit 0' INT; sleep $forever & wait"
    until_true 5 at_least 5 || echo "the ranks do not start"
    kill -INT "$launcher"
    finish
    is code "$code" 130
    is lines "$(sort <<<"$err")" "[0] saved
[1] saved
gradwire: ended by signal 2 (Interrupt)"
}
wrong_variables_are_told_once() {
    local variable
    for variable in STRATEGY=arch=rng DEADLINE=soon LOG=loud QUORUM=maybe; do
        export "GRADWIRE_$variable"
        run -n 3 -- sh -c 'echo started'
        unset "GRADWIRE_${variable%%=*}"
        is "code with $variable" "$code" 2
        is "output with $variable" "$out" ''
        is "lines with $variable" "$(grep -c '' <<<"$err")" 1
    done
    run -n 3 -- "$gradwire" train --strategy arch=rng --data synthetic --model mlp
    is code "$code" 2
    is sentences "$(grep -c 'did you mean "ring"' <<<"$err")" 1
}
unknown_variables_are_told_once() {
    export GRADWIRE_STRATGY=arch=ring
    run -n 2 -- "$gradwire" train --data synthetic --model mlp --epochs 1
    unset GRADWIRE_STRATGY
    is code "$code" 0
    is sentences "$(grep -c 'GRADWIRE_STRATGY is not one of .*: did you mean GRADWIRE_STRATEGY?' <<<"$err")" 1
}
blames_the_rank_that_others_blame() {
    run -n 2 -- sh -c 'test $RANK = 0 && exit 122; sleep 1.5; exit 3'
    is code "$code" 3
    has sentence "$err" '^gradwire: rank 1 on host [^ ]+ ended with exit code 3'
    run -n 2 -- sh -c 'test $RANK = 0 && exit 122; sleep 0.1'
    is code "$code" 1
    has sentence "$err" '^gradwire: rank 0 on host [^ ]+ ended because another rank had failed'
}
output_beyond_a_limit() {
    (ulimit -f 8 && "$gradwire" run -n 1 -- sh -c 'yes | head -c 200000' >"$scratch/limited" 2>"$scratch/said")
    is code $? 1
    has sentence "$(cat "$scratch/said")" '^gradwire: cannot write the output of the ranks: File too large$'
    (ulimit -f 0 && "$gradwire" list >"$scratch/limited" 2>"$scratch/said.list") 2>"$scratch/shell"
    is "code of list" $? 1
}
interrupted_again() { ended || { kill -INT "$launcher" 2>/dev/null; sleep 0.2; ended; }; } # two may come as one
second_interrupt_kills() {
    local since
    start -n 2 --grace 60 -- bash -c "trap '' INT TERM; sleep $forever; sleep $forever"
    until_true 5 at_least 5 || echo "the ranks did not start"
    kill -INT "$launcher"
    sleep 0.2
    since=$(clock)
    until_true 5 interrupted_again || echo "the launcher waits for its ranks"
    finish
    is code "$code" 130
    nothing_left 0
    within "$since" 6000
}
terminate() {
    start -n 2 -- sleep "$forever"
    until_true 5 at_least 3 || echo "the ranks did not start"
    kill -TERM "$launcher"
    finish
    is code "$code" 143
    nothing_left 0
}
reader_goes_away() {
    timeout $((20 * busy)) "$gradwire" run -n 2 -- sh -c "while :; do echo y; done; : $forever" 2>"$scratch/err" |
        head -n 1 >"$scratch/out"
    is code "${PIPESTATUS[0]}" 141
    is errors "$(cat "$scratch/err")" ""
    nothing_left 0
}
reader_does_not_read() {
    mkfifo "$scratch/fifo"
    sleep 150 3<>"$scratch/fifo" &
    local reader=$!
    env --default-signal=INT "$gradwire" run -n 2 --grace 0.2 -- sh -c "yes; : $forever" \
        >"$scratch/fifo" 2>"$scratch/err" &
    launcher=$!
    sleep 0.5
    until_true 8 interrupted_again || echo "the launcher is stuck"
    kill "$reader"
    wait 2>/dev/null
    nothing_left 0
}
time_is_up() {
    local since
    since=$(clock)
    run -n 2 --timeout 300ms -- sleep "$forever"
    is code "$code" 124
    is errors "$err" "gradwire: the job did not end within 0.3 s (--timeout)"
    nothing_left 0
    within "$since" 6000
}
many_ranks() {
    run -n 64 -- sh -c 'echo $RANK'
    is ranks "$(sort -t'[' -k2n <<<"$out")" "$(for i in {0..63}; do echo "[$i] $i"; done)"
}
only_those_connect_who_talk() { # of 496 pairs; a barrier needs five peers of each
    run -n 32 --log debug --strategy transport=tcp --no-prefix -- "$gradwire" bench barrier --iters 1 --warmup 1
    is code "$code" 0
    local dialled
    dialled=$(grep -c 'stream 0 to rank' <<<"$out$err")
    [ "$dialled" -ge 31 ] && [ "$dialled" -le 200 ] || echo "$dialled connections among 32 ranks"
}
closed_standard_streams() {
    "$gradwire" run -n 2 -- sh -c 'echo $RANK' <&- >"$scratch/out" 2>&-
    is output "$(sort "$scratch/out")" "$(printf '[0] 0\n[1] 1')"
    "$gradwire" run -n 2 -- sh -c 'echo $RANK' >&- 2>&- <&-
    is code $? 0
}
remote_by_shell() {
    stand_in
    cp "$gradwire" "$scratch/the program's"
    printf '# hosts\nalpha slots=2\nbeta:1\n' >"$scratch/hosts"
    run --hostfile "$scratch/hosts" --rsh "$scratch/rsh" --remote-path "$scratch/the program's" --ports 29600-29700 -- \
        sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT "$@"' \
        sh "a  b" "'"
    is code "$code" 0
    is output "$(sort <<<"$out")" "[0] 0 3 0 2 0 alpha:29600 a  b '
[1] 1 3 1 2 0 alpha:29600 a  b '
[2] 2 3 0 1 1 alpha:29600 a  b '"
    is greetings "$(sort <<<"$err")" "$(printf '[alpha] Welcome to alpha\n[beta] Welcome to beta')"
}
remote_failure() {
    stand_in
    run -H alpha:2,beta:2 --rsh "$scratch/rsh" -- sh -c "test \$RANK = 2 && exit 9; sleep $forever"
    is code "$code" 9
    has sentence "$err" 'gradwire: rank 2 on host beta ended with exit code 9'
    nothing_left 0
}
one_host_unreachable() { # then nothing is started on the others
    stand_in '[ "$host" = beta ] && { sleep 0.3; echo "no route" >&2; exit 255; }'
    run -H alpha:2,beta:2 --rsh "$scratch/rsh" -- touch "$scratch/started"
    is code "$code" 255
    has sentence "$err" 'gradwire: cannot reach host beta: the remote shell ended with exit code 255'
    has "its own words" "$err" '\[beta\] no route'
    [ ! -e "$scratch/started" ] || echo "a rank was started"
}
remote_directory_missing() {
    mkdir "$scratch/here"
    stand_in "rmdir '$scratch/here'"
    cd "$scratch/here" || return
    run -H alpha --rsh "$scratch/rsh" -- true
    cd / || return
    is code "$code" 126
    has sentence "$err" "cannot enter the directory .*/here on host alpha for rank 0: No such file or directory"
}
remote_launcher_killed() {
    stand_in
    start -H alpha:2,beta:2 --rsh "$scratch/rsh" -- bash -c "setsid sleep $forever & sleep $forever"
    until_true 5 at_least 13 || echo "the ranks did not start"
    kill -9 "$launcher"
    finish
    nothing_left 3
}
host_is_lost() {
    stand_in "echo \$\$ >'$scratch/pid.'\$host"
    start -H alpha:2,beta:2 --rsh "$scratch/rsh" -- bash -c "sleep $forever & wait"
    until_true 5 at_least 9 || echo "the ranks did not start"
    kill -9 "$(cat "$scratch/pid.beta")"
    finish
    is code "$code" 255
    has sentence "$err" 'gradwire: host beta was lost with ranks 2 to 3: its remote shell ended with exit code 137'
    nothing_left 0
}

# Two namespaces joined by a wire, as $spaces.
make_spaces() {
    local a=gw$$a b=gw$$b
    spaces=("$a" "$b")
    ip netns add "$a" && ip netns add "$b" && ip link add eth0 netns "$a" type veth peer name eth0 netns "$b" &&
        ip -n "$a" addr add 10.213.77.1/24 dev eth0 && ip -n "$b" addr add 10.213.77.2/24 dev eth0 &&
        ip -n "$a" link set eth0 up && ip -n "$b" link set eth0 up
}
namespaces_as_hosts() {
    run -H "${spaces[0]}:2,${spaces[1]}:2" --rsh "ip netns exec" --master-addr 10.213.77.1 -- bash -c \
        'echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_ADDR:$MASTER_PORT \
            $(ip -o -4 addr show eth0 | cut -d" " -f7)'
    is code "$code" 0
    is output "$(sort <<<"$out")" "[0] 0 4 0 0 10.213.77.1:29500 10.213.77.1/24
[1] 1 4 1 0 10.213.77.1:29500 10.213.77.1/24
[2] 2 4 0 1 10.213.77.1:29500 10.213.77.2/24
[3] 3 4 1 1 10.213.77.1:29500 10.213.77.2/24"
}
namespace_dies() {
    start -H "${spaces[0]}:2,${spaces[1]}:2" --rsh "ip netns exec" --master-addr 10.213.77.1 -- \
        bash -c "sleep $forever & wait"
    until_true 5 at_least 9 || echo "the ranks did not start"
    ip netns pids "${spaces[1]}" | xargs kill -9 2>/dev/null # some go with their supervisor
    finish
    has sentence "$err" \
        "gradwire: (host ${spaces[1]} was lost with ranks 2 to 3|rank [23] on host ${spaces[1]} was killed by signal 9)"
    nothing_left 0
    is "processes in the other" "$(ip netns pids "${spaces[0]}")" ""
}

# ---- all of them ----

for case in environment_local environment_of_the_launcher server_processes server_processes_and_signals server_processes_that_fail complaints_after_an_interrupt wrong_variables_are_told_once unknown_variables_are_told_once \
    blames_the_rank_that_others_blame output_beyond_a_limit socket_of_rank_0 token_is_on_no_command_line exit_codes \
    wrong_use streams_and_labels bytes_without_labels lines_are_not_mixed first_failure_ends_all \
    survivors_have_a_moment the_killed_rank_is_the_cause stubborn_ranks_are_killed polite_ranks_may_end_in_their_way \
    one_session grandchildren launcher_killed supervisor_killed both_killed interrupt second_interrupt_kills terminate \
    reader_goes_away reader_does_not_read time_is_up many_ranks only_those_connect_who_talk \
    closed_standard_streams remote_by_shell remote_failure one_host_unreachable \
    remote_directory_missing remote_launcher_killed host_is_lost; do
    try "$case"
done
if command -v script >/dev/null; then try colours; else echo "skip colours: there is no script(1)"; fi
if [ "$(id -u)" = 0 ] && make_spaces 2>/dev/null; then
    try namespaces_as_hosts
    wait
    try namespace_dies
    try lab_is_taken_down
else
    echo "skip namespaces_as_hosts namespace_dies lab_is_taken_down: namespaces cannot be made here"
fi
wait
for case in "${names[@]}"; do tell "$case"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
