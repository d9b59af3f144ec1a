"""Bucket sizes on trial under a real MPI."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize("variable", ["RINGLEADER_AUTOTUNE", "HOROVOD_AUTOTUNE"])
def test_trials(jobs: Any, variable: str) -> None:
    job = jobs("autotuned.py", ranks=2, **{variable: "1"})
    assert job.code == 0, job.err + job.out
    assert job.out.count("rank done") == 2
    said = [line for line in job.err.splitlines() if "autotune chose buckets" in line]
    assert len(said) == 1, job.err
    assert "8 MiB" in said[0] and "no limit" in said[0] and "arrays: MPI up to" in said[0]
