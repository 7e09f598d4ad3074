#!/usr/bin/env bash
# train.sh - gradwire train seen from outside: train.sh BUILD_DIRECTORY [KILLS [CASE]]
#
# The loss does not depend on the number of workers, runs repeat bit for bit, checkpoints resume bit for bit, and a
# worker that is killed (KILLS times, at random steps; default 1) is named at once.
set -uo pipefail
build=$(cd "${1:?usage: train.sh BUILD_DIRECTORY [KILLS [CASE]]}" && pwd) || exit 2
kills=${2:-1} only=${3:-}
gradwire=$build/gradwire
top=$(mktemp -d) || exit 2
trap 'rm -rf "$top"' EXIT
unset GRADWIRE_STRATEGY GRADWIRE_LOG GRADWIRE_LIVE
cd "$top" || exit 2
if "$gradwire" train --help 2>&1 | grep -q 'built without oneDNN'; then
    echo "this build has no trainer"
    echo "1 passed, 0 failed"
    exit 0
fi
passed=0 failed=0

train() { # NAME OPTIONS...: JSON into NAME.json, sentences into NAME.err
    local name=$1
    shift
    timeout -k 1 300 "$gradwire" train --json "$@" >"$name.json" 2>"$name.err" </dev/null
}
losses() { sed -n 's/.*"event": "step".*"loss": \([^,]*\),.*/\1/p' "$1.json"; }
last() { sed -n "s/.*\"event\": \"end\".*\"$2\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$1.json"; } # NAME FIELD
is() { [ "$2" = "$3" ] || echo "$1 is $2, not $3"; }                                      # WHAT GOT WANTED
holds() { awk "BEGIN { exit !($2) }" || echo "$1: $2 does not hold"; }                       # WHAT CONDITION
has() { grep -qE -- "$2" "$1" || { echo "$1 does not match $2:"; head -n 5 "$1"; }; }     # FILE PATTERN
near() { # NAME NAME STEPS: loss curves agree to 1e-3
    paste <(losses "$1") <(losses "$2") | awk -v a="$1" -v b="$2" -v steps="$3" '
        NF != 2 { print "curves " a " and " b " have different lengths"; exit }
        { d = $1 - $2; if (d < 0) d = -d; if (d > worst) { worst = d; at = NR } }
        END { if (NR != steps) print NR " steps of " a ", not " steps
              if (!(worst <= 1e-3)) print a " and " b " differ by " worst " at step " at }'
}

small=(--data synthetic:count=1200,seed=3 --batch 24 --steps 100 --epochs 2 --log-every 1 --lr 0.02 --warmup 10)

# Whole pictures count in synthetic data, so nothing is pooled.
printf 'input 28 28 1\nconv 8 3 stride 2 relu\nflatten\ndense 64 relu\ndense 10\n' >conv.model
printf 'input 28 28 1\nconv 8 3 stride 2 relu\nconv 8 3 stride 2 relu\nflatten\ndense 32 relu\ndense 10\n' >deep.model

# ---- cases: each prints what is wrong, or nothing ----

same_loss_for_any_number_of_workers() {
    local n model
    for model in mlp ./conv.model; do
        for n in 1 2 3 4; do train "$(basename $model)$n" -n $n --model $model "${small[@]}" || echo "exit code $?"; done
        model=$(basename $model)
        for n in 2 3 4; do near "${model}1" "$model$n" 100; done
        holds "$model learns" "$(last "${model}4" test_accuracy) > 0.8"
    done
}
same_loss_for_any_number_of_stages() {
    local way
    train alone -n 1 --model ./deep.model "${small[@]}"
    for way in 2:2 4:4 4:2; do # workers : stages
        train "way$way" -n ${way%:*} --model ./deep.model "${small[@]}" --parallel pipeline:stages=${way#*:},micro=8 ||
            echo "exit code $?"
        near alone "way$way" 100
    done
    is "weights of 2 and 4 stages" "$(last way2:2 weights)" "$(last way4:4 weights)"
    has way4:2.err 'stage 1: [a-z]+[0-9] to dense2, [0-9]+ % of the measured time'
}
a_pipeline_goes_on() { # bit for bit with the same stages; the file does not mind others
    local same=(--model ./deep.model --data synthetic:count=600 --batch 24 --epochs 2 --optimizer adam --clip 1)
    local stages=(-n 4 --parallel pipeline:stages=2,micro=3)
    train whole "${stages[@]}" "${same[@]}"
    train first "${stages[@]}" "${same[@]}" --checkpoint line.gw --steps 33
    cp line.gw other.gw
    train second "${stages[@]}" "${same[@]}" --checkpoint line.gw --resume
    is "resumed" "$(last second weights)" "$(last whole weights)"
    train third -n 2 "${same[@]}" --checkpoint other.gw --resume || echo "without stages: exit code $?"
    has third.err 'resuming from other.gw: epoch 2, update 33'
    holds "loss without stages" "($(last third loss) - $(last second loss)) ^ 2 < 1e-6"
}
values_that_are_not_finite_end_it() {
    local bad=(-n 2 --model mlp --data synthetic:count=600 --batch 24 --steps 8 --log-every 4 --lr 1e25 --warmup 0)
    train stops "${bad[@]}"
    is "exit code" $? 1
    has stops.err 'the loss on rank [01] is (not a number|infinite) in step [0-9]+: '
    train stage "${bad[@]}" --parallel pipeline:stages=2,micro=2
    is "exit code of a pipeline" $? 1
    has stage.err '(the loss|the gradient of .*) on rank [01] is '
    train goes "${bad[@]}" --allow-nonfinite || echo "--allow-nonfinite: exit code $?"
    has goes.err 'warn: rank 0: the loss on rank 0 is '
    has goes.json '"event": "end".* "loss": null, '
    grep -iE 'nan|inf' goes.json
}
uneven_shares_and_accumulation() {
    train whole -n 1 --model mlp "${small[@]}" --batch 25 --steps 60
    train parts -n 4 --model mlp "${small[@]}" --batch 25 --steps 60
    near whole parts 60
    train factors -n 4 --model mlp "${small[@]}" --batch 25 --steps 60 --strategy arch=sfb
    near whole factors 60
    train windows -n 2 --model mlp "${small[@]}" --batch 5 --accumulate 5 --steps 60
    near whole windows 60
    train few -n 4 --model mlp --data synthetic:count=10 --batch 3 --epochs 4 --log-every 1
    train one -n 1 --model mlp --data synthetic:count=10 --batch 3 --epochs 4 --log-every 1
    near few one 16
}
same_bits_again() {
    train once -n 3 --model ./conv.model "${small[@]}" --clip 1
    train again -n 3 --model ./conv.model "${small[@]}" --clip 1
    is "the second run" "$(last again weights)" "$(last once weights)"
    cmp <(losses once) <(losses again)
    train other -n 3 --model ./conv.model "${small[@]}" --clip 1 --seed 2
    [ "$(last other weights)" != "$(last once weights)" ] || echo "another seed gives the same weights"
}
every_optimiser_learns() {
    local name
    for name in sgd adam adamw lars lamb; do
        train "$name" -n 2 --model mlp --data synthetic:count=2400 --optimizer $name --epochs 3 --schedule linear
        holds "$name learns" "$(last $name test_accuracy) > 0.8"
    done
}
resume_is_bit_for_bit() {
    local optimiser
    printf 'input 28 28 1\nconv 6 5 stride 2 nobias\nbatchnorm relu\nglobalpool\ndense 10\n' >norm.model
    for optimiser in sgd adam; do
        local same=(-n 2 --model ./norm.model --data synthetic:count=1200 --batch 24 --epochs 2 --optimizer $optimiser
            --checkpoint-every 7)
        train whole "${same[@]}" --checkpoint whole.$optimiser
        train first "${same[@]}" --checkpoint part.$optimiser --steps 66
        train second "${same[@]}" --checkpoint part.$optimiser --resume
        has second.err 'resuming from part.*: epoch 2, update 66'
        is "$optimiser, resumed" "$(last second weights)" "$(last whole weights)"
        is "its accuracy" "$(last second test_accuracy)" "$(last whole test_accuracy)"
    done
    train third -n 3 "${same[@]:2}" --checkpoint part.adam --resume
    has third.err '2 workers wrote it, now there are 3'
    train other "${same[@]}" --checkpoint part.adam --resume --seed 9
    is "exit code of another run" $? 2
    has other.err 'part.adam is of another run, of --model ./norm.model'
    truncate -s -100 part.adam
    train torn "${same[@]}" --checkpoint part.adam --resume || echo "a torn file is not replaced by the one before"
    is "after a torn file" "$(last torn weights)" "$(last whole weights)"
}
strategies_resume_bit_for_bit() {
    local strategy
    for strategy in 'sync=delayed:warmup=5' 'compress=dgc schedule=dear' \
        'sync=periodic:every=7,outer=0.7 compress=onebit' 'arch=ps:servers=2 compress=topk schedule=p3'; do
        local same=(-n 3 --model lenet --data synthetic:count=1200 --batch 60 --strategy "$strategy" --checkpoint-every 10)
        rm -f coded.whole* coded.part*
        train whole "${same[@]}" --steps 30 --checkpoint coded.whole
        train first "${same[@]}" --steps 10 --checkpoint coded.part
        train second "${same[@]}" --steps 30 --checkpoint coded.part --resume
        is "$strategy, resumed" "$(last second weights)" "$(last whole weights)"
    done
    train another -n 3 --model lenet --data synthetic:count=1200 --batch 60 --steps 32 --checkpoint coded.part --resume
    has another.err 'codecs and synchronization is reset'
    train fewer -n 2 --model lenet --data synthetic:count=1200 --batch 60 --strategy 'compress=topk' --steps 10 \
        --checkpoint coded.few
    train fewer -n 3 --model lenet --data synthetic:count=1200 --batch 60 --strategy 'compress=topk' --steps 12 \
        --checkpoint coded.few --resume || echo "other workers: exit code $?"
    has fewer.err 'residuals of codecs are spread evenly'
}
clips_under_every_synchronization() {
    local strategy
    for strategy in 'sync=periodic:every=4' 'sync=delayed:warmup=4' 'arch=ps:servers=2 sync=ssp'; do
        train clipped -n 2 --model mlp "${small[@]}" --strategy "$strategy" --clip 1
        holds "$strategy, clipped" "$(last clipped test_accuracy) > 0.8"
    done
}

unwritable_checkpoint_is_reported_first() {
    train nowhere -n 2 --model mlp --data synthetic:count=600 --epochs 1 --checkpoint "$top/nowhere/x.gw"
    is "exit code" $? 1
    has nowhere.err 'nowhere/x.gw.writing cannot be written: No such file'
    is "epochs trained" "$(grep -c epoch nowhere.json)" 0
}
target_stops() {
    train target -n 2 --model mlp --data synthetic:count=1200 --batch 24 --epochs 50 --target-accuracy 0.9
    holds "reached" "$(last target test_accuracy) >= 0.9 && $(last target target_s) > 0"
    holds "stops early" "$(last target step) < 2500"
}
text_trains() {
    for i in $(seq 400); do echo "the quick brown fox jumps over the lazy dog, $((i % 7)) times."; done >fox.txt
    train text -n 2 --model gpt --data ./fox.txt --layers 1 --heads 2 --embedding 32 --context 32 --optimizer adam \
        --lr 0.01 --batch 8 --epochs 2 --clip 1
    holds "predicts bytes" "$(last text test_accuracy) > 0.5"
}
what_a_person_sees() {
    timeout 300 "$gradwire" train -n 2 --model mlp --data synthetic:count=600 --epochs 2 >plain.txt 2>&1 </dev/null
    has plain.txt '^mlp \(235146 parameters\) on synthetic:count=600: 600 examples, 2 epochs, batch 128 over 2 workers'
    has plain.txt '^epoch 2/2 .*loss [0-9.]+ +test accuracy [0-9.]+ % .*examples/s .*compute .*waiting .*sent '
    has plain.txt '^sent per worker +0 B in total: gradients are reduced in shared memory; over a network 919 KiB'
    has plain.txt '^what to do +[a-z].* % of '
    grep -q $'\r' plain.txt && echo "a pipe gets a line that moves"
    if command -v script >/dev/null; then
        timeout 300 script -qec "$gradwire train -n 2 --model mlp --data synthetic:count=6000 --epochs 2" live.txt \
            >/dev/null 2>&1 </dev/null
        grep -qF $'\033[Kepoch 1/2 [' live.txt || echo "a terminal gets no line that moves"
    fi
    timeout 300 "$gradwire" train --quiet --model mlp --data synthetic:count=600 --epochs 1 >quiet.txt 2>&1 </dev/null
    is "lines of --quiet" "$(wc -l <quiet.txt)" 1
    python3 -c 'import json, sys
for line in open(sys.argv[1]): json.loads(line)' mlp1.json 2>&1 | tail -n 1
    has mlp1.json '"event": "end".*"advice": \[\]'
    has mlp2.json '"event": "end".*"advice": \[\{"kind": "[a-z -]+", "gain": [0-9.]+, "strategy": null, "accuracy": null, "text": "'
}
a_trial_chooses_and_its_file_repeats_it() {
    local job=(--model mlp --data synthetic:count=6000,seed=3 --epochs 3 --steps 60)
    timeout 120 "$gradwire" tune -n 2 -o tuned --strategy transport=tcp -- "$gradwire" train "${job[@]}" >tune.txt 2>&1 </dev/null ||
        { echo "gradwire tune: exit code $?"; cat tune.txt; }
    has tune.txt 'gradwire: strategy=auto, step [0-9]+: '
    has tune.txt '^written to tuned: run the job with --decisions tuned$'
    "$gradwire" explain --why tuned >why.txt
    has why.txt '^from step 8, tried: arch='
    has why.txt '^predicted +measured +strategy$'
    train again1 -n 2 --decisions tuned --strategy transport=tcp "${job[@]}"
    train again2 -n 2 --decisions tuned --strategy transport=tcp "${job[@]}"
    is "weights of a run that is repeated" "$(last again1 weights)" "$(last again2 weights)"
    train other -n 3 --decisions tuned --strategy transport=tcp "${job[@]}" && echo "a file of another job is taken"
    has other.err 'tuned holds decisions for another job'
    train pinned -n 2 --decisions tuned --strategy 'transport=tcp schedule=fifo' "${job[@]}" && echo "a file replaces what is named"
    has pinned.err 'the file of decisions has schedule=[a-z]+.*, and the strategy names schedule=fifo'
    timeout 60 "$gradwire" tune -o early -n 1 -- true >early.txt 2>&1 && echo "a job without steps is tuned"
    has early.txt 'the job ended before a strategy was chosen'
}
asked_wrongly() {
    local words
    for words in '--model nonsense' '--data nonsense' '--lr fast' '--lr -1' '--optimizer sdg' '--schedule cosin' \
        '--batch 0' '--resume' '--checkpoint-every 5' '--strategy arch=rong' '--target-accuracy 91' '--frobnicate' \
        'word' '-n 0' '--model gpt --data synthetic' '--momentum nan' '--parallel model' '--parallel pipeline:stages=0' \
        '--model mlp --parallel pipeline:stages=4' '-n 3 --parallel pipeline:stages=2'; do
        # shellcheck disable=SC2086  # several words
        timeout 120 "$gradwire" train --data synthetic:count=100 $words >out.txt 2>err.txt </dev/null
        is "exit code of $words" $? 2
        [ -s err.txt ] || echo "$words: nothing is said"
    done
}

# The processes of a job that writes the checkpoint $1, as "PID RANK" lines.
workers() {
    local file pid
    for file in $(grep -slaF "$1" /proc/[0-9]*/cmdline); do
        pid=${file#/proc/}
        pid=${pid%/cmdline}
        { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | sed -n "s/^RANK=/$pid /p"
    done
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
await_steps() { # COUNT: until the job that writes k.json has made so many; at most 2 minutes
    local i
    for ((i = 0; i < 12000; i++)); do
        [ -f k.json ] && [ "$(grep -c '"event": "step"' k.json)" -ge "$1" ] && return
        sleep 0.01
    done
}
killed_worker() { # the job ends long before the deadline of 30 s, names the rank, and resumes to the same bits
    local options=(-n 3 --model ./conv.model --data synthetic:count=9600 --batch 24 --epochs 2 --checkpoint-every 10)
    train undisturbed "${options[@]}" --checkpoint "$top/undisturbed.gw"
    for ((k = 1; k <= kills; k++)); do
        local file=$top/killed$k.gw victim pid rank job after started
        after=$((1 + RANDOM % 300))
        rm -f k.json
        "$gradwire" train --json --log-every 1 "${options[@]}" --checkpoint "$file" >k.json 2>k.err </dev/null &
        job=$!
        await_steps 1
        victim=$(workers "$file" | shuf -n 1)
        read -r pid rank <<<"$victim"
        [ -n "${rank:-}" ] || { echo "no worker is found"; kill "$job"; continue; }
        await_steps $after
        kill -9 "$pid"
        started=$(now_ms)
        wait "$job" && echo "the job ends well without rank $rank"
        [ $(($(now_ms) - started)) -le 10000 ] || echo "the job took $(($(now_ms) - started)) ms to end"
        has k.err "rank $rank .*(killed|went away|lost|signal)"
        train resumed "${options[@]}" --checkpoint "$file" --resume || { echo "resuming: exit code $?"; cat resumed.err; }
        is "kill $k of rank $rank after step $after: weights" "$(last resumed weights)" "$(last undisturbed weights)"
    done 2> >(grep -v ' Killed ' >&2)
}

for case in same_loss_for_any_number_of_workers same_loss_for_any_number_of_stages a_pipeline_goes_on \
    values_that_are_not_finite_end_it \
    uneven_shares_and_accumulation same_bits_again every_optimiser_learns resume_is_bit_for_bit \
    strategies_resume_bit_for_bit clips_under_every_synchronization unwritable_checkpoint_is_reported_first \
    target_stops text_trains what_a_person_sees a_trial_chooses_and_its_file_repeats_it \
    asked_wrongly killed_worker; do
    [[ $case == *"$only"* ]] || continue
    began=$(now_ms)
    wrong=$($case 2>&1)
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
        echo "ok   $case ($(($(now_ms) - began)) ms)"
    else
        failed=$((failed + 1))
        echo "FAIL $case"
        sed 's/^/    /' <<<"$wrong"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
