#!/usr/bin/env bash
# torch_lab.sh BUILD [MODEL HOSTS RATE]... - training steps beside PyTorch's DistributedDataParallel with Gloo, in labs of
# network namespaces (root), one after the other; bench/results/pytorch.md has the tables. A rate of 0: one host, not shaped.
set -uo pipefail
build=$(cd "${1:?usage: torch_lab.sh BUILD [MODEL HOSTS RATE]...}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
shift
[ $# -gt 0 ] || set -- resnet50 2 0 resnet50 2 1gbit resnet50 2 100mbit resnet18 2 1gbit resnet18 2 100mbit \
    vgg11 2 1gbit vgg11 2 100mbit resnet50 4 1gbit resnet50 4 100mbit resnet18 4 1gbit resnet18 4 100mbit \
    vgg11 4 1gbit vgg11 4 100mbit
export GRADWIRE_LIBRARY=$build/libgradwire.so.1 OMP_NUM_THREADS=1
# Otherwise malloc returns memory and maps it again in some processes and not in others: 0.05 s a step of page faults.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000
failed=0
while [ $# -ge 3 ]; do
    where=(--lab "hosts=$2,rate=$3") network="$2 hosts at $3" turns=(--turns 3) pin=--pin ways=(alone ddp schedule=wfbp schedule=dear)
    case $3 in
    0) where=(-n "$2") network="one host" pin= ;;
    100mbit) turns=(--turns 1 --again 0) ways=(alone ddp compress=topk:ratio=0.01 compress=onebit) ;;
    esac
    "$build/gradwire" run "${where[@]}" --no-prefix --deadline 120 -- \
        /usr/bin/python3 "$here/torch_ddp.py" --model "$1" --network "$network" $pin "${turns[@]}" "${ways[@]}" || failed=1
    shift 3
done
exit $failed
