#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
# One run folder a job, in a folder that all jobs share; pinchpoint fleet looks at all of them.
set -euo pipefail
RUNS=${RUNS:-$HOME/runs}
pinchpoint run --no-diagnose -o "$RUNS/${SLURM_JOB_ID:-local}" python train.py
pinchpoint fleet "$RUNS" --by script
