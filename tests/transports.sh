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
    grep -qF "\"transport\": \"$1\"" <(grep '"usable": true' <<<"$carriers") && return
    echo "     $1 is left out: $(grep -F "\"transport\": \"$1\"" <<<"$carriers" | sed 's/.*"detail": //; s/}$//')"
    return 1
}

carriers=$("$build/gradwire" doctor -n 1 --json)
for transport in rdma:provider=tcp rdma:provider=shm zmq; do
    usable "$transport" || continue
    part "$transport, product" "$build/tests/helper_product" "$extent" -o "$transport"
    # A rank that is stopped, not killed, may hold a lock of libfabric's shm provider until it goes on: docs/transports.md.
    faults=()
    [ "$transport" = rdma:provider=shm ] && mapfile -t faults < <(
        grep -oP 'CASE\(\K\w+' "$here/test_faults.c" | grep -v stopped_until_the_deadline)
    part "$transport, faults" env TEST_STRATEGY="transport=$transport" "$build/tests/test_faults" "${faults[@]}"
    part "$transport, shrinking" env TEST_STRATEGY="transport=$transport" "$build/tests/test_shrink"
done
! usable mpi:library=openmpi ||
    part "mpi of Open MPI, product" "$build/tests/helper_product" "$extent" -o mpi -l "mpirun.openmpi --oversubscribe"
! usable mpi:library=mpich || part "mpi of MPICH, product" "$build/tests/helper_product" "$extent" -o mpi -l mpirun.mpich
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
