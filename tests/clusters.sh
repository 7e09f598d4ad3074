#!/usr/bin/env bash
# clusters.sh BUILD_DIRECTORY - one training job under every launcher that is installed: mpirun of Open MPI and MPICH,
# torchrun, the environment of a Kubernetes indexed Job, and srun of a Slurm of four nodes that is set up on this machine
# for the purpose (slurmctld, four slurmd, munged; root; own ports, own folder, nothing left behind).
set -uo pipefail
build=$(cd "${1:?usage: clusters.sh BUILD_DIRECTORY}" && pwd) || exit 2
# The nodes of Slurm need names: in a mount namespace of our own /etc/hosts may have them.
if [ "$(id -u)" = 0 ] && [ -z "${GW_CLUSTERS_INSIDE:-}" ] && unshare --mount true 2>/dev/null; then
    GW_CLUSTERS_INSIDE=1 exec unshare --mount "$0" "$@"
fi
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
passed=0 failed=0
work=$(mktemp -d)
train=("$build/gradwire" train --data synthetic --model mlp --steps 20 --quiet)

clean_up() {
    local file
    for file in "$work"/*.pid; do [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null; done
    sleep 0.5 # slurmd writes to its folder until it ends
    umount /etc/hosts 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# accuracy NAME WANTED COMMAND...: the job prints a test accuracy, once, and this one (any: "").
accuracy() {
    local name=$1 wanted=$2 out start=$SECONDS
    shift 2
    out=$(timeout 90 "$@" 2>"$work/errors" </dev/null)
    local code=$? said
    said=$(grep -o 'test accuracy [0-9.]* %' <<<"$out")
    if [ "$code" = 0 ] && [ "$(grep -c . <<<"$said")" = 1 ] && { [ -z "$wanted" ] || [ "$said" = "$wanted" ]; }; then
        passed=$((passed + 1))
        echo "ok   $name: $said, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "FAIL $name: exit code $code, said \"$out\" instead of \"${wanted:-test accuracy N %}\""
        tail -n 20 "$work/errors" | sed 's/^/     /'
    fi
}
left_out() { echo "     $1 is left out: $2"; }
have() { command -v "$1" >/dev/null; }

right=$("${train[@]}" -n 4 --strategy transport=tcp 2>/dev/null | grep -o 'test accuracy [0-9.]* %')
echo "     four workers of gradwire run come to: ${right:-nothing}"
[ -n "$right" ] || failed=$((failed + 1))
tcp=(--strategy 'transport=tcp')
mpi=(--strategy 'transport=mpi')
native=(--strategy 'transport=mpi arch=mpi')

mpirun_jobs() { # NAME COMMAND...
    local name=$1
    shift
    have "$1" || { left_out "mpirun of $name" "it is not installed"; return; }
    accuracy "$name: mpirun -n 4" "$right" "$@" -n 4 "${train[@]}" "${tcp[@]}"
    [ -f "$build/libgradwire-mpi-$name.so" ] || { left_out "transport=mpi of $name" "this build has no shim for it"; return; }
    accuracy "$name: transport=mpi" "$right" "$@" -n 4 "${train[@]}" "${mpi[@]}"
    accuracy "$name: transport=mpi arch=mpi" "" "$@" -n 4 "${train[@]}" "${native[@]}"
}
mpirun_jobs openmpi mpirun.openmpi --oversubscribe
mpirun_jobs mpich mpirun.mpich

# The torchrun of Debian 12 fails over its own default for --redirects under Python 3.11; these two words avoid it.
if have torchrun; then
    accuracy "torchrun" "$right" torchrun --no_python --nproc_per_node 4 --redirects 2 --tee 1 --log_dir "$work" \
        "${train[@]}" "${tcp[@]}"
else
    left_out torchrun "it is not installed"
fi

kubernetes() { # what four pods find in their environment
    local i pids=()
    for i in 0 1 2 3; do
        JOB_COMPLETION_INDEX=$i WORLD_SIZE=4 MASTER_ADDR=localhost "${train[@]}" "${tcp[@]}" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || return 1; done
}
export -f kubernetes
accuracy "JOB_COMPLETION_INDEX" "$right" bash -c "$(declare -p train tcp); kubernetes"

start_slurm() {
    local d=$work name i
    name=$(hostname -s)
    mkdir "$d/state"
    for i in 0 1 2 3; do mkdir "$d/tmp-gw$i" "$d/spool-gw$i"; done
    { cat /etc/hosts; echo "127.0.0.1 gw0 gw1 gw2 gw3"; } >"$d/hosts"
    mount --bind "$d/hosts" /etc/hosts || return 1
    head -c 64 /dev/urandom >"$d/munge.key" && chmod 400 "$d/munge.key" && chmod 755 "$d"
    munged --force --key-file="$d/munge.key" --socket="$d/munge.sock" --pid-file="$d/munged.pid" \
        --log-file="$d/munged.log" --seed-file="$d/munge.seed" || return 1
    cat >"$d/slurm.conf" <<CONF
ClusterName=gradwire
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=17100
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$d/munge.sock
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool-%n
TmpFS=$d/tmp-%n
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd-%n.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
NodeName=gw[0-3] NodeHostname=$name NodeAddr=127.0.0.1 Port=[17101-17104] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
CONF
    export SLURM_CONF=$d/slurm.conf
    slurmctld -f "$SLURM_CONF" || return 1
    for i in 0 1 2 3; do slurmd -f "$SLURM_CONF" -N "gw$i" || return 1; done
    for ((i = 0; i < 100; i++)); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 4 ] && return 0
        sleep 0.2
    done
    return 1
}

if ! have srun || ! have slurmctld || ! have slurmd || ! have munged; then
    left_out srun "slurm-wlm and munge are not installed"
elif [ -z "${GW_CLUSTERS_INSIDE:-}" ]; then
    left_out srun "its nodes need names, and only root can give them in a mount namespace"
elif ! start_slurm 2>"$work/errors"; then
    failed=$((failed + 1))
    echo "FAIL a Slurm of four nodes did not come up"
    tail -n 5 "$work/errors" "$work"/*.log | sed 's/^/     /'
else
    accuracy "srun -N 4 -n 4" "$right" srun -N 4 -n 4 "${train[@]}" "${tcp[@]}"
    accuracy "srun -n 4, one node" "$right" srun -N 1 -n 4 --overcommit "${train[@]}" "${tcp[@]}"
    if srun --mpi=list 2>&1 | grep -q pmix; then
        accuracy "srun --mpi=pmix" "$right" srun --mpi=pmix -N 4 -n 4 "${train[@]}" "${tcp[@]}"
        if [ -f "$build/libgradwire-mpi-openmpi.so" ]; then
            accuracy "srun --mpi=pmix, transport=mpi" "$right" srun --mpi=pmix -N 4 -n 4 "${train[@]}" "${mpi[@]}"
        fi
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
