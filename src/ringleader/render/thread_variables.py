"""How many threads the frameworks of a rank may start, by the variables that each of them reads. Pure.

Each takes all processors that it sees, in every rank. Where a rank is bound to its cores it sees only those,
and what is said here is what TensorFlow and JAX find themselves; where ranks roam it is what keeps them from
taking the whole host. MXNet takes OMP_NUM_THREADS.
"""

from __future__ import annotations

LEAST_INTER_OP = 2
"""TensorFlow's threads for operations beside each other: a function of Python's that waits blocks one."""


def thread_variables(threads: int, *, bound: bool) -> dict[str, str]:
    """Return the variables of a rank that may use so many threads, ``bound`` to cores or not.

    NPROC is what XLA on CPUs (JAX) reads; other programs know it too, so it is set only where ranks roam.
    """
    variables = {
        "OMP_NUM_THREADS": threads,
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": max(LEAST_INTER_OP, threads),
    }
    if not bound:
        variables["NPROC"] = threads
    return {name: str(count) for name, count in variables.items()}
