"""SyncBatchNorm on real ranks against torch's BatchNorm on the joint batch."""

from typing import Any

import pytest


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize(
    "ranks", [2, pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]
)
def test_parts_of_a_batch_are_normalized_as_the_whole(jobs: Any, ranks: int) -> None:
    jobs("batch_norm.py", ranks=ranks).passed(ranks)
