#!/usr/bin/env bash
# python.sh [BUILD] [full]: the PyTorch binding, with the Python of scripts/torch; exits with 77 where that finds none.
# The short form trains by some strategies in two processes; full runs everything with two to four, minutes.
# TORCH=2.15.0 chooses a version.
set -uo pipefail
build=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
. tests/with_torch.sh
[ -n "$python" ] || { echo "python: $why"; exit 77; }
cd python || exit 2
unset GRADWIRE_STRATEGY GRADWIRE_STAGE
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export PYTHONPATH=$PWD GRADWIRE_LIBRARY=$build/libgradwire.so.1 PYTHONDONTWRITEBYTECODE=1
export GRADWIRE_FLIGHT_DIR=$scratch
verdict() { # NAME CODE LOG
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1"; cat "$3"; fi
}
# job OPTIONS -- COMMAND...: with time for a busy machine, on which importing torch alone may take half a minute.
job() { timeout "${LIMIT:-600}" "$build/gradwire" run --deadline 60 "$@"; }
tests() { # NAME RANKS ARGUMENTS...: of Python; what runs has a count of its own, which is added
    local log=$scratch/log counted=0
    job -n "$2" --no-prefix -- "$python" "${@:3}" >"$log" 2>&1
    local code=$?
    grep '^ok ' "$log"
    counted=$(sed -n 's/^\([0-9]*\) passed, 0 failed$/\1/p' "$log")
    passed=$((passed + ${counted:-0}))
    [ "$code" = 0 ] && [ -n "$counted" ] || verdict "$1 with $2 ranks: exit code $code" 1 "$log"
}
file() { tests "$2" "$1" "tests/$2.py"; } # RANKS NAME
product() { LIMIT=1800 tests "product: $2" "$1" -m tests.product "$2"; } # RANKS FAMILY
check() { # NAME COMMAND...
    ("${@:2}") >"$scratch/log" 2>&1
    verdict "$1" $? "$scratch/log"
}

at_least() { "$python" -c "import sys, torch; sys.exit(int(torch.__version__.split('.')[0]) < $1)"; } # MAJOR-VERSION

an_exception_ends_all() {
    job -n 3 -- "$python" tests/raises.py >"$scratch/said" 2>&1
    [ $? = 1 ] && grep -q '^\[1\] Traceback' "$scratch/said" && grep -q '^\[1\] ValueError: no such label$' "$scratch/said" &&
        grep -q '^\[0\] gradwire: .*rank 1 on .* aborted: ValueError: no such label (raises.py:[0-9]*)$' "$scratch/said" &&
        ! grep -q '^\[[02]\] Traceback' "$scratch/said" || { cat "$scratch/said"; return 1; }
}
a_refusal_ends_all() {
    job -n 2 -- "$python" tests/raises.py refused >"$scratch/said" 2>&1
    [ $? = 1 ] && grep -q '^\[0\] gradwire: .*rank 1 on .* aborted: .*ArgumentError: allreduce: the tensor is sparse' \
        "$scratch/said" || { cat "$scratch/said"; return 1; }
}
the_rank_that_raised_is_blamed() { # although the others end long before it
    SLOW_END=1 job -n 3 -- "$python" tests/raises.py >"$scratch/said" 2>&1
    [ $? = 1 ] && grep -q '^gradwire: rank 1 on host .* ended with exit code 1 ' "$scratch/said" || { cat "$scratch/said"; return 1; }
}
# Ranks that did not end by themselves would be killed after 20 s. Rank 0 is inside a collective.
ctrl_c_ends_a_job() {
    : >"$scratch/said"
    env --default-signal=INT "$build/gradwire" run -n 2 --grace 20 -- "$python" tests/interrupted.py >"$scratch/said" 2>&1 &
    local launcher=$! code=0 begun
    for _ in $(seq 600); do [ "$(grep -c waits "$scratch/said")" = 2 ] && break; sleep 0.1; done
    begun=$(date +%s%N)
    kill -INT "$launcher"
    wait "$launcher" || code=$?
    echo "ended after $((($(date +%s%N) - begun) / 1000000)) ms with $code"
    [ "$code" = 130 ] && [ $(($(date +%s%N) - begun)) -lt 5000000000 ] &&
        [ "$(grep -v waits "$scratch/said")" = 'gradwire: ended by signal 2 (Interrupt)' ] || { cat "$scratch/said"; return 1; }
}
forked_children_harm_nobody() {
    job -n 2 -- "$python" tests/forks.py >"$scratch/said" 2>&1 &&
        grep -q '^\[0\] all went on$' "$scratch/said" && ! grep -q 'is gone' "$scratch/said" || { cat "$scratch/said"; return 1; }
}
# Each rank sees a file of hosts of its own: on the first host its name leads to 127.0.1.1, on the other to its address.
a_host_name_may_lead_to_loopback() {
    printf '127.0.0.1 localhost\n127.0.1.1 first\n' >"$scratch/hosts.0"
    printf '127.0.0.1 localhost\n127.0.1.1 second\n10.77.0.1 first\n' >"$scratch/hosts.1"
    # shellcheck disable=SC2016 # RANK is that of the job
    job --lab hosts=2,rate=1gbit -- unshare -m sh -c \
        'mount --bind "$0/hosts.$RANK" /etc/hosts && MASTER_ADDR=first MASTER_PORT=29555 exec "$1" tests/host_name.py' \
        "$scratch" "$python"
}
version_is_checked() {
    echo 'const char *gw_version(void); const char *gw_version(void) { return "9.9.0"; }' |
        cc -shared -fPIC -x c - -o "$scratch/libother.so" || return 1
    ! GRADWIRE_LIBRARY=$scratch/libother.so "$python" -c 'import gradwire' 2>"$scratch/said" &&
        grep -q "is version $version, but .*libother.so is libgradwire 9.9.0: install both" "$scratch/said"
}
missing_library_is_reported() {
    ! GRADWIRE_LIBRARY=$scratch/none.so "$python" -c 'import gradwire' 2>"$scratch/said" &&
        grep -q 'libgradwire cannot be loaded: .*none.so.*GRADWIRE_LIBRARY' "$scratch/said"
}
versions_agree() {
    grep -q "^version = \"$version\"" pyproject.toml && grep -q "^__version__ = \"$version\"" gradwire/_library.py
}
system_path_works() {
    cmake --install "$build" --prefix "$scratch/prefix" >/dev/null || return 1
    local site
    site=$(dirname "$(find "$scratch/prefix" -type d -path '*/dist-packages/gradwire')")
    cd / && env -u GRADWIRE_LIBRARY PYTHONPATH="$site" "$python" -c 'import gradwire; print(gradwire.library_path)' |
        grep "^$scratch/prefix/lib.*/libgradwire.so.1$"
}
version=$(sed -n 's/^project(gradwire VERSION \([0-9.]*\).*/\1/p' ../CMakeLists.txt)

# The launcher calls the ranks together again, without the one that was killed or with it.
regroups() { # OPTION RANKS-AT-THE-END STRATEGY
    # shellcheck disable=SC2086 # an option may have an argument
    job -n 3 $1 -- "$python" tests/regroup.py "$3" "$2"
}
elastic_script() { # OPTION RANKS-AT-THE-END
    # shellcheck disable=SC2086 # an option may have an argument
    job -n 3 $1 -- "$python" tests/elastic_script.py "$2"
}
# What docs/tutorials/first-pytorch.md says of its script under schedule=dear, and the line that it adds for it.
the_tutorial_holds() {
    local first=../docs/examples/first.py
    sed 's/^    torch.nn.utils.clip/    optimizer.synchronize()\n&/' "$first" >"$scratch/waits.py"
    ! job -n 2 --strategy schedule=dear -- "$python" "$first" >"$scratch/said" 2>&1 &&
        grep -q 'Call optimizer.synchronize() before step()' "$scratch/said" &&
        job -n 2 --strategy schedule=dear -- "$python" "$scratch/waits.py" >"$scratch/said" 2>&1 &&
        grep -q '% right$' "$scratch/said" || { cat "$scratch/said"; return 1; }
}
# The loop that goes on after a loss, in which one rank dies.
the_documented_loop_survives() {
    sed 's/^\( *\)optimizer.zero_grad()$/\1die_in(optimizer.step_number())\n&/; s/< 100:/< 20:/' ../docs/examples/lost_rank.py >"$scratch/train.py"
    cat - "$scratch/train.py" >"$scratch/dies.py" <<'END'
import os, signal
def die_in(step):
    if step == 8 and os.environ["RANK"] == "1" and "GRADWIRE_GENERATION" not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
END
    job -n 3 --restarts 1 -- "$python" "$scratch/dies.py" 2>"$scratch/said" &&
        grep -q 'was killed by signal 9 .* it is started again' "$scratch/said" || { cat "$scratch/said"; return 1; }
}
losses() { # HOW-MANY at random moments [CASES]: jobs of their own, without a launcher
    LOSSES=$1 TESTS=${2:-} timeout 1000 "$python" tests/test_loss.py >"$scratch/log" 2>&1
    local code=$?
    grep '^ok ' "$scratch/log"
    passed=$((passed + $(sed -n 's/^\([0-9]*\) passed, 0 failed$/\1/p' "$scratch/log" | grep . || echo 0)))
    [ "$code" = 0 ] || verdict "test_loss: exit code $code" 1 "$scratch/log"
}

quick() {
    TESTS="some_strategies parameters_that_are_not_used local_steps state_of_servers" file 2 test_optimizer
    TESTS="residuals_keep_the_weight_of_their_step delayed_updates_have_the_rate_of_their_step" file 2 test_rates
    TESTS="momentum_moves_to_the_codec optimisers_that_keep_theirs_are_refused" file 2 test_dgc
    if at_least 2; then TESTS="factors_travel_and_nothing_is_multiplied ranks_with_fewer_more_and_no_examples" file 2 test_factors; fi
    TESTS="hook process_group" file 2 test_ddp
    file 2 test_steps
    file 2 examples
    TESTS="allreduce_of_every_type_and_operation alltoall objects" file 2 test_collectives
    losses 0 "after the exchange, some have updated;between two updates;another while they come together"
}
# What torch 1.13 does not have.
with_torch_2() {
    local ranks family
    for ranks in 2 3 4; do file "$ranks" test_group; done
    for ranks in 2 3; do file "$ranks" test_registered; done
    for ranks in 2 4; do file "$ranks" test_factors; done
    file 2 test_compile
    check "ranks of a process group learn that one is killed" timeout 600 "$python" tests/group_loss.py
    check "what Gloo passes of torch's own tests" timeout 1800 "$python" tests/torch_suite.py 2
    for ranks in 2 4; do
        for family in optimizer hook group; do product "$ranks" "$family"; done
    done
    for family in optimizer hook group; do
        check "without communication the product fails: $family" env PRODUCT_NEGATIVE=1 timeout 1800 \
            "$build/gradwire" run -n 2 --no-prefix --deadline 60 -- "$python" -m tests.product "$family"
    done
}
full() {
    local ranks
    file 3 test_collectives
    file 3 test_coded
    file 2 test_horovod
    file 4 test_horovod
    check "no test of Horovod's API passes where ranks do not communicate" \
        env CONTROL=1 timeout 600 "$build/gradwire" run -n 2 -- "$python" tests/test_horovod.py
    file 2 test_corners
    file 2 test_traps
    if "$python" -c 'import torch._dynamo' 2>/dev/null; then file 2 test_compile; fi
    file 2 test_join
    file 2 test_timeline
    file 2 test_steps
    file 2 examples
    for ranks in 2 3 4; do
        file "$ranks" test_rates
        file "$ranks" test_dgc
        file "$ranks" test_ddp
        file "$ranks" test_optimizer
    done
    file 2 test_traps
    if at_least 2; then with_torch_2; fi
    file 1 test_profile
    losses 40
    check "the script of docs/tutorials/first-pytorch.md" the_tutorial_holds
    check "the loop of docs/examples/lost_rank.py survives a rank" the_documented_loop_survives
    check "ranks regroup without the one that was killed" regroups --elastic 2 schedule=dear
    check "ranks regroup with the one that was killed" regroups "--restarts 1" 3 "schedule=wfbp compress=topk:ratio=0.1"
    check "ranks regroup with the one that was killed, factors" regroups "--restarts 1" 3 arch=sfb
    check "Horovod's elastic training goes on with the ranks that are left" elastic_script --elastic 2
    check "Horovod's elastic training goes on with the rank that was killed" elastic_script "--restarts 1" 3
    if [ "$(id -u)" = 0 ]; then check "a host whose own name leads to 127.0.1.1" a_host_name_may_lead_to_loopback; fi
    check "a job that is left and joined again, forty times" job -n 3 -- "$python" tests/again.py
    check "make install puts it where Debian's Python looks" system_path_works
    check "an exception in one rank ends all with its last line" an_exception_ends_all
    check "the rank that raised is blamed" the_rank_that_raised_is_blamed
    check "a refused call that ends one rank ends all" a_refusal_ends_all
}

if [ "${2:-}" = full ]; then full; else quick; fi
check "Ctrl-C ends a job at once, with one sentence" ctrl_c_ends_a_job
check "children that a rank forks harm nobody, workers of a DataLoader among them" forked_children_harm_nobody
check "the package has the version of the library" versions_agree
check "another version of the library is refused" version_is_checked
check "a missing library is reported" missing_library_is_reported
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
