"""Reductions on ranks: repeated, in memory that all see, on trial, of batches, and as they are counted."""

from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

PLAIN_MPI = {"RINGLEADER_TRANSPORT": "mpi"}
PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "0.2"}


@programs(
    ("repeated.py", "1 2 3", "4 2x2"),
    ("kept_reductions.py", "1 2 3 2x2", "4", PATIENCE),
    ("kept_reductions.py", "2", "", PATIENCE | PLAIN_MPI),
    *((f"registered.py {count}", "2 3", "") for count in (300_001, 8001, 5)),
    ("registered.py", "2x2", ""),
    ("registered.py", "2", "", PLAIN_MPI),
    ("registering.py", "1 2 3 2x2", "4"),
    ("registering.py", "2", "", PLAIN_MPI),
    ("batch_norm.py", "2", "1 3"),
    ("traffic.py", "2", "2x1"),
    ("autotuned.py join", "", "2", {"RINGLEADER_AUTOTUNE": "1"}),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


def test_kept_ones_with_a_timeline(jobs: Any, tmp_path: Any) -> None:
    timeline = str(tmp_path / "timeline.json")
    jobs("kept_reductions.py", ranks=2, HOROVOD_TIMELINE=timeline, **PATIENCE).passed(2)


def test_a_storage_for_which_there_is_no_room(jobs: Any) -> None:
    done = jobs("registering.py", "too-large", ranks=2)
    assert (done.code, done.out.count("rank done")) == (0, 2), done.err
    assert "/dev/shm is too small" in done.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (2, {"RINGLEADER_AUTOTUNE": "1"}),
        (2, {"HOROVOD_AUTOTUNE": "1", "RINGLEADER_RANKS_PER_HOST": "1"}),
        (4, {"RINGLEADER_AUTOTUNE": "1", "RINGLEADER_RANKS_PER_HOST": "2"}),
        (3, {"RINGLEADER_AUTOTUNE": "1"}),
    ],
    ids=["one host", "2x1", "2x2", "three ranks"],
)
def test_bucket_sizes_on_trial(jobs: Any, size: int, environ: dict[str, str]) -> None:
    said = jobs("autotuned.py", ranks=size, **environ).passed_with_trials(size)
    assert environ.get("RINGLEADER_RANKS_PER_HOST") or size == 3 or ("8 MiB" in said and "no limit" in said)
