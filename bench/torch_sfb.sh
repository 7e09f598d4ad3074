#!/usr/bin/env bash
# torch_sfb.sh BUILD [TURNS] - training steps of a VGG-11 whose dense layers travel as factors (arch=sfb), beside those of
# DistributedDataParallel with Gloo: two hosts at 1 Gbit/s, in a lab of network namespaces (root). Needs torch 2.1.
set -uo pipefail
build=$(cd "${1:?usage: torch_sfb.sh BUILD [TURNS]}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
. tests/with_torch.sh
[ -n "$python" ] || { echo "torch_sfb: $why"; exit 77; }
# Otherwise malloc returns memory and maps it again in some processes and not in others.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000
export GRADWIRE_LIBRARY=$build/libgradwire.so.1
"$build/gradwire" run --lab hosts=2,rate=1gbit --no-prefix --deadline 120 -- "$python" bench/torch_ddp.py \
    --model vgg11 --batch 16 --network "2 hosts at 1gbit" --pin --turns "${2:-7}" \
    alone ddp schedule=dear "arch=sfb schedule=wfbp" "arch=sfb schedule=dear"
