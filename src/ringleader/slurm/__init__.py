"""Jobs that are sent to Slurm: the batch script, Slurm's programs, a job's state, and following it.

Inside its allocation such a job is one of ``ringleader run``, which `plan.batch_system` gives its hosts.
"""
