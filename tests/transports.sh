#!/usr/bin/env bash
# transports.sh BUILD_DIRECTORY [small|quick] - the product of everything a call can be, and the faults, over the transports
# that need a library: rdma (libfabric's tcp and shm), zmq, and mpi under mpirun of Open MPI and MPICH. Half an hour.
set -uo pipefail
build=$(cd "${1:?usage: transports.sh BUILD_DIRECTORY [small|quick]}" && pwd) || exit 2
extent=${2:-quick}
here=$(cd "$(dirname "$0")" && pwd)
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TEST_SECONDS=900
passed=0 failed=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

part() { # NAME COMMAND...: its closing line is added up
    local name=$1 start=$SECONDS closing
    shift
    "$@" >"$log" 2>&1 </dev/null
    closing=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [[ $closing =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
        printf '%-44s %s, %d s\n' "$name" "$closing" $((SECONDS - start))
        [ "${BASH_REMATCH[2]}" = 0 ] || grep -v '^ok' "$log" | head -n 40 | sed 's/^/    /'
    else
        failed=$((failed + 1))
        echo "FAIL $name: it did not come to its end"
        tail -n 20 "$log" | sed 's/^/    /'
    fi
}

usable() { # TRANSPORT: as the doctor sees it
    grep -qF "\"transport\": \"$1\"" <(grep '"usable": true' <<<"$transports") && return
    echo "     $1 is left out: $(grep -F "\"transport\": \"$1\"" <<<"$transports" | sed 's/.*"detail": //; s/}$//')"
    return 1
}

cases_but() { # PROGRAM PATTERN: the cases of a test program without those
    grep -oP 'CASE\(\K\w+' "$here/$1.c" | grep -vE "$2" | tr '\n' ' '
}

transports=$("$build/gradwire" doctor -n 1 --json)
for transport in rdma:provider=tcp rdma:provider=shm zmq; do
    usable "$transport" || continue
    part "$transport, product" "$build/tests/helper_product" "$extent" -o "$transport"
    # A rank that is stopped, not killed, may hold a lock of libfabric's shm provider until it continues: docs/explanation/transports.md.
    left_out='^$'
    [ "$transport" = rdma:provider=shm ] && left_out='stopped_until_the_deadline|too_few'
    read -ra faults <<<"$(cases_but test_faults "$left_out")"
    read -ra shrinks <<<"$(cases_but test_shrink "$left_out")"
    part "$transport, faults" env TEST_STRATEGY="transport=$transport" "$build/tests/test_faults" "${faults[@]}"
    part "$transport, forked children" env TEST_STRATEGY="transport=$transport" "$build/tests/test_fork"
    part "$transport, shrinking" env TEST_STRATEGY="transport=$transport" "$build/tests/test_shrink" "${shrinks[@]}"
done

# killed_job LAUNCHER...: one rank of a job of four is killed; the launcher ends with an error, and no rank stays.
killed_job() {
    local ranks=() start launcher code=0 result="0 passed, 1 failed"
    "$@" -n 4 "$build/gradwire" train --data synthetic --model mlp --epochs 1000000 --strategy transport=mpi &
    launcher=$!
    for _ in $(seq 100); do
        mapfile -t ranks < <(pgrep -f "^$build/gradwire train .* --epochs 1000000")
        [ ${#ranks[@]} = 4 ] && break
        sleep 0.2
    done
    [ ${#ranks[@]} = 4 ] || { echo "the ranks did not start: $result"; return; }
    sleep 2 # they train
    start=$(date +%s%N)
    kill -KILL "${ranks[2]}"
    wait "$launcher" || code=$?
    echo "mpirun ended with $code after $((($(date +%s%N) - start) / 1000000)) ms"
    for _ in $(seq 50); do
        kill -0 "${ranks[@]}" 2>/dev/null || { [ "$code" = 0 ] || result="1 passed, 0 failed"; break; }
        sleep 0.1
    done
    echo "$result"
}

# warned_once LAUNCHER...: two ranks in process namespaces of their own count as two hosts; one warns that its data is clear.
warned_once() {
    local rank=("$build/tests/helper_network" 1) said count
    said=$(GRADWIRE_STRATEGY=transport=mpi OMPI_MCA_btl=self,tcp "$@" -n 1 "${rank[@]}" : -n 1 unshare --pid --fork "${rank[@]}" 2>&1)
    count=$(grep -cF 'transport=mpi: nothing protects the data between hosts' <<<"$said")
    [ "$count" = 1 ] && [[ $said == *"0 wrong"* ]] && echo "1 passed, 0 failed" || printf '%s\n0 passed, 1 failed\n' "$said"
}

mpi() { # NAME CASES LAUNCHER...: with the option LIVES_ON it continues when a rank has died, for the CASES of test_faults
    local name=$1 cases
    read -ra cases <<<"$2"
    shift 2
    part "mpi of $name, product" "$build/tests/helper_product" "$extent" -o mpi -l "$*"
    part "mpi of $name, faults" env TEST_STRATEGY=transport=mpi TEST_LAUNCHER="$* ${LIVES_ON:-}" \
        "$build/tests/test_faults" "${cases[@]}"
    [ -z "${LIVES_ON:-}" ] || part "mpi of $name, forked children" env TEST_STRATEGY=transport=mpi \
        TEST_LAUNCHER="$* $LIVES_ON" "$build/tests/test_fork"
    part "mpi of $name, a killed rank" timeout 60 bash -c "build=$build; $(declare -f killed_job); killed_job $*"
}

# MPICH's UCX does not start between process namespaces.
! usable mpi:library=openmpi || [ "$(id -u)" != 0 ] || part "mpi of Open MPI, a warning" \
    timeout 60 bash -c "build=$build; $(declare -f warned_once); warned_once mpirun.openmpi --oversubscribe"

# mpirun of MPICH ends all ranks when one has died: docs/explanation/transports.md.
! usable mpi:library=openmpi || LIVES_ON=--enable-recovery mpi "Open MPI" "$(cases_but test_faults '^$')" \
    mpirun.openmpi --oversubscribe
! usable mpi:library=mpich || mpi MPICH "$(cases_but test_faults '^killed_|^one_exits_early')" mpirun.mpich
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
