"""The sharded optimizer on real ranks."""

from pathlib import Path
from typing import Any

import pytest

# Thousands of meetings of four ranks: beside others each takes as long as theirs until the last has its turn.
pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(400)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sharded-optimizer.md"
SHAPES = pytest.mark.parametrize(
    ("size", "per_host"),
    [
        pytest.param(1, "", marks=pytest.mark.long),
        (2, ""),
        pytest.param(3, "", marks=pytest.mark.long),
        pytest.param(4, "2", marks=pytest.mark.long),
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


def test_it_does_what_the_optimizer_of_pytorch_does(jobs: Any) -> None:
    jobs.fresh("sharding_zero.py", ranks=2).passed(2)


@pytest.mark.long
def test_the_guide(jobs: Any, tmp_path: Path) -> None:
    jobs.train_page(GUIDE, tmp_path, blocks=3, replaced=("checkpoint.pt", str(tmp_path / "checkpoint.pt")))


@pytest.mark.long
def test_the_calls_that_gpus_get_carry_it_too(jobs: Any) -> None:
    jobs.fresh("sharding.py", ranks=2, RINGLEADER_TRANSPORT="distributed").passed(2)


@pytest.mark.parametrize("size", [4, pytest.param(6, marks=pytest.mark.long)])
def test_parts_of_memory_between_hosts(jobs: Any, size: int) -> None:
    jobs("divided_regions.py", ranks=size, RINGLEADER_RANKS_PER_HOST="2").passed(size)
