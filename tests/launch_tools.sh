# launch_tools.sh - for tests of gradwire run; sourced. Before: $gradwire, $top (a fresh directory), $scratch=$top,
# $forever (a number of seconds by which processes are found), $only (a word in the names of cases), passed=0, failed=0.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016

busy=5 # times are those of an idle machine; on a busy one everything may take that many times as long
run() { # OPTIONS...: a job, at most 20 s; sets $out, $err and $code
    timeout -k 1 $((20 * busy)) "$gradwire" run "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    out=$(tr -d '\0' <"$scratch/out") err=$(tr -d '\0' <"$scratch/err")
}
start() { # OPTIONS...: the same in the background, as $launcher
    env --default-signal=INT "$gradwire" run "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    launcher=$!
}
finish() { # waits for $launcher; $code, $out and $err as above
    until_true 20 ended || { echo "the launcher does not end"; kill -9 "$launcher"; }
    wait "$launcher" 2>/dev/null
    code=$?
    out=$(cat "$scratch/out") err=$(cat "$scratch/err")
}
is() { [ "$2" = "$3" ] || printf '%s is %s\nnot %s\n' "$1" "$2" "$3"; }         # WHAT GOT WANTED
has() { [[ $2 =~ $3 ]] || printf '%s is %s\nand does not match %s\n' "$1" "$2" "$3"; } # WHAT GOT PATTERN
processes() { grep -slaF -f "$scratch/marker" /proc/[0-9]*/cmdline | cut -d/ -f3; }
count() { processes | wc -l; }
until_true() { # SECONDS COMMAND...
    local end=$((${EPOCHREALTIME/./} + $1 * busy * 1000000))
    shift
    until "$@"; do
        [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
        sleep 0.02
    done
}
ended() { ! kill -0 "$launcher" 2>/dev/null; }
at_least() { [ "$(count)" -ge "$1" ]; }
none() { [ "$(count)" = 0 ]; }
nothing_left() { # SECONDS
    until_true "$1" none || echo "left behind: $(for p in $(processes); do tr '\0' ' ' <"/proc/$p/cmdline"; done)"
}
clock() { echo $((${EPOCHREALTIME/./} / 1000)); }
within() { [ $(($(clock) - $1)) -le $(($2 * busy)) ] || echo "took $(($(clock) - $1)) ms, not $2"; } # SINCE MS

stand_in() { # a remote shell as ssh: joins its words for a shell, and greets
    printf '#!/bin/sh\nhost=$1; shift\necho "Welcome to $host"\n%s\neval "exec $*"\n' "${1:-}" >"$scratch/rsh"
    chmod +x "$scratch/rsh"
}

# Each case is a function that prints what is wrong, or nothing.
names=()
try() { # CASE: in the background, four at a time ($at_once), since they mostly wait
    [[ $1 == *"$only"* ]] || return 0
    names+=("$1")
    while [ "$(jobs -rp | wc -l)" -ge "${at_once:-4}" ]; do wait -n; done
    (
        trap - EXIT
        scratch=$top/$1 forever=$forever$(printf %03d "${#names[@]}")
        mkdir "$scratch"
        printf '%s' "$forever" >"$scratch/marker"
        "$1" 2>&1 | grep -v ': line [0-9]*: .* Killed ' >"$scratch/reason" # the shell reports its own kills
    ) &
}
tell() { # CASE
    if [ -s "$top/$1/reason" ]; then
        echo "FAIL $1"
        sed 's/^/    /' "$top/$1/reason"
        failed=$((failed + 1))
    else
        echo "ok   $1"
        passed=$((passed + 1))
    fi
}
