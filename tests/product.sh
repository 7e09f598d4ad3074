#!/bin/bash
# product.sh - the product of everything a call can be, with real processes: product.sh BUILD_DIRECTORY [small|quick|full]
#
# quick, the default, is a covering selection in which every pair of values meets; small is without the large sizes, for
# sanitizers; full is the whole product (hours). As root, and where namespaces can be made, three of them stand in for
# hosts: small cases again, over tcp and over shared memory within each of them.

build=$(cd "${1:?usage: product.sh BUILD_DIRECTORY [small|quick|full]}" && pwd) || exit 2
extent=${2:-quick}
case $extent in
small | quick | full) ;;
*) echo "product.sh: $extent is not an extent (allowed: small, quick, full)" >&2; exit 2 ;;
esac
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE GRADWIRE_DEADLINE GRADWIRE_LOG GRADWIRE_INTERFACE GRADWIRE_PORTS
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
spaces=("gw-product-$$-0" "gw-product-$$-1" "gw-product-$$-2")
passed=0 failed=0

clean_up() { for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null; done; }
trap clean_up EXIT
trap 'exit 130' INT TERM

part() { # NAME ARGUMENTS...: one run of the helper, whose closing line is added up
    local name=$1 log
    shift
    log=$(mktemp) || exit 2
    echo "     $name"
    "$build/tests/helper_product" "$@" | tee "$log"
    if [[ $(tail -n 1 "$log") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    else
        echo "FAIL $name: it did not come to its end"
        failed=$((failed + 1))
    fi
    rm -f "$log"
}

hosts() { # three namespaces, a bridge in the first
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null || return 1
    for i in 0 1 2; do ip netns add "${spaces[i]}" && ip -n "${spaces[i]}" link set lo up || return 1; done
    ip -n "${spaces[0]}" link add eth0 type bridge && ip -n "${spaces[0]}" address add 10.213.78.1/24 dev eth0 &&
        ip -n "${spaces[0]}" link set eth0 up || return 1
    for i in 1 2; do
        ip link add eth0 netns "${spaces[i]}" type veth peer name "port$i" netns "${spaces[0]}" &&
            ip -n "${spaces[0]}" link set "port$i" master eth0 up &&
            ip -n "${spaces[i]}" address add "10.213.78.$((i + 1))/24" dev eth0 &&
            ip -n "${spaces[i]}" link set eth0 up || return 1
    done
}

part "one host" "$extent"
if hosts 2>/dev/null; then
    MASTER_ADDR=10.213.78.1 part "three hosts" small -t "${spaces[0]},${spaces[1]},${spaces[2]}"
else
    echo "     three hosts: left out, namespaces cannot be made here"
fi
case $extent in
quick) part "more than 2 GiB" huge -j shm ;;
full) part "more than 2 GiB" huge ;;
esac
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
