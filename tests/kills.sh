#!/usr/bin/env bash
# kills.sh BUILD_DIRECTORY [KILLS] [PATTERN]: ranks are killed at random moments of random collectives, in jobs of 2 to 8
# ranks that have forked children, over every transport that this machine has, with and without our launcher (mpi under
# mpirun of Open MPI, which continues after a death with --enable-recovery). KILLS in all (default 500; seven minutes), of
# the ways whose names hold PATTERN. SEED=N: others. Fails if a survivor does not learn which rank died, or takes longer
# than 200 ms at the 99th percentile.
set -uo pipefail
build=$(cd "${1:?usage: kills.sh BUILD_DIRECTORY [KILLS] [PATTERN]}" && pwd) || exit 2
kills=${2:-500} pattern=${3:-} seed=${SEED:-$RANDOM}
[[ $kills =~ ^[0-9]+$ ]] || { echo "kills.sh: \"$kills\" is not a number of kills" >&2; exit 2; }
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

transports=$("$build/gradwire" doctor -n 1 --json)
usable() { grep -qF "\"transport\": \"$1\"" <(grep '"usable": true' <<<"$transports"); }
ways=()
for transport in tcp shm rdma:provider=tcp zmq; do
    if ! usable "$transport"; then echo "$transport is left out: gradwire doctor says why"; continue; fi
    ways+=("$transport" "$transport, gradwire run")
done
if usable mpi:library=openmpi; then ways+=("mpi, mpirun"); else echo "mpi is left out: gradwire doctor says why"; fi
chosen=()
for way in "${ways[@]}"; do [[ $way != *"$pattern"* ]] || chosen+=("$way"); done
[ ${#chosen[@]} -gt 0 ] || { echo "kills.sh: no way has \"$pattern\" in its name: ${ways[*]}" >&2; exit 2; }

failed=0 each=$(((kills + ${#chosen[@]} - 1) / ${#chosen[@]}))
echo "seed $seed; times in ms from kill() to the return of the survivor's call"
printf '%-32s %6s %10s %10s %8s %8s %8s\n' transport kills survivors "not named" median p99 worst
for way in "${chosen[@]}"; do
    launcher=()
    [[ $way != *"gradwire run" ]] || launcher=("$build/gradwire" run --elastic --no-prefix)
    [[ $way != *mpirun ]] || launcher=(mpirun.openmpi --oversubscribe --enable-recovery)
    "$build/tests/helper_kills" "$way" "$each" "$((seed++))" "transport=${way%%,*}" "${launcher[@]}" </dev/null 2>"$log" ||
        { failed=$((failed + 1)); grep -v 'go on without it$' "$log" | tail -n 20 | sed 's/^/    /'; }
done
echo "$((${#chosen[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
