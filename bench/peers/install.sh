#!/bin/sh
# install.sh - Debian's packages of the libraries that gradwire bench --against compares with. Needs root.
set -eu
exec apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
    g++ openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev iproute2
