#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks=16
#SBATCH --time=2:00:00
#SBATCH --open-mode=append

exec /venv/bin/python -P -m ringleader run --on slurm -- python 'a b.py'
