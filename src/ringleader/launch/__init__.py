"""A Plan becomes running ranks, and returns an Outcome.

``launch_plan`` decides everything, ``launch_job`` does it. ``host_probe`` asks the hosts, over ``ssh``.
``mpirun`` is the MPI's own launcher; ``supervision`` is the loop while ranks run. ``exit_reason``
says how the job ended and what it lost.
"""
