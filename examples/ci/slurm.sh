#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
# One run folder a job, in a folder that all jobs share; pinchpoint fleet looks at all of them.
# ENVIRONMENT: a virtual environment that has what train.py needs, and Pinchpoint; else what is on the path.
set -euo pipefail
RUNS=${RUNS:-$HOME/runs}
if [ -n "${ENVIRONMENT:-}" ]; then source "$ENVIRONMENT/bin/activate"; fi
pinchpoint run --no-diagnose -o "$RUNS/${SLURM_JOB_ID:-local}" python train.py
pinchpoint fleet "$RUNS" --by script
