#!/bin/bash
# Train on 4 machines of 8 GPUs:
#
#     sbatch examples/slurm.sh cfg.yaml data=/shared/data/my_data.yaml project=/shared/runs
#
# The data and the project folder have the same path on every machine. Everything behind the script goes to
# `yolo-rocm train`. A batch you give is that of all 32 GPUs together; without one each GPU gets the preset's.

#SBATCH --job-name=yolo
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1     # one launcher for each machine, which starts a process for each GPU
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64      # shared by the data-loading workers of 8 GPUs
#SBATCH --time=24:00:00
#SBATCH --requeue               # after a failed machine or a preemption the job starts again, with the same number,
#SBATCH --open-mode=append      # and goes on from its last.pt

set -euo pipefail

# The environment with torch and this package, the same on every machine:
# source /shared/venv/bin/activate

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))   # jobs that share a machine must not share a port

# Only if RCCL does not find the right network by itself (NCCL_DEBUG=INFO says what it found):
# export NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5

# MAX_RESTARTS: how often torchrun starts all ranks again when one fails while all machines are still there.
# --kill-on-bad-exit: when the launcher of one machine ends with an error, the job does.
exec srun --kill-on-bad-exit=1 \
    python -m torch.distributed.run \
    --nnodes "$SLURM_NNODES" --nproc_per_node "${SLURM_GPUS_ON_NODE:-8}" \
    --rdzv_backend c10d --rdzv_endpoint "$first:$port" --rdzv_id "$SLURM_JOB_ID" \
    --max_restarts "${MAX_RESTARTS:-3}" \
    -m yolo_rocm train "$@" name="$SLURM_JOB_NAME-$SLURM_JOB_ID" resume=auto
