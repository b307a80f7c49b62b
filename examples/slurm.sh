#!/bin/bash
# One run on several nodes under Slurm, which goes on by itself when its time is over:
#
#   sbatch examples/slurm.sh runs/mine --dataset cifar10 --device cuda --rounds 1000
#
# The first word is the folder of the run, the others are settings. RANKS_PER_NODE=16 sbatch ... starts as many
# processes a node; by default one for each GPU, or one if there is none.

#SBATCH --job-name=adabest
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120

set -u
if [ "$#" -lt 1 ]; then
    echo "usage: sbatch examples/slurm.sh FOLDER [SETTINGS of adabest run]" >&2
    exit 2
fi
folder="$1"
shift
ranks="${RANKS_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}"
first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
port="${RENDEZVOUS_PORT:-$((20000 + SLURM_JOB_ID % 20000))}"

if [ -e "$folder/config.toml" ]; then
    command=(resume "$folder")
else
    command=(run "$@" --out "$folder")
fi

# srun takes the cores of a task from sbatch only if it is told.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun --ntasks-per-node=1 torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$ranks" --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID" \
    -m adabest "${command[@]}" &
step=$!

# Slurm tells this shell alone (B:) two minutes before the end. srun passes the signal on to torchrun on every node, and
# torchrun to its processes, which save and exit.
stopping=""
stop() {
    stopping="yes"
    kill -TERM "$step" 2>/dev/null
}
trap stop TERM

wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do # the signal has ended the waiting, not the run
    wait "$step"
    code=$?
done

if [ -n "$stopping" ] && [ "$code" -ne 0 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
