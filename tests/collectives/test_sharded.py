"""The sharded optimizer on real ranks."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

SHAPES = pytest.mark.parametrize(
    ("size", "per_host"),
    [
        pytest.param(1, "", marks=pytest.mark.long),
        (2, ""),
        pytest.param(3, "", marks=pytest.mark.long),
        (4, "2"),
        pytest.param(3, "2", marks=pytest.mark.long),
    ],
    ids=["1", "2", "3", "2x2", "unequal 2+1"],
)


@SHAPES
def test_it_trains_as_the_whole_optimizer_does(jobs: Any, size: int, per_host: str) -> None:
    jobs("sharding.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@SHAPES
def test_its_state_is_saved_and_loaded_whole(jobs: Any, size: int, per_host: str) -> None:
    jobs("sharding_state.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@SHAPES
def test_what_scripts_do_around_it(jobs: Any, size: int, per_host: str) -> None:
    jobs("sharding_scripts.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)
