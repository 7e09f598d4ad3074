#!/bin/sh
# native.sh BUILD_DIRECTORY [RANKS] - arch=mpi beside a bare MPI_Allreduce, under every MPI that is installed.
build=$(cd "${1:?usage: native.sh BUILD_DIRECTORY [RANKS]}" && pwd) || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# As gradwire sets it where it starts MPI; this program starts it itself.
export OMPI_MCA_coll_libnbc_iallreduce_algorithm="${OMPI_MCA_coll_libnbc_iallreduce_algorithm:-3}"
for mpi in openmpi mpich; do
    [ -x "$build/peers/native_$mpi" ] || { echo "$mpi is left out: make bench-peers installs and builds it"; continue; }
    echo "$mpi, ${2:-2} ranks"
    "mpirun.$mpi" -n "${2:-2}" "$build/peers/native_$mpi" || exit 1
done
