#!/bin/sh
# lab_shell.sh ADDRESS COMMAND... - runs a command on a host of a lab, for launchers that want a remote shell.
#
# The last number of the address is the host; GRADWIRE_LAB_PREFIX is the prefix of the lab's namespaces. Each host has a
# name of its own, because MPI libraries assume that ranks with the same host name share memory.
while [ "${1#-}" != "$1" ]; do shift; done # options for a real remote shell
number=${1##*.}
shift
exec ip netns exec "$GRADWIRE_LAB_PREFIX$((number - 1))" unshare --uts \
    sh -c "hostname gwlab$number && exec $*"
