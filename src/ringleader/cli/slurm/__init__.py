"""Commands that speak to Slurm: run and scale --on slurm, status, logs, cancel."""
