#!/bin/bash
# trace.sh - recordings of real jobs seen from outside: trace.sh BUILD_DIRECTORY [WORD]
#
# Jobs that end well, jobs of which a rank is killed, jobs that are killed altogether; what `gradwire trace` says of them;
# the report in headless Chromium, where there is one; clocks of several hosts, where namespaces can be made. Each case is a
# function that prints what is wrong, or nothing.

build=$(cd "${1:?usage: trace.sh BUILD_DIRECTORY [WORD]}" && pwd) || exit 2
only=${2:-}
gradwire=$build/gradwire
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
unset GRADWIRE_TIMELINE GRADWIRE_CAPTURE GRADWIRE_STRATEGY NO_COLOR
export GRADWIRE_FLIGHT_DIR=$scratch
passed=0 failed=0
cd "$scratch" || exit 2

is() { [ "$2" = "$3" ] || printf '%s is %s\nnot %s\n' "$1" "$2" "$3"; }                # WHAT GOT WANTED
has() { [[ $2 =~ $3 ]] || printf '%s is %s\nand does not match %s\n' "$1" "$2" "$3"; } # WHAT GOT PATTERN
of() { timeout 20 "$gradwire" trace "$@" 2>&1; }
field() { of summary "$1" --json 2>/dev/null | python3 -c "import json, sys; d = json.loads(sys.stdin.read().splitlines()[-1]); print($2)"; }

# A job whose ranks leave their process numbers, and continue until something ends them.
endless() { # CAPTURE TIMELINE
    # shellcheck disable=SC2016  # the ranks' shells are to expand it
    timeout -k 1 40 "$gradwire" run -n 3 --no-prefix --strategy 'arch=ring transport=tcp' --capture "$1" --timeline "$2" -- \
        bash -c 'echo $$ >pid.$RANK; exec "$0" bench allreduce -b 1M -e 1M --iters 10000' "$gradwire" >job.out 2>&1 &
    job=$!
    for _ in $(seq 200); do
        [ -s "$1" ] && [ "$(stat -c %s "$1")" -gt 20000 ] && return 0
        kill -0 "$job" 2>/dev/null || break
        sleep 0.1
    done
    echo "the job has recorded nothing: $(cat job.out)"
}

# ---- cases ----

a_job_that_ends_well() {
    timeout 30 "$gradwire" run -n 2 --no-prefix --capture good.gwt --timeline good.json -- \
        "$gradwire" bench allreduce -b 1M -e 1M --iters 5 --transport tcp >good.out 2>&1
    is code $? 0
    is warnings "$(of summary good.gwt >/dev/null; of summary good.gwt 2>&1 | grep -c '^gradwire trace:')" 0
    has summary "$(of summary good.gwt)" '2 ranks on 1 host.*PHASE .*sent .*Links'
    has matrix "$(of matrix good.gwt)" 'FROM.*to 0.*WAITER'
    has path "$(of critical-path good.gwt)" 'on the wire .*0 > 1'
    has messages "$(of messages good.gwt --limit 3)" 'BEGIN.*3 of [0-9]+ messages'
    is "both ends of a message" "$(of messages good.gwt --limit 0 | grep -c 'not arrived\|not seen')" 0
    is "events of the timeline" "$(python3 -c '
import json
events = json.load(open("good.json"))
assert all(e["ph"] in "XbeCMi" and "pid" in e for e in events)
assert all("ts" in e and e["ts"] >= 0 for e in events if e["ph"] != "M")
assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
lanes = {}
for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["pid"], e["tid"], e["ts"], e["dur"])):
    end = lanes.get((e["pid"], e["tid"]), 0)
    assert e["ts"] >= end - 0.002, e
    lanes[e["pid"], e["tid"]] = e["ts"] + e["dur"]
print({"sent", "arrived", "waited", "operation"} <= {e.get("cat") for e in events})')" True
}

exports() {
    is csv "$(of export good.gwt -o out.csv)" "out.csv: $(field good.gwt 'd["events"]') events as CSV"
    is "lines of CSV" "$(wc -l <out.csv)" $(($(field good.gwt 'd["events"]') + 1))
    has chrome "$(of export good.gwt -o out.json)" 'Perfetto|perfetto'
    is "JSON" "$(python3 -c 'import json; print(len(json.load(open("out.json"))) > 50)')" True
}

a_killed_rank() {
    endless one.gwt one.json
    kill -9 "$(cat pid.1)"
    wait "$job"
    has summary "$(of summary one.gwt)" "1 rank did not end the recording"
    is ranks "$(field one.gwt 'd["ranks"], [r["ended"] for r in d["rank"]]')" "3 [True, False, True]"
    is timeline "$(python3 -c 'import json; print(len(json.load(open("one.json"))) > 100)')" True
    has report "$(of report one.gwt -o one.html)" 'report: file://.*one.html'
}

a_killed_job() {
    endless all.gwt all.json
    local launcher
    launcher=$(pgrep -P "$job")
    # shellcheck disable=SC2086
    kill -9 $launcher "$(cat pid.0)" "$(cat pid.1)" "$(cat pid.2)"
    wait "$job"
    has summary "$(of summary all.gwt)" "3 ranks did not end the recording"
    is messages "$(field all.gwt 'd["messages"] > 100')" True
    # What viewers accept: an array without its end. Every object but the last is whole.
    is timeline "$(python3 -c '
import json
lines = open("all.json").read().split(",\n")
[json.loads(line.lstrip("[\n")) for line in lines[:-1]]
print(len(lines) > 100)')" True
    has report "$(of report all.gwt -o all.html)" 'report: file://.*all.html'
}

wrong_files() {
    has timeline "$(of summary good.json)" 'good.json is not a capture.*Perfetto'
    has missing "$(of summary nowhere.gwt)" 'nowhere.gwt cannot be read: No such file'
    of summary nowhere.gwt >/dev/null
    is code $? 2
    : >empty.gwt
    has empty "$(of summary empty.gwt)" 'empty.gwt is not a capture'
    has word "$(of sumary good.gwt)" 'did you mean "summary"'
    has step "$(of critical-path good.gwt --step 3)" 'no training steps were recorded'
    has unwritable "$(of report good.gwt -o /proc/nowhere.html)" '/proc/nowhere.html cannot be written'
}

a_training() {
    "$gradwire" train --help >/dev/null 2>&1 || return 0
    timeout 60 "$gradwire" train -n 2 --model mlp --data synthetic:count=2000 --epochs 1 --quiet --capture train.gwt \
        --timeline train.json >train.out 2>&1
    is code $? 0
    is steps "$(field train.gwt 'd["steps"]')" 16
    has summary "$(of summary train.gwt)" 'RANK .*COMPUTE.*forward +dense1.*backward +dense1'
    has path "$(of critical-path train.gwt --step 5)" 'step 5: .*backward'
    is "sum of a step" "$(field train.gwt '(lambda m: abs(sum(m["mean"][k] for k in ("compute_ms", "waiting_ms", "other_ms")) / m["step_ms"] - 1) < 0.001)(d["median_step"])')" True
    has advice "$(of summary train.gwt)" $'What to do\n- [a-z].* % of '
    is "advice of two ranks on a host" "$(field train.gwt '0 < len(d["advice"]) <= 3, {a["strategy"] for a in d["advice"]}')" "True {None}"
    of report train.gwt -o train.html >/dev/null
    has "advice on the page" "$(cat train.html)" '"advice":\["[a-z]'
}

# docs/reference/recording.md lists every kind of advice, in the order of the code.
the_kinds_of_advice_are_documented() {
    is kinds "$(sed -n '/^## What to do/,/^## The page/s/^| `\([a-z -]*\)` | .*/\1/p' "$root/docs/reference/recording.md")" \
        "$(sed -n 's/^    X([A-Z_]*, "\(.*\)").*/\1/p' "$root/src/predict/advice.h")"
}

# What was recorded becomes a profile and a model that predict takes.
a_fit_of_the_training() {
    [ -f train.gwt ] || return 0
    has fit "$("$gradwire" fit train.gwt --layers layers.csv -o train.machines 2>&1)" 'layers written to layers.csv'
    has "a layer" "$(cat layers.csv)" 'dense1,layer,[1-9][0-9]*,[0-9.]+,[0-9.]+'
    has prediction "$("$gradwire" predict --model ./layers.csv --machines train.machines --ranks 2 2>&1)" 'step .* of compute,'
    timeout 60 "$gradwire" train -n 2 --model mlp --data synthetic:count=2000 --epochs 1 --quiet --capture coded.gwt \
        --strategy compress=onebit >coded.out 2>&1
    "$gradwire" fit coded.gwt -o coded.machines >/dev/null
    is "speeds of the codec" "$(grep -c '^codec onebit' coded.machines)" 1
    has "sums of one host" "$("$gradwire" fit good.gwt 2>&1)" 'reduce [0-9.]+ [GM]B/s'
}

# The page draws, complains of nothing, obeys the keyboard, and has both themes.
in_chromium() { # PAGE
    cat >probe.html <"$1"
    cat >>probe.html <<'PROBE'
<script>
const errors = [];
window.addEventListener('error', e => errors.push(e.message));
const key = (element, name) => element.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
const pixels = canvas => new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
const lanesCanvas = document.getElementById('tracks');
lanesCanvas.focus();
const before = JSON.stringify(view);
key(lanesCanvas, '+');
const zoomed = view.to - view.from < JSON.parse(before).to - JSON.parse(before).from;
key(lanesCanvas, 'ArrowRight');
key(lanesCanvas, '0');
const fitted = view.from === 0;
key(lanesCanvas, 'n');
key(lanesCanvas, 'n');
key(lanesCanvas, 'j');
const told = document.getElementById('tracks-detail').textContent;
const first = document.documentElement.dataset.theme;
key(document.body, 't');
key(document.body, 't');
const themesSeen = new Set([first, document.documentElement.dataset.theme]).size;
document.title = [document.documentElement.dataset.ready, pixels(lanesCanvas) > 6, zoomed, fitted, /^Rank \d/.test(told),
  themesSeen, document.activeElement === lanesCanvas,
  document.querySelectorAll('#advice li').length === data.advice.length, errors.length].join(' ');
</script>
PROBE
    timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/chromium" --virtual-time-budget=4000 \
        --dump-dom "file://$scratch/probe.html" 2>/dev/null | sed -n 's:.*<title>\(.*\)</title>.*:\1:p' | head -1
}

the_report_in_chromium() {
    for page in train all one; do
        [ -f "$page.html" ] || continue
        is "$page.html" "$(in_chromium "$page.html")" "yes true true true true 2 true true 0"
    done
}

clocks_of_several_hosts() {
    timeout 60 "$gradwire" bench allreduce --lab hosts=3,rate=1gbit -b 4 -e 1M -f 512 --iters 5 --arch ring --capture lab.gwt >lab.out 2>&1
    is code $? 0
    is files "$(echo lab.gwt*)" "lab.gwt lab.gwt.host1 lab.gwt.host2"
    # Namespaces share one clock: what was measured between them has to be nothing, as exactly as it claims.
    is "offsets" "$(field lab.gwt '[0 < r["uncertainty_ns"] < 5000000 and abs(r["offset_ns"]) <= r["uncertainty_ns"] for r in d["rank"][1:]]')" \
        "[True, True]"
    is messages "$(of messages lab.gwt --limit 0 | grep -c 'not arrived\|not seen')" 0
    "$gradwire" fit lab.gwt -o lab.machines >lab.fit
    is "links" "$(awk '/[MG]B\/s$/ { links++ } END { print (links >= 3) }' lab.fit)" 1 # a ring uses three of six
    is "what a ring makes of them" "$(awk '$1 == "arch" && $2 == "ring" { print ($3 > 1e-6 && $3 < 0.01 && $4 > 3e7 && $4 < 1e9) }' lab.machines)" 1
    is "sums" "$(awk '$1 == "reduce" { print ($2 != 5e9 && $2 > 1e7) }' lab.machines)" 1
    has prediction "$("$gradwire" predict --model resnet50 --ranks 3 --machines lab.machines --strategy arch=ring 2>&1)" 'step .* of compute,'
    # 1 Gbit/s is 119 MB/s of payload, but messages as short as these pass in the shaper's bursts.
    is "rate" "$(awk '$1 == "rate" { print ($2 > 3e7) }' lab.machines)" 1
}

# 100 Mbit/s carry the gradients of an update in 75 ms, computing takes a few. Both say the same: what was recorded, and the
# training itself.
a_wire_bound_training() {
    "$gradwire" train --help >/dev/null 2>&1 || return 0
    timeout 60 "$gradwire" run --lab hosts=2,rate=100mbit --no-prefix --capture wire.gwt -- "$gradwire" train --model mlp \
        --data synthetic:count=600 --epochs 4 --steps 12 --json >wire.json 2>wire.err
    is code $? 0
    is "the best of the recording" "$(field wire.gwt '[(a["kind"], a["strategy"][:9], a["gain"] > 2) for a in d["advice"] if a["accuracy"] == "safe"]')" \
        "[('wire', 'compress=', True)]"
    has "words of the recording" "$(of summary wire.gwt)" 'the wire is busy [0-9]+ % of a step, and a step waits [0-9]+ % of its time for it; '
    is "the best of the training" "$(python3 -c '
import json
lines = [json.loads(line) for line in open("wire.json") if line.startswith("{")]
print([(a["kind"], a["gain"] > 1.5) for a in lines[-1]["advice"] if a["accuracy"] == "safe"])')" "[('wire', True)]"
}

# ---- running them ----

run() { # FUNCTION
    [[ $1 == *"$only"* ]] || return 0
    local reason
    reason=$("$1" 2>&1)
    if [ -z "$reason" ]; then echo "ok   $1"; passed=$((passed + 1)); return; fi
    echo "FAIL $1"
    printf '%s\n' "$reason" | head -n 30 | sed 's/^/    /'
    failed=$((failed + 1))
}

command -v python3 >/dev/null || { echo "skipped: the recordings are looked at with python3, which is missing"; exit 77; }
run a_job_that_ends_well
run exports
run a_killed_rank
run a_killed_job
run wrong_files
run a_training
run a_fit_of_the_training
run the_kinds_of_advice_are_documented
if command -v chromium >/dev/null; then run the_report_in_chromium
else echo "skipped the_report_in_chromium: chromium is not installed"; fi
if [ "$(id -u)" = 0 ] && ip netns add "gt$$" 2>/dev/null; then
    ip netns del "gt$$"
    run clocks_of_several_hosts
    run a_wire_bound_training
else echo "skipped clocks_of_several_hosts, a_wire_bound_training: network namespaces cannot be made here"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
