#!/usr/bin/env bash
# elastic_train.sh BUILD [quick]: workers of gradwire train --elastic and --restarts are killed at random moments, under
# collective architectures, schedules, codecs and synchronization. The others continue, with the same bits: at every report
# the workers compare their weights, and a job whose weights differ fails. Without quick 40 kills or more: minutes.
# SEED=N: other moments. ONLY=WORD: cases whose name has it.
set -uo pipefail
build=$(cd "${1:?usage: elastic_train.sh BUILD [quick]}" && pwd) || exit 2
quick=${2:-}
gradwire=$build/gradwire
top=$(mktemp -d) || exit 2
trap 'rm -rf "$top"' EXIT
unset GRADWIRE_STRATEGY GRADWIRE_LOG GRADWIRE_LIVE
export GRADWIRE_FLIGHT_DIR=$top
RANDOM=${SEED:-1}
passed=0 failed=0 killed=0
if "$gradwire" train --help 2>&1 | grep -q 'built without oneDNN'; then
    echo "this build has no trainer"
    echo "1 passed, 0 failed"
    exit 0
fi
cd "$top" || exit 2
printf 'input 28 28 1\nconv 6 5 stride 2 nobias\nbatchnorm relu\nflatten\ndense 32 relu\ndense 10\n' >norm.model

steps() { grep -c '"event": "step"' job.json; }
last() { sed -n "s/.*\"event\": \"end\".*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" job.json; } # FIELD
await() { # COUNT: until the job has made so many reports, or is over; at most 60 s
    local i
    for ((i = 0; i < 6000; i++)); do
        [ "$(steps)" -ge "$1" ] && return
        kill -0 "$job" 2>/dev/null || return
        sleep 0.01
    done
}
workers() { # the processes of the job, as "PID MEMBER" lines
    local file pid
    for file in $(grep -slaF "$top/job.gw" /proc/[0-9]*/cmdline); do
        pid=${file#/proc/}
        pid=${pid%/cmdline}
        { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | sed -n "s/^RANK=/$pid /p"
    done
}
find_one() { # MEMBERS: $pid and $member of one of them, at most 10 s
    local i list
    for ((i = 0; i < 100; i++)); do
        mapfile -t list < <(workers | grep -E " ($1)\$" | sort -k 2)
        [ "${#list[@]}" = 0 ] || { read -r pid member <<<"${list[RANDOM % ${#list[@]}]}"; return 0; }
        kill -0 "$job" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
kill_one() { # MEMBERS REPORTS: one of them, a moment after so many reports (0: after its start); $wrong: why not
    local pid="" member=""
    find_one "$1" || { wrong+="no worker is found"$'\n'; return; }
    await "$2"
    if [ "$2" = 0 ]; then sleep "0.$((RANDOM % 400 + 100))"; else sleep "0.0$((RANDOM % 90 + 10))"; fi
    kill -9 "$pid" 2>/dev/null || { wrong+="worker $member has ended already"$'\n'; return; }
    gone="$gone $member"
}
kill_two() { # REPORTS: the workers 1 and 2 at the same moment, after so many
    local one two
    one=$(workers | sed -n 's/ 1$//p') two=$(workers | sed -n 's/ 2$//p')
    await "$1"
    kill -9 $one $two || wrong+="two workers cannot be killed"$'\n'
    gone=" 1 2"
}
kill_some() { # KILLS MEMBERS UPDATES [back]: one after the other; back: they come back, and may be killed again
    local k members=$2
    for ((k = 1; k <= $1; k++)); do
        kill_one "$members" $((k * $3 / 6 / ($1 + 1) + RANDOM % 5))
        [ -z "$wrong" ] || return
        [ -n "$4" ] || members=$(tr '|' '\n' <<<"$members" | grep -vx "${gone##* }" | paste -sd'|')
    done
}
check() { # prints what is wrong with a job that is over
    local member
    [ "$code" = 0 ] || echo "exit code $code"
    for member in $gone; do
        grep -qE "^gradwire: rank $member on host .* killed by signal 9 .*(go on without it|started again)" job.err ||
            echo "the launcher does not say what becomes of rank $member"
    done
    awk "BEGIN { exit !(\"$(last test_accuracy)\" > 0.6) }" || echo "test accuracy is $(last test_accuracy)"
    [ "$(last step)" = "$updates" ] || echo "$(last step) updates, not $updates"
    [ "$(grep -c '"event": "end"' job.json)" = 1 ] || echo "$(grep -c '"event": "end"' job.json) ends are reported"
    if [ "$kills" = early ]; then
        grep -qE 'resuming from .*: epoch 1, update 20|takes part .* from update [2-9][0-9]' job.err || echo "the checkpoint is not read"
        ! grep -qE '"step": (5|10|15|20),' job.json || echo "it begins at the beginning"
    else
        grep -qE 'step [0-9]+ is next, on [0-9] rank|steps go on with [0-9] worker|takes part as rank 0' job.err ||
            echo "nobody says where training goes on"
    fi
}
train() { # OPTIONS...
    timeout -k 1 300 "$gradwire" train -n 4 --json --model mlp --data synthetic:count=1200,seed=3 --batch 24 \
        --epochs $epochs --log-every 5 --lr 0.02 --warmup 10 --checkpoint "$top/job.gw" --checkpoint-every 40 "$@" \
        >job.json 2>job.err </dev/null
}
# play NAME KILLS MEMBERS OPTIONS...: workers of those MEMBERS (a|b|...) are killed, one after the other. KILLS early: one,
# while they set out from a checkpoint; pair: two at once.
play() {
    local name=$1 kills=$2 members=$3 k wrong="" gone="" code=0 epochs=8 job
    shift 3
    [ -z "$quick" ] || epochs=4
    local updates=$((epochs * 50))
    [[ $name == *"${ONLY:-}"* ]] || return
    rm -f job.gw*
    : >job.json
    if [ "$kills" = early ]; then train --steps 20; fi
    train "$@" &
    job=$!
    [ "$kills" = early ] || await 1
    case $kills in
    early) kill_one "$members" 0 ;;
    pair) kill_two $((updates / 12)) ;;
    *) kill_some "$kills" "$members" "$updates" "$([[ "$*" != *--restarts* ]] || echo back)" ;;
    esac
    wait "$job" || code=$?
    wrong+=$(check)
    killed=$((killed + $(wc -w <<<"$gone")))
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
        echo "ok   $name: without$gone, accuracy $(last test_accuracy), $(last seconds) s"
    else
        failed=$((failed + 1))
        echo "FAIL $name: without$gone"
        sed 's/^/    /' <<<"$wrong"
        tail -n 30 job.err | sed 's/^/    | /'
    fi
}

play "ring" 1 '0|1|2|3' --elastic --strategy arch=ring
play "dear, topk" 1 '0|1|2|3' --elastic --strategy 'schedule=dear compress=topk:ratio=0.1'
play "delayed" 1 '0|1|2|3' --elastic --strategy 'sync=delayed:warmup=20'
play "a worker comes back" 1 '0|1|2|3' --restarts 1 --optimizer adam --lr 0.002
[ -n "$quick" ] || {
    for arch in halving tree direct hierarchical sfb; do play "$arch" 1 '0|1|2|3' --elastic --strategy "arch=$arch"; done
    for schedule in fifo wfbp mgwfbp p3 tictac bytescheduler dear; do
        play "$schedule" 1 '0|1|2|3' --elastic --strategy "schedule=$schedule"
    done
    for codec in fp16 bf16 int8 onebit qsgd terngrad topk threshold randomk doublesqueeze powersgd; do
        play "$codec" 1 '0|1|2|3' --elastic --strategy "compress=$codec"
    done
    play "dgc" 1 '0|1|2|3' --elastic --strategy compress=dgc
    play "tcp, two after each other" 2 '0|1|2|3' --elastic --strategy 'transport=tcp arch=ring'
    play "tcp, down to one, whose share is the whole batch" 3 '0|1|2|3' --elastic --strategy transport=tcp \
        --data synthetic:count=12000,seed=3 --batch 240
    play "accumulate" 1 '0|1|2|3' --elastic --batch 6 --accumulate 4
    play "tuned" 1 '0|1|2|3' --elastic --strategy schedule=wfbp --tune on
    play "delayed, dgc" 1 '0|1|2|3' --elastic \
        --strategy 'sync=delayed:warmup=20 compress=dgc'
    play "periodic" 2 '0|1|2|3' --elastic --strategy 'sync=periodic:every=4'
    play "periodic, outer, onebit" 1 '0|1|2|3' --elastic --momentum 0 \
        --strategy 'sync=periodic:every=4,outer=0.7,momentum=0.5 compress=onebit'
    play "two at once" pair '1|2' --elastic
    play "two at once, one comes back" pair '1|2' --restarts 1
    play "sfb, come back" 2 '0|1|2|3' --restarts 9 --strategy arch=sfb
    play "periodic, come back" 2 '0|1|2|3' --restarts 9 --strategy 'sync=periodic:every=4'
    play "delayed, come back" 2 '0|1|2|3' --restarts 9 --strategy 'sync=delayed:warmup=20'
    play "clip, adam, come back" 3 '0|1|2|3' --restarts 9 --clip 1 --optimizer adam --lr 0.002
    play "batch norm, come back" 3 '0|1|2|3' --restarts 9 --model ./norm.model
    play "servers, bsp" 1 '1|3' --elastic --strategy 'arch=ps:servers=2'
    play "servers, replicas, ssp, come back" 3 '0|1|2|3' --restarts 9 --strategy 'arch=ps:servers=2,replicas=1 sync=ssp'
    for k in 1 2 3 4 5; do play "resumed, $k" early '0|1|2|3' --elastic --resume; done
    for k in 1 2 3; do play "resumed, come back, $k" early '0|1|2|3' --restarts 9 --resume; done
    play "lamb, dear, topk, come back" 3 '0|1|2|3' --restarts 9 --optimizer lamb --lr 0.005 \
        --strategy 'schedule=dear compress=topk'
}
echo "$killed workers were killed"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
