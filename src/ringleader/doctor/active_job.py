"""Measures between and on the hosts of a job: ``ringleader doctor --active``.

    results = measure(job, environ=os.environ, seconds=30.0, progress=line.show)
    checks = judge(results)                         # ringleader.fabric.active.judge
    text = pair_matrix(results)                     # ringleader.fabric.active.pair_matrix
    value = document(results)                       # ringleader.fabric.facts: for JSON

Each pass is one job with one rank on each host (``active_program``), started like any other. The first pass
measures pairs in rounds; where it leaves suspects, a second one measures them again, with hosts that are
known to be good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringleader.fabric.active.measurements import ActiveResults
from ringleader.job import Job


def measure(
    job: Job,
    *,
    environ: Mapping[str, str],
    seconds: float,
    progress: Callable[[str], None],
    ranks_per_host: int = 1,
) -> ActiveResults:
    """Measure between the job's hosts, and how fast ranks compute on them.

    ``job``: its hosts, ssh and MPI count; its command and number of ranks do not. ``seconds``: what all
    measurements may take together, starts of jobs aside. ``progress`` is given a line now and then.
    ``ranks_per_host``: how many ranks compute at once. Raises what ``launch`` raises where nothing can be
    started; a job that ends badly later is told in ``ActiveResults.failure``.
    """
    raise NotImplementedError
