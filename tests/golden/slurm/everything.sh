#!/bin/bash
#SBATCH --job-name=my.train
#SBATCH --partition=gpu
#SBATCH --account=team
#SBATCH --nodes=2-4
#SBATCH --ntasks=8
#SBATCH --gpus-per-node=4
#SBATCH --time=1-12
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
#SBATCH --requeue
#SBATCH --constraint=a100&ib
#SBATCH "--comment=two \"words\" 'and' \\ #one"
#SBATCH --exclusive

# Slurm sends USR1 90 seconds before the time limit: the job is asked to end, then requeued.
again= end=$(mktemp)
trap 'again=yes; kill -TERM $! 2>/dev/null' USR1
trap 'kill -TERM $! 2>/dev/null' TERM  # where Slurm tracks jobs by cgroup, only this shell gets it
RINGLEADER_OPT_RUN_JSON_FILE=$end RINGLEADER_OPT_SCALE_JSON_FILE=$end /venv/bin/python -P -m ringleader run --on slurm -- python 'a b.py' &
job=$!
while kill -0 "$job" 2>/dev/null; do wait "$job"; done
wait "$job"
code=$?
if grep -qs '"whose": "host ' "$end"; then
    echo "ringleader: waiting until Slurm, too, notices the lost node and requeues the job" >&2
    sleep "$(scontrol show config | awk '$1 == "SlurmdTimeout" { print 2 * $3 + 60 }')" &
    wait "$!"
fi
rm -f "$end"
if [ -n "$again" ] && [ "$code" -ne 0 ]; then
    echo "ringleader: the time limit is near: job $SLURM_JOB_ID is requeued" >&2
    scontrol requeue "$SLURM_JOB_ID" || echo "ringleader: job $SLURM_JOB_ID could not be requeued" >&2
fi
exit "$code"
