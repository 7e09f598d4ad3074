# shellcheck shell=bash disable=SC2034  # the sourcing script uses the variables
# Sourced by tests that use PyTorch, at the top of the repository. Sets `python` to one that has it (scripts/torch;
# TORCH=2.15.0 chooses a version), or to nothing, and then `why` to a sentence.
why=''
if ! python=$(scripts/torch ${TORCH:+"$TORCH"}); then
    [ -z "${TORCH:-}" ] || exit 1
    why=$python python=''
fi
export OMP_NUM_THREADS=1
# Virtual machines may name AMX and die of it (SIGILL): torch's oneDNN uses it in every product of bf16. That of
# gradwire's trainer does not: all its products are of f32.
if grep -q '^flags.* amx_tile' /proc/cpuinfo && grep -q '^flags.* hypervisor' /proc/cpuinfo; then
    export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA:-AVX512_CORE}
fi
