#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
#SBATCH --requeue

# Slurm sends USR1 90 seconds before the time limit: the job is asked to end, then queued again.
again=
trap 'again=yes; kill -TERM $!' USR1
trap : TERM  # Slurm sends it to the job as well
/venv/bin/python -P -m ringleader run --on slurm -- python 'a b.py' &
job=$!
wait "$job"
code=$?
while [ "$code" -gt 128 ] && kill -0 "$job" 2>/dev/null; do
    wait "$job"
    code=$?
done
if [ -n "$again" ] && [ "$code" -ne 0 ]; then
    echo "ringleader: the time limit is near: job $SLURM_JOB_ID is queued again" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
