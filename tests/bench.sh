#!/bin/bash
# bench.sh - gradwire bench seen from outside: bench.sh BUILD_DIRECTORY [WORD]
#
# Each case is a function that prints what is wrong, or nothing. With WORD given only cases whose names contain it are
# run. Cases with a lab need root; the one beside Open MPI needs BUILD_DIRECTORY/peers.
# shellcheck disable=SC2317  # cases are called by name

build=$(cd "${1:?usage: bench.sh BUILD_DIRECTORY [WORD]}" && pwd) || exit 2
only=${2:-}
source=$(cd "$(dirname "$0")/.." && pwd) || exit 2
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
PATH=$build:$PATH
export TMPDIR=$scratch
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE GRADWIRE_BENCH NO_COLOR RANK WORLD_SIZE
passed=0 failed=0

# ---- tools ----

busy=5 # times here are those of an idle machine; on a busy one everything may take that many times as long
bench() { # ARGUMENTS...: sets $code, $out and $err
    timeout -k 1 $((20 * busy)) gradwire bench "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    out=$(cat "$scratch/out") err=$(cat "$scratch/err")
}
is() { [ "$2" = "$3" ] || printf '%s is %s\nnot %s\n' "$1" "$2" "$3"; }                # WHAT GOT WANTED
has() { [[ $2 =~ $3 ]] || printf '%s is %s\nand does not match %s\n' "$1" "$2" "$3"; } # WHAT GOT PATTERN
until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1 * busy))
    shift
    until "$@"; do
        [ "$SECONDS" -le "$end" ] || return 1
        sleep 0.05
    done
}
workers() { # processes of benchmarks of this test, by their side channel
    grep -slaF "GRADWIRE_BENCH=$scratch/" /proc/[0-9]*/environ | cut -d/ -f3
}
no_workers() { [ -z "$(workers)" ]; }
ended() { ! kill -0 "$1" 2>/dev/null; }
clean() { # nothing of any benchmark is left
    until_true 10 no_workers || echo "processes are left: $(workers)"
    compgen -G "$scratch/gradwire-bench-*" || return 0
}
start() { # ARGUMENTS...: in the background, as $driver, until rank processes measure
    : >"$scratch/out" # without the output of the last one
    env --default-signal=INT gradwire bench "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    driver=$!
    until_true 10 measures || echo "it does not begin to measure: $(cat "$scratch/err")"
}
measures() { grep -q '(us)' "$scratch/out"; }
finish() {
    until_true 15 ended "$driver" || { echo "it does not end"; kill -9 "$driver"; }
    wait "$driver" 2>/dev/null
    code=$?
    out=$(cat "$scratch/out") err=$(cat "$scratch/err")
}
traces() { # remains of labs, found by their names
    { ip netns list; ip -o link; } 2>/dev/null | grep -oE "\bgw$1[hbp][0-9]*"
}
no_traces() { [ -z "$(traces "$1")" ]; }

# ---- cases ----

case_table() {
    bench allreduce -n 2 -b 4K -e 64K -f 4 --iters 5 --check
    is "exit code" "$code" 0
    is "standard error" "$err" ""
    has "the first line" "$(sed -n 1p "$scratch/out")" \
        '^# gradwire [0-9.]+ bench allreduce: 2 ranks, buffers of gw_alloc$'
    has "the second line" "$(sed -n 2p "$scratch/out")" \
        'cores, Linux .* congestion control [a-z]+, [0-9]{4}-[0-9]{2}-[0-9]{2}'
    has "the header" "$(sed -n 3p "$scratch/out")" \
        '^ +size +count +type +redop +root +time +algbw +busbw +#wrong +p10 +p90 +cpu$'
    is "sizes and wrong elements" "$(awk 'NR > 4 { print $1, $2, $3, $4, $5, $9 }' "$scratch/out")" \
        "4096 1024 f32 sum -1 0
16384 4096 f32 sum -1 0
65536 16384 f32 sum -1 0"
    is "lengths of lines" "$(sed -n '5,$p' "$scratch/out" | awk '{ print length }' | sort -u | wc -l)" 1
    has "colour in a pipe" "${out//[^$'\033']/}" '^$'
}

case_every_collective() {
    local collective
    for collective in allreduce reduce_scatter allgather reduce broadcast gather scatter alltoall barrier; do
        bench $collective -n 3 -b 12000 -e 12000 --root 1 --iters 2 --check --json
        is "exit code of $collective" "$code" 0
        has "$collective" "$out" "^\{\"library\": \"gradwire\", \"collective\": \"$collective\", .*\"wrong\": 0, "
    done
}

case_types_and_operations() {
    local pair
    for pair in f16:avg bf16:sum i8:prod u8:avg i64:min f64:max; do
        bench allreduce -n 2 -b 1K -e 1K --dtype ${pair%:*} --op ${pair#*:} --iters 2 --check --json --memory malloc
        has "$pair" "$out" \
            "\"type\": \"${pair%:*}\", \"redop\": \"${pair#*:}\", .*\"memory\": \"malloc\", .*\"wrong\": 0, "
    done
}

# A result that is rounded in the work area, of a message that arrives in several chunks.
case_pieces_of_narrow_types() {
    local dtype transport
    for dtype in bf16 i8; do
        for transport in shm tcp; do
            bench reduce_scatter -n 3 --arch halving --transport $transport -d $dtype -o avg --memory malloc -b 2M \
                -e 2M --iters 5 --check
            is "exit code, $dtype over $transport" $code 0
        done
    done
}

# Codecs whose payloads are reduced in flight, and one whose payloads are not.
case_codecs() {
    bench allreduce -n 2 -b 64K -e 64K --compress 'fp16 randomk int8' --iters 3 --check
    is "exit code" "$code" 0
    is "codecs and wrong elements" "$(awk '$6 == "gradwire" { print $7, $12 }' "$scratch/out")" "auto 0
fp16 0
randomk 0
int8 0"
}

case_json() {
    command -v python3 >/dev/null || return 0
    bench allreduce -n 2 -b 4K -e 64K -f 16 --iters 5 --json --transport tcp
    python3 - "$scratch/out" <<'END' 2>&1
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["bytes"] for row in rows] == [4096, 65536], rows
for row in rows:
    assert row["library"] == "gradwire" and row["transport"] == "tcp" and row["arch"] == "auto", row
    assert row["ranks"] == 2 and row["wrong"] == 0 and row["calls"] == 5, row
    assert 0 < row["p10_us"] <= row["time_us"] <= row["p90_us"], row
    assert row["cpu_us"] > 0, row
    assert abs(row["algbw_gbs"] - row["bytes"] / row["time_us"] / 1e3) < 0.01, row
    assert abs(row["busbw_gbs"] - row["algbw_gbs"]) < 0.001, row
END
}

case_all_architectures() {
    bench allreduce -n 3 -b 64K -e 64K --arch all --iters 3
    is "exit code" "$code" 0
    is "architectures" "$(awk '$6 == "gradwire" { print $7, $12 }' "$scratch/out" | head -4)" "auto 0
ring 0
halving 0
tree 0"
    is "the first ratio" "$(awk '$7 == "auto" { print $NF }' "$scratch/out")" 1.00
    bench broadcast -n 2 -b 64K -e 64K --arch all --iters 3
    is "who broadcasts" "$(awk '$6 == "gradwire" { print $7 }' "$scratch/out" | grep -c ring)" 0
    clean
}

refused() { # PATTERN ARGUMENTS...
    local pattern=$1
    shift
    bench "$@"
    is "exit code of $*" "$code" 2
    is "output of $*" "$out" ""
    has "message of $*" "$err" "^gradwire bench: .*$pattern"
}

case_wrong_flags() {
    refused 'which collective' -n 2
    refused 'unknown collective "allredcue" \(did you mean "allreduce"' allredcue
    refused '-b is larger than -e' allreduce -b 1M -e 4K
    refused '--root 2 is not one of the ranks' reduce -n 2 --root 2
    refused 'rign.*ring' allreduce --arch rign
    refused '--dtype cannot be "f8"' allreduce --dtype f8
    refused '--memory cannot be "gpu"' allreduce --memory gpu
    refused 'unknown library in --against "nccl"' allreduce --against openmpi,nccl
    refused 'f32 sums only' allreduce --against openmpi --dtype f64
    refused 'hosts=4,rate=1gbit.*not "speed=3"' allreduce --lab speed=3
    refused 'too few for a lab of 4 hosts' allreduce --lab hosts=4 -n 2
}

case_as_ranks_of_another_job() {
    timeout $((20 * busy)) gradwire run -n 2 --no-prefix -- gradwire bench allgather -b 8K -e 8K --iters 3 --check \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    is "exit code" "$?" 0
    is "one table" "$(awk '!/^#/ { print $1, $2, $9 }' "$scratch/out" | tail -n +3)" "8192 1024 0"
    timeout $((20 * busy)) gradwire run -n 1 --no-prefix -- gradwire bench allreduce -n 4 >"$scratch/out" 2>"$scratch/err"
    is "exit code with -n" "$?" 2
    has "message" "$(cat "$scratch/err")" "a rank of a job already"
}

case_a_worker_that_dies() {
    start allreduce -n 3 -b 1M -e 1M --iters 10000
    local victim
    victim=$(for p in $(workers); do
        tr '\0' '\n' <"/proc/$p/environ" | grep -qx RANK=2 && echo "$p"
    done | head -1)
    kill -9 "$victim" || echo "there is no rank 2"
    finish
    is "exit code" "$code" 1
    has "message" "$err" "gradwire bench: .*rank [0-2]"
    has "the launcher's message" "$err" "rank 2 on host .* was killed by signal 9"
    clean
}

case_interrupted() {
    start allreduce -n 2 -b 1M -e 1M --iters 10000
    kill -INT "$driver"
    finish
    is "exit code" "$code" 130
    clean
}

case_killed() {
    start allreduce -n 2 -b 1M -e 1M --iters 10000
    kill -9 "$driver"
    finish
    until_true 10 no_workers || echo "processes are left: $(workers)"
    rm -rf "$scratch"/gradwire-bench-*
}

# Not every root can enter a namespace that it made: not in a chroot, for one.
can_lab() {
    local probe=gwprobe$$ code
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null && ip netns add "$probe" 2>/dev/null || return
    ip netns exec "$probe" true 2>/dev/null
    code=$?
    ip netns del "$probe" 2>/dev/null
    return "$code"
}

case_lab() {
    can_lab || return 0
    timeout $((20 * busy)) gradwire bench allreduce --lab hosts=3,rate=200mbit -b 64K -e 64K --iters 3 --check \
        >"$scratch/out" 2>"$scratch/err" </dev/null &
    driver=$!
    finish
    is "exit code" "$code" 0
    is "standard error" "$err" ""
    has "the lab's line" "$out" '# lab: 3 hosts, links of 200 Mbit/s'
    is "the result" "$(awk '!/^#/ { print $1, $9 }' "$scratch/out" | tail -1)" "65536 0"
    # 4/3 of the bytes leave each host: 87 KB at 25 MB/s, less what the bucket lets through at once
    has "busbw" "$(awk '!/^#/ { print ($8 < 0.25 ? "shaped" : $8) }' "$scratch/out" | tail -1)" '^shaped$'
    clean
}

case_lab_is_taken_down() {
    can_lab || return 0
    local signal
    for signal in INT KILL; do
        start allreduce --lab hosts=2,rate=100mbit -b 1M -e 1M --iters 10000
        # env has become gradwire itself, so the names of the lab hold this number
        [ -n "$(traces "$driver")" ] || echo "there is no lab to take down"
        kill -s $signal "$driver"
        finish
        until_true 10 no_traces "$driver" || echo "after $signal there is left: $(traces "$driver")"
        until_true 10 no_workers || echo "after $signal processes are left: $(workers)"
        rm -rf "$scratch"/gradwire-bench-*
    done
}

case_lab_without_root() {
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || return 0
    chmod 755 "$scratch"
    mkdir -m 777 "$scratch/open"
    cp "$build/gradwire" "$scratch/open/"
    TMPDIR=$scratch/open setpriv --reuid=65534 --clear-groups "$scratch/open/gradwire" bench allreduce --lab hosts=2 \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    is "exit code" "$?" 1
    has "message" "$(cat "$scratch/err")" '^gradwire bench: a lab of network namespaces can be made by root only'
}

case_against_openmpi() {
    [ -x "$build/peers/peer_openmpi" ] || return 0
    bench allreduce -n 2 -b 64K -e 64K --against openmpi --transport shm --iters 20 --check
    is "exit code" "$code" 0
    is "rows" "$(awk '!/^#/ { print $6, $12 }' "$scratch/out" | tail -2)" "gradwire 0
openmpi 0"
    clean
}

case_against_gloo() {
    [ -x "$build/peers/peer_gloo" ] || return 0
    bench allreduce -n 2 -b 64K -e 64K --against gloo --transport tcp --iters 5 --check
    is "rows" "$(awk '!/^#/ { print $6, $12 }' "$scratch/out" | tail -2)" "gradwire 0
gloo 0"
    clean
}

case_peer_that_is_not_built() {
    mkdir "$scratch/bare"
    cp "$build/gradwire" "$scratch/bare/"
    timeout $((20 * busy)) "$scratch/bare/gradwire" bench allreduce -n 2 --against mpich >"$scratch/out" 2>"$scratch/err" </dev/null
    is "exit code" "$?" 1
    has "message" "$(cat "$scratch/err")" 'there is no .*/peers/peer_mpich to compare with: `make bench-peers`'
    clean
}

# ---- gradwire bench step ----

profile() { # LINE...: a small profile, as $scratch/small.csv
    { echo "layer,kind,parameter_bytes,forward_us,backward_us"; printf '%s\n' "$@"; } >"$scratch/small.csv"
}
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$scratch/out"; } # NAME: of every line of JSON
all_true() { awk "!($1) { print \"not: $1: \" \$0 }"; } # CONDITION: of every line of numbers

case_step_every_schedule() {
    profile 0,conv,4096,500,500 1,pool,0,100,100 2,conv,400000,500,500 3,dense,1000,500,500
    bench step --model "$scratch/small.csv" -n 2 --steps 4 --json
    is "exit code" "$code" 0
    is "schedules" "$(field schedule | tr '\n' ' ')" "fifo wfbp mgwfbp p3 bytescheduler tictac dear delayed "
    is "wrong" "$(field wrong | sort -u)" 0
    is "compute" "$(field compute_ms | sort -u)" 3.200
    paste <(field step_ms) <(field compute_ms) <(field exposed_ms) |
        all_true '$1 >= $2 * 0.99 && $3 > $1 - $2 - 0.002 && $3 < $1 - $2 + 0.002'
}

# One layer: nothing hides its exchange. Two: the first layer's cannot be hidden, and of the second's only what takes no
# longer than backward and forward of the first.
case_step_bound() {
    profile 0,conv,4000000,1000,1000
    bench step --model "$scratch/small.csv" -n 2 --schedule wfbp --steps 4 --json --transport tcp
    paste <(field bound_ms) <(field compute_ms) <(field communication_ms) |
        all_true '$1 > $2 + $3 - 0.003 && $1 < $2 + $3 + 0.003'
    profile 0,conv,1000000,100000,1000 1,conv,3000000,100000,1000
    bench step --model "$scratch/small.csv" -n 2 --schedule wfbp --steps 4 --json --transport tcp --scale 0.5
    paste <(field bound_ms) <(field compute_ms) <(field communication_ms) |
        awk '{ more = $3 * 3 / 4 - 50.5; print $1, $2, $2 + $3 / 4 + (more > 0 ? more : 0) }' |
        all_true '$2 == 101 && $1 > $3 - 0.003 && $1 < $3 + 0.003'
}

case_step_ratio_and_shrink() {
    profile 0,conv,4000000,1000,1000 1,conv,4000000,1000,1000
    bench step --model "$scratch/small.csv" -n 2 --schedule fifo,wfbp:fuse=1 --steps 4 --json --ratio 0.5 --shrink 4
    paste <(field compute_ms) <(field communication_ms) | all_true '$1 > $2 * 2 - 0.003 && $1 < $2 * 2 + 0.003'
    is "buckets" "$(field buckets | tr '\n' ' ')" "1 2 "
    has "bytes" "$(bench step --model "$scratch/small.csv" -n 2 --schedule fifo --steps 4 --shrink 4; echo "$out")" \
        '1.91 MiB of gradients in 2 tensors, 2 ranks'
}

case_step_tuned() {
    profile 0,conv,4000,200,200 1,conv,400000,200,200
    bench step --model "$scratch/small.csv" -n 2 --schedule wfbp,tictac,p3:slice=64K --steps 4 --json --tune on
    is "exit code" "$code" 0
    is "schedules" "$(sed -n 's/.*"schedule": "\([^"]*\)".*/\1/p' "$scratch/out" | tr '\n' ';')" \
        "wfbp;wfbp, tuned;tictac;p3:slice=64K;"
    is "who was tuned" "$(field trials | sed 's/[1-9][0-9]*/some/' | tr '\n' ' ')" "0 some 0 0 "
    field trials | all_true '$1 <= 15'
    is "wrong" "$(field wrong | sort -u)" 0
}

# What a worker pulls under ssp is not the mean of one step: nothing to compare it with.
case_step_unchecked() {
    profile 0,conv,4000,200,200
    bench step --model "$scratch/small.csv" -n 2 --schedule wfbp --steps 4 --arch ps --sync ssp
    is "exit code" "$code" 0
    has "result" "$out" ' -$'
}

# A model that has a name needs no file.
case_step_named_model() {
    bench step --model resnet50 --shrink 4096 --scale 0.001 -n 2 --schedule wfbp --steps 4 --json
    is "exit code" "$code" 0
    is "profile" "$(field profile)" resnet50
    is "compute" "$(field compute_ms)" 0.253
}

case_step_mistakes() {
    profile 0,conv,4000,200,200
    local wrong=("--schedule wfbp" "--model $scratch/none.csv" "--model $scratch/small.csv --schedule quick"
        "--model $scratch/small.csv --ratio 1 --scale 2" "--model $scratch/small.csv --scale 0"
        "--model $scratch/small.csv -n 2 --lab hosts=4" "--model $scratch/small.csv --tune maybe"
        "--model $scratch/small.csv --schedule=" "--model $scratch/small.csv --schedule wfbp,dear --arch ps"
        "--profile $scratch/small.csv")
    local sentence=("which model" "none.csv" '"quick" is not .* schedule|no schedule|unknown' "give it or --scale"
        "is not a number above 0" "too few for a lab of 4 hosts" "off, on"
        "names nothing to compare" "arch=ps with schedule=dear: a server answers" "--profile is --model now")
    for i in "${!wrong[@]}"; do
        # shellcheck disable=SC2086  # options are words
        bench step ${wrong[i]}
        is "exit code of ${wrong[i]}" "$code" 2
        has "message of ${wrong[i]}" "$err" "${sentence[i]}"
    done
}

# bench/guard.py over a program that prints canned figures; the file TIMES makes codecs slower by so much.
guard() { # ARGUMENTS...: sets $code and $out
    out=$("$source/bench/guard.py" "$scratch/canned" --file "$scratch/guard.csv" "$@" 2>&1)
    code=$?
}
canned_program() {
    mkdir -p "$scratch/canned"
    cat >"$scratch/canned/gradwire" <<'END'
#!/bin/bash
slow=$(cat "$(dirname "$0")/TIMES")
case $2 in
codec) echo "{\"codec\": \"$3\", \"encode_gbs\": $(awk "BEGIN { print 20 / $slow }"), \"decode_gbs\": 30, \"memcpy_gbs\": 40}" ;;
step) echo '{"schedule": "wfbp", "step_ms": 20, "compute_ms": 15}' ;;
*) echo '{"library": "gradwire", "bytes": 1024, "time_us": 2}'; echo '{"library": "bound", "bytes": 1024, "time_us": 1}' ;;
esac
END
    chmod +x "$scratch/canned/gradwire"
    echo "$1" >"$scratch/canned/TIMES"
}

case_guard() {
    canned_program 1
    rm -f "$scratch/guard.csv"
    guard
    is "exit code without a record" "$code" 2
    has "what it says" "$out" 'has no ratios of .*--record'
    guard --record
    is "exit code of a record" "$code" 0
    is "heading" "$(head -1 "$scratch/guard.csv")" 'cpu;row;ratio;date'
    has "a codec" "$(grep onebit "$scratch/guard.csv")" ';onebit encode beside memcpy;0\.5;[0-9-]+'
    has "a step" "$(grep step "$scratch/guard.csv")" ';step wfbp shm beside its compute;0\.75;'
    has "a collective" "$(grep allreduce "$scratch/guard.csv")" ';allreduce shm malloc 1024 beside bound;0\.5;'
    echo 1.09 >"$scratch/canned/TIMES"
    guard
    is "exit code 8 % below" "$code" 0
    echo 1.13 >"$scratch/canned/TIMES"
    guard
    is "exit code 12 % below" "$code" 1
    is "rows that fell" "$(grep -c '^guard: .* encode beside memcpy fell to 0.442 from 0.500 of .*: 0.88 of it' <<<"$out")" 7
    is "other rows" "$(grep '^guard:' <<<"$out" | grep -vc encode)" 0
    lines=$(wc -l <"$scratch/guard.csv")
    guard --record
    is "lines after another record" "$(wc -l <"$scratch/guard.csv")" "$lines"
    guard
    is "exit code after it" "$code" 0
    sed -i 's/^[^;]*;/another CPU;/' "$scratch/guard.csv"
    guard
    is "exit code with another CPU's" "$code" 2
}

# What bench/train_peers.py tells of turns that were measured elsewhere.
turns_of() { # WAY SECURITY SECONDS...: a line for each turn
    local turn=0 seconds
    for seconds in "${@:3}"; do
        echo "{\"model\": \"gpt\", \"batch\": 2, \"hosts\": 2, \"rate\": \"1gbit\", \"asked\": \"auto\", \"date\": \"2026-11-19\"," \
            "\"turn\": $turn, \"way\": \"$1\", \"step_s\": $seconds, \"cpu_s\": 0.1, \"stolen\": 0, \"off\": null," \
            "\"security\": \"$2\", \"strategy\": \"\", \"torch\": \"2.13\"}"
        turn=$((turn + 1))
    done
}

case_train_peers() {
    { turns_of ddp clear 0.3 0.4 0.6; turns_of auto mac 0.2 0.4 0.3; turns_of auto clear 0.1; } >"$scratch/turns"
    out=$("$source/bench/train_peers.py" "$scratch" --turns 0 --results "$scratch/turns" --json "$scratch/json" --svg "$scratch/svg" 2>&1)
    is "exit code" $? 0
    has "the heading" "$out" '# gpt, batch 2 a rank, 2 ranks, 2 hosts, 1gbit; torch 2.13'
    has "ddp" "$out" $'\nddp +clear +3 +400.0 +300.0 +600.0 +100.0 +1.00\n'
    has "auto: the median of its ratios in each turn" "$out" $'auto +mac +3 +300.0 .* 1.50 +1.50 of ddp \\(1.00 to 2.00\\)'
    has "a row of its own for another security" "$out" $'auto +clear +1 +100.0 .* 3.00 of ddp'
    is "rows of JSON" "$(grep -c '"way"' "$scratch/json")" 3
    is "bars" "$(grep -c '<rect .*fill-opacity' "$scratch/svg")" 3
}

for name in $(declare -F | sed -n 's/^declare -f case_//p'); do
    [[ $name == *"$only"* ]] || continue
    problem=$("case_$name" 2>&1)
    if [ -z "$problem" ]; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        printf '%s\n' "$problem" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
