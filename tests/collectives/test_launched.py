"""What is launched on GPUs and in which order, on a fake GPU: NCCL itself is not here."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

APART = {"RINGLEADER_RANKS_PER_HOST": "1", "RINGLEADER_CONSISTENCY_CHECK": "off"}
"""Buckets travel during backward, as on GPUs, and no comparison of parameters comes between."""


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("what", ["straight", "others", "agree", "joined", "many", "mixed", "captured"])
def test_launches(jobs: Any, what: str, size: int) -> None:
    jobs("launched.py", what, ranks=size, **APART).passed(size)


def test_operations_in_the_middle_of_backward_that_cost_overlap_are_reported_once(jobs: Any) -> None:
    job = jobs("launched.py", "middle", ranks=3, **APART)
    assert job.code == 0 and job.out.count("rank done") == 3, job.out + job.err
    (said,) = [line for line in job.err.splitlines() if "came between" in line]
    assert said.startswith(
        "ringleader: operations on GPUs during backward, such as allreduce 'allreduce.beside "
    )
    assert "SyncBatchNorm" in said


def test_sets_that_share_ranks_launch_in_one_order(jobs: Any) -> None:
    jobs("launched.py", "sets", ranks=3, HOROVOD_DYNAMIC_PROCESS_SETS="1", **APART).passed(3)


@pytest.mark.long
def test_a_compiled_model(jobs: Any) -> None:
    jobs("launched.py", "compiled", ranks=2, **APART).passed(2)


@pytest.mark.long
def test_a_peer_that_dies_is_noticed(jobs: Any) -> None:
    # An mpirun that leaves the other rank alone: it might end it before that has noticed.
    alone = ("--runtime-options", "recoverable")
    job = jobs.fresh(
        "launched.py", "dies", ranks=2, options=alone, timeout=60, RINGLEADER_DEADLINE="4", **APART
    )
    assert job.code != 0
    assert "rank 0 got: rank 0 waited" in job.out, job.out + job.err
