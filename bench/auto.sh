#!/usr/bin/env bash
# auto.sh BUILD_DIRECTORY [replay|real|predicted|safe|watch|rate]... - strategy=auto beside twenty lines: on replayed models and real
# trainings in a lab (root), and on predicted ones; and what it does when the rate of the links drops to a tenth. The tables
# of bench/results/auto.md; all of it takes about half an hour on two free cores.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gradwire=$(cd "${1:?usage: auto.sh BUILD_DIRECTORY [replay|real|predicted|safe|watch|rate]...}" && pwd)/gradwire || exit 2
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sizes=fifo,wfbp,wfbp:fuse=1M,wfbp:fuse=25M,dear,dear:fuse=1M,dear:fuse=2M,p3,p3:slice=512K,p3:slice=1M,bytescheduler
sizes+=,bytescheduler:slice=256K,credit=1M,mgwfbp,tictac # with the next five and auto's own: twenty
more=wfbp,dear,p3,bytescheduler,fifo

# Replayed models: name, shrink, scale, lab, architecture beside auto, words of the line.
replays=(
    'inception4;24;0.5;hosts=3,rate=300mbit;ring;'
    'gpt2;96;0.2;hosts=4,rate=1gbit;ring;'
    'bench/profiles/gnmt.csv;64;1;hosts=2,rate=500mbit;hierarchical;'
    'bert-large;200;0.05;hosts=2,rate=100mbit;ring;accuracy=safe'
)

rows() { # WORDS LAB MODEL SHRINK SCALE RANKS SCHEDULES OPTIONS...: "label ms" for each
    local words=$1 lab=$2 model=$3 shrink=$4 scale=$5 ranks=$6 schedules=$7
    shift 7
    "$gradwire" bench step --model "$model" --shrink "$shrink" --scale "$scale" --lab "$lab" -n "$ranks" --steps "${steps:-12}" \
        --schedule "$schedules" --strategy "$words" "$@" 2>>"$scratch/errors" |
        awk '/^#/ { print > "/dev/stderr"; next } $1 == "SCHEDULE" { next } { print $1, $2 }'
}

verdict() { # CELL FILE [LINES]: auto beside the best, of so many
    awk -v cell="$1" -v given="${3:-0}" '$1 == "auto" { auto = $2; next } !best || $2 < best { best = $2; name = $1 } { lines++ }
        END { printf "%-44s auto %8.1f ms   best of %2d %8.1f ms  %-34s %.3f\n", cell, auto, given ? given : lines, best, name, auto / best }' "$2"
}

replay() {
    local cell model shrink scale lab arch words hosts ranks
    for cell in "${replays[@]}"; do
        IFS=';' read -r model shrink scale lab arch words <<<"$cell"
        hosts=${lab#hosts=} hosts=${hosts%%,*} ranks=$hosts
        [ "$arch" = hierarchical ] && ranks=$((2 * hosts))
        [ -f "$here/../$model" ] && model=$here/../$model
        rows "$words" "$lab" "$model" "$shrink" "$scale" "$ranks" "auto,$sizes" >"$scratch/cell" 2>"$scratch/chosen"
        rows "fixed" "$lab" "$model" "$shrink" "$scale" "$ranks" "$more" --arch "$arch" 2>/dev/null |
            sed "s/^/$arch:/" >>"$scratch/cell"
        # Those that are safe with every optimiser: a replay has none.
        [ -n "$words" ] && for codec in fp16 int8 qsgd:bits=8 qsgd:bits=4; do
            rows "fixed" "$lab" "$model" "$shrink" "$scale" "$ranks" wfbp,dear --compress "$codec" 2>/dev/null |
                sed "s/^/$codec:/" >>"$scratch/cell"
        done
        verdict "${model##*/} / $shrink, $lab, $ranks ranks $words" "$scratch/cell"
        grep 'auto:' "$scratch/chosen"
    done
}

# Real trainings: model, ranks, lab, steps of a run with auto, words of the line.
reals=('mlp;4;hosts=4,rate=100mbit;160;' 'lenet;2;hosts=2,rate=30mbit;160;' 'cnn;4;hosts=2,rate=300mbit;120;'
    'resnet20 --data cifar10;2;hosts=2,rate=100mbit;90;')
lines=(schedule=fifo schedule=wfbp schedule=wfbp:fuse=25M schedule=dear schedule=p3 schedule=bytescheduler schedule=mgwfbp
    'schedule=tictac' 'arch=ring schedule=wfbp' 'arch=ring schedule=dear' 'arch=ring schedule=p3' 'arch=ring schedule=bytescheduler'
    'arch=halving schedule=wfbp' 'arch=halving schedule=dear' 'arch=hierarchical schedule=wfbp' 'arch=hierarchical schedule=dear'
    'arch=hierarchical schedule=p3' 'arch=tree schedule=wfbp' 'schedule=dear:fuse=256K' 'schedule=wfbp:fuse=256K')

# Reads the JSON of a run: milliseconds of a step, the median of what is reported, from step FROM on (TO, if it is given, is
# the last), EVERY steps at a time.
step_ms() { # EVERY FROM [TO]
    awk -v every="$1" -v from="$2" -v to="${3:-1e9}" '
        function field(name) { return match($0, "\"" name "\": [0-9.e+-]+") ? substr($0, RSTART + length(name) + 4, RLENGTH) + 0 : 0 }
        /"event": "step"/ && field("step") > from && field("step") <= to {
            print (field("compute_ms") + field("waiting_ms")) / every }' | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) printf "%.2f\n", v[int((NR + 1) / 2)] }'
}

train_ms() { # MODEL(WITH OPTIONS) RANKS LAB LINE STEPS: of the last half
    # shellcheck disable=SC2086  # the model and its options are words
    "$gradwire" run -n "$2" --lab "$3" --no-prefix -- "$gradwire" train --model $1 --steps "$5" --log-every 5 --json \
        --strategy "$4" 2>>"$scratch/errors" | step_ms 5 "$(($5 / 2))"
}

median_of() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# The best four of a first round run again, as long as auto, in three turns with it.
real() {
    local cell model ranks lab steps words line turn
    for cell in "${reals[@]}"; do
        IFS=';' read -r model ranks lab steps words <<<"$cell"
        for line in "${lines[@]}"; do
            echo "$(train_ms "$model" "$ranks" "$lab" "strategy=fixed $line" "$((steps / 3))" </dev/null);$line"
        done | grep -v '^;' | sort -g >"$scratch/first"
        { echo 'auto;auto'; head -4 "$scratch/first"; } >"$scratch/again"
        : >"$scratch/turns"
        for turn in 1 2 3; do
            while IFS=';' read -r _ line; do
                if [ "$line" = auto ]; then echo "auto $(train_ms "$model" "$ranks" "$lab" "$words" "$steps" </dev/null)"
                else echo "$(tr ' ' '/' <<<"$line") $(train_ms "$model" "$ranks" "$lab" "strategy=fixed $line" "$steps" </dev/null)"; fi
            done <"$scratch/again" >>"$scratch/turns"
        done
        cut -d' ' -f1 "$scratch/turns" | sort -u | while read -r line; do
            echo "$line $(awk -v line="$line" '$1 == line { print $2 }' "$scratch/turns" | median_of)"
        done >"$scratch/cell"
        verdict "$model trains, $lab, $ranks ranks $words" "$scratch/cell" "${#lines[@]}"
    done
}

coded_lines=('compress=fp16 schedule=dear' 'compress=int8 schedule=dear' 'compress=int8:feedback=both schedule=dear'
    'compress=qsgd:bits=4 schedule=dear' 'compress=onebit schedule=dear' 'compress=onebit schedule=wfbp'
    'compress=powersgd:rank=4 schedule=dear' 'compress=powersgd:rank=4 schedule=wfbp' 'compress=powersgd:rank=2 schedule=dear'
    'compress=powersgd:rank=2 schedule=wfbp')

predicted_cell() { # MODEL RANKS PER_HOST WORDS CELL NETWORK TRUE MEASURED: what is chosen with the links that a job might measure
    local where=(--model "$1" --ranks "$2" --per-host "$3") per_host=$3 words=$4 cell=$5 network=$6 line best auto
    line=$("$gradwire" predict "${where[@]}" "$network" "$8" --compare auto --strategy "$words" --json | head -1 |
        sed 's/.*"strategy": "\([^"]*\)".*/\1/')
    where+=("$network" "$7")
    auto=$("$gradwire" predict "${where[@]}" --json --strategy "$line" | sed 's/.*"step_ms": \([0-9.e+]*\).*/\1/')
    best=$(for line in "${lines[@]}" 'schedule=p3:slice=1M' 'schedule=bytescheduler:slice=1M,credit=4M' \
        ${words:+"${coded_lines[@]}"}; do
        case $line in *hierarchical*) [ "$per_host" = 1 ] && continue ;; esac
        "$gradwire" predict "${where[@]}" --json --strategy "$line" 2>/dev/null | sed 's/.*"step_ms": \([0-9.e+]*\).*/\1/'
    done | sort -g | head -1)
    awk -v cell="$cell" -v auto="$auto" -v best="$best" \
        'BEGIN { printf "%-60s auto %9.2f ms   best %9.2f ms   %.3f\n", cell, auto, best, auto / best }'
}

machines_with_slow_link() { # RATE SLOW: four hosts, and a slow link, both ways, between two of them
    printf 'gradwire-machines 1\nrate %s\nlatency 50e-6\nlink 0 1 50e-6 %s\nlink 1 0 50e-6 %s\n' "$1" "$2" "$2"
    printf "link %d %d 50e-6 $1\\n" 0 2 0 3 1 2 1 3 2 0 2 1 2 3 3 0 3 1 3 2
    echo end
}

# Jobs in a lab measure 0.95 of the rate and up to twice the latency.
predicted() {
    local model net place words ranks hosts
    machines_with_slow_link 125e6 25e6 >"$scratch/true.machines"
    machines_with_slow_link 119e6 23e6 >"$scratch/measured.machines"
    for model in inception4 bert-large gpt2; do
        for net in '100mbit,100us 95mbit,200us' '300mbit,50us 285mbit,100us' '1gbit,50us 950mbit,100us' '10gbit,30us 9.5gbit,60us' \
            '100gbit,10us 95gbit,20us'; do
            for place in '2 1' '8 2'; do
                ranks=${place% *} hosts=$((${place% *} / ${place#* })) words=''
                [ "${net% *}" = 300mbit,50us ] && words=accuracy=safe
                predicted_cell "$model" "$ranks" "${place#* }" "$words" "$model, $ranks ranks on $hosts hosts, ${net% *} $words" \
                    --link "${net% *}" "${net#* }"
            done
        done
        for place in '4 1' '8 2'; do
            ranks=${place% *} hosts=$((${place% *} / ${place#* }))
            predicted_cell "$model" "$ranks" "${place#* }" '' "$model, $ranks ranks on $hosts hosts, 1gbit, one link a fifth" \
                --machines "$scratch/true.machines" "$scratch/measured.machines"
        done
    done
}

# What watching costs: auto, once it has chosen, beside the line that it chose, in turns in one run; and the watch of a codec
# (accuracy=safe), in runs that alternate. The compute of these steps is short, so that a share of them is soon seen.
watched=(gnmt.csv 256 0.1 hosts=2,rate=1gbit)

# What accuracy=safe saves where the wire is slow.
safe() {
    local model exact safe
    for model in mlp lenet cnn 'gpt --data bible --optimizer adamw --clip 1 --batch 32' 'resnet20 --data cifar10'; do
        exact=$(train_ms "$model" 4 hosts=4,rate=100mbit '' 80)
        safe=$(train_ms "$model" 4 hosts=4,rate=100mbit accuracy=safe 80)
        awk -v model="${model%% *}" -v exact="$exact" -v safe="$safe" \
            'BEGIN { printf "%-10s accuracy=exact %8.1f ms   accuracy=safe %8.1f ms   %.2f times as fast\n", model, exact, safe, exact / safe }'
    done
}

watched_ms() { # STRATEGY SCHEDULES: median step of each, on a line
    "$gradwire" bench step --model "$here/profiles/${watched[0]}" --shrink "${watched[1]}" --scale "${watched[2]}" \
        --lab "${watched[3]}" -n 2 --steps 300 --json --schedule "$2" --strategy "$1" 2>>"$scratch/errors" |
        sed 's/.*"strategy": "\([^"]*\)".*"step_ms": \([0-9.]*\).*/\2 \1/' | cut -d' ' -f1 | tr '\n' ' '
}

watch() {
    local chosen turn
    chosen=$("$gradwire" bench step --model "$here/profiles/${watched[0]}" --shrink "${watched[1]}" --scale "${watched[2]}" \
        --lab "${watched[3]}" -n 2 --steps 4 --schedule auto --strategy 'arch=ring compress=none' 2>>"$scratch/errors" |
        sed -n 's/^# auto:.* schedule=\([^ ]*\).*/\1/p')
    for turn in 1 2 3; do
        watched_ms 'arch=ring compress=none' "auto,$chosen" |
            awk -v line="$chosen" '{ printf "auto watches %.3f ms a step, %s %.3f ms: %.4f\n", $1, line, $2, $1 / $2 }'
    done
    for turn in 1 2 3 4 5; do
        echo "$(watched_ms 'arch=ring compress=onebit' wfbp) $(watched_ms 'arch=ring compress=onebit accuracy=safe' wfbp)"
    done | awk '{ printf "a watched codec %.3f ms a step, not watched %.3f ms: %.4f\n", $2, $1, $2 / $1 }'
}

# A training whose links drop to a tenth of their rate, and come back: when it decides, and how long its steps take.
shape_all() { # RATE: of both ends of each link of the lab
    local host port shaping=()
    for host in $(ip netns list | awk '/^gw[0-9]+h/ { print $1 }'); do
        ip netns exec "$host" tc qdisc change dev eth0 root tbf rate "$1" burst 82000 limit 330000 &
        shaping+=("$!")
    done
    for port in $(ip -o link show type veth | sed -n 's/^[0-9]*: \(gw[0-9]*p[0-9]*\)[@:].*/\1/p'); do
        tc qdisc change dev "$port" root tbf rate "$1" burst 82000 limit 330000 2>/dev/null &
        shaping+=("$!")
    done
    wait "${shaping[@]}"
}

steps_done() { grep -c '"event": "step"' "$scratch/steps"; }

decided() { # FILE FROM TO: the steps in which something was decided for good, not tried
    awk -v from="$2" -v to="$3" '/^# tried/ { tried = 1; next } /^step/ { if (!tried && $2 >= from && $2 < to) printf "%d ", $2 - from
        tried = 0 }' "$1"
}

rated_exact=(schedule=wfbp schedule=dear schedule=p3 schedule=bytescheduler schedule=tictac 'arch=ring schedule=dear')
rated_coded=('compress=onebit schedule=wfbp' 'compress=powersgd:rank=2 schedule=wfbp' 'compress=powersgd:rank=2 schedule=dear'
    'compress=powersgd:rank=4 schedule=wfbp' 'compress=int8 schedule=wfbp' 'compress=int8 schedule=dear'
    'compress=onebit schedule=dear' 'compress=qsgd:bits=4 schedule=wfbp')

fastest_at() { # RATE STEPS LINE...: the fastest of the lines, the best three in a longer run
    local rate=$1 steps=$2 line
    shift 2
    for line in "$@"; do
        echo "$(train_ms cnn 3 "hosts=3,rate=$rate" "strategy=fixed $line" 30);$line"
    done | sort -g | head -3 | cut -d';' -f2 >"$scratch/first"
    while read -r line; do
        echo "$(train_ms cnn 3 "hosts=3,rate=$rate" "strategy=fixed $line" "$steps" </dev/null) ms, $line"
    done <"$scratch/first" | sort -g | sed "s/^/at $rate: /"
}

rate_of() { # WORDS STEPS LINE...: of the strategy; steps of the fastest lines
    local words=$1 file=$scratch/decisions job low high
    shift
    rm -f "$file"
    "$gradwire" run -n 3 --lab hosts=3,rate=300mbit --no-prefix --decisions "$file" -- "$gradwire" train --model cnn --epochs 100 \
        --log-every 1 --json --strategy "$words" >"$scratch/steps" 2>"$scratch/said" &
    job=$!
    sleep 15
    shape_all 30mbit
    low=$(steps_done)
    sleep 40
    shape_all 300mbit
    high=$(steps_done)
    sleep 15
    kill "$job"
    wait "$job" 2>/dev/null
    echo "${words:-exact}, 300 Mbit/s: $low steps, of $(step_ms 1 $((low - 50)) "$low" <"$scratch/steps") ms at the end"
    echo "30 Mbit/s: decided after steps $(decided "$file" "$low" "$high"), $(step_ms 1 $((high - 20)) "$high" <"$scratch/steps") ms at the end"
    echo "300 Mbit/s: decided after steps $(decided "$file" "$high" 1000000), $(step_ms 1 $(($(steps_done) - 50)) <"$scratch/steps") ms at the end"
    grep 'strategy=auto' "$scratch/said"
    fastest_at 300mbit "$@"
    fastest_at 30mbit "$@"
}

rate() {
    rate_of '' 40 "${rated_exact[@]}"
    rate_of accuracy=safe 200 "${rated_coded[@]}"
}

[ $# = 0 ] && set -- replay real predicted safe watch rate
for part in "$@"; do
    echo "# $part"
    "$part"
done
