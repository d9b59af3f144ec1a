"""What is launched on GPUs and in which order, on a fake GPU: NCCL itself is not here."""

from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

APART = {"RINGLEADER_RANKS_PER_HOST": "1", "RINGLEADER_CONSISTENCY_CHECK": "off"}
"""Buckets travel during backward, as on GPUs, and no comparison of parameters comes between."""


@programs(
    *((f"launched.py {what}", "3", "2", APART) for what in ("straight", "others", "agree", "joined", "many")),
    *((f"launched.py {what}", "3", "", APART) for what in ("mixed", "captured")),
    ("launched.py compiled", "", "2", APART),
    ("launched.py sets", "3", "", APART | {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
)
def test_launches(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


def test_operations_in_the_middle_of_backward_that_cost_overlap_are_reported_once(jobs: Any) -> None:
    job = jobs("launched.py", "middle", ranks=3, **APART)
    assert job.code == 0 and job.out.count("rank done") == 3, job.out + job.err
    (said,) = [line for line in job.err.splitlines() if "came between" in line]
    assert said.startswith(
        "ringleader: operations on GPUs during backward, such as allreduce 'allreduce.beside "
    )
    assert "SyncBatchNorm" in said


@pytest.mark.long
def test_a_peer_that_dies_is_noticed(jobs: Any) -> None:
    # An mpirun that leaves the other rank alone: it might end it before that has noticed.
    alone = ("--runtime-options", "recoverable")
    job = jobs.fresh(
        "launched.py", "dies", ranks=2, options=alone, timeout=60, RINGLEADER_DEADLINE="4", **APART
    )
    assert job.code != 0
    assert "rank 0 got: rank 0 waited" in job.out, job.out + job.err
