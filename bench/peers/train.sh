#!/bin/sh
# train.sh BUILD_DIRECTORY - one training step beside PyTorch's, one thread each, in turns. Says so where PyTorch is
# not installed.
build=${1:?usage: train.sh BUILD_DIRECTORY}
for python in python3 /usr/bin/python3; do
    "$python" -c 'import torch' 2>/dev/null && exec "$python" "$(dirname "$0")/torch_step.py" "$build"
done
echo "no PyTorch (Debian: python3-torch): its training step is left out"
