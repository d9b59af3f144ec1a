"""Bucket sizes on trial under a real MPI."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.long
@pytest.mark.parametrize("variable", ["RINGLEADER_AUTOTUNE", "HOROVOD_AUTOTUNE"])
def test_trials(jobs: Any, variable: str) -> None:
    said = jobs("autotuned.py", ranks=2, **{variable: "1"}).passed_with_trials(2)
    assert "8 MiB" in said and "no limit" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "environ"),
    [(4, {"RINGLEADER_RANKS_PER_HOST": "2"}), (2, {"RINGLEADER_RANKS_PER_HOST": "1"}), (3, {})],
    ids=["2x2", "2x1", "three ranks"],
)
def test_trials_elsewhere(jobs: Any, size: int, environ: dict[str, str]) -> None:
    jobs("autotuned.py", ranks=size, RINGLEADER_AUTOTUNE="1", **environ).passed_with_trials(size)


@pytest.mark.long
def test_trials_end_where_a_rank_joins(jobs: Any) -> None:
    jobs("autotuned.py", "join", ranks=2, RINGLEADER_AUTOTUNE="1").passed(2)
