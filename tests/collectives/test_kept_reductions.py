"""Reductions that come again under their names: described once, planned once, never mistaken for another."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (1, {}),
        (2, {}),
        (3, {}),
        pytest.param(4, {}, marks=pytest.mark.long),
        (4, {"RINGLEADER_RANKS_PER_HOST": "2"}),
        (2, {"RINGLEADER_TRANSPORT": "mpi"}),
    ],
)
def test_steps_that_are_alike_but_for_something(jobs: Any, size: int, environ: dict[str, str]) -> None:
    jobs("kept_reductions.py", ranks=size, RINGLEADER_MISMATCH_PATIENCE="0.2", **environ).passed(size)


def test_with_a_timeline(jobs: Any, tmp_path: Any) -> None:
    timeline = str(tmp_path / "timeline.json")
    jobs("kept_reductions.py", ranks=2, RINGLEADER_MISMATCH_PATIENCE="0.2", HOROVOD_TIMELINE=timeline).passed(
        2
    )
