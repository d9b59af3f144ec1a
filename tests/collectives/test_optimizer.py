"""The distributed optimizer on real ranks: every argument, every way to fall back, compression, the guide."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "mixed-precision.md"
SHAPES = pytest.mark.parametrize(
    ("size", "per_host"),
    [
        (1, ""),
        pytest.param(2, "", marks=pytest.mark.long),
        (3, ""),
        pytest.param(2, "1", marks=pytest.mark.long),
        pytest.param(4, "2", marks=pytest.mark.long),
        pytest.param(3, "2", marks=pytest.mark.long),
    ],
    ids=["1", "2", "3", "2x1", "2x2", "unequal 2+1"],
)

FEWER_SHAPES = pytest.mark.parametrize(
    ("size", "per_host"),
    [(2, ""), (3, ""), (2, "1")],
    ids=["2", "3", "2x1"],
)


@SHAPES
def test_every_argument_equals_training_in_one_process(jobs: Any, size: int, per_host: str) -> None:
    jobs("optimizing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.long
@FEWER_SHAPES
def test_compressed_gradients(jobs: Any, size: int, per_host: str) -> None:
    jobs("compressing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@SHAPES
def test_another_element_type_on_the_wire_has_the_same_sums(jobs: Any, size: int, per_host: str) -> None:
    jobs("converted.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.long
@FEWER_SHAPES
def test_parameters_frozen_thawed_and_added(jobs: Any, size: int, per_host: str) -> None:
    jobs("thawing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.long
def test_the_page_on_mixed_precision(jobs: Any, tmp_path: Path) -> None:
    jobs.train_page(GUIDE, tmp_path, blocks=3)


@pytest.mark.long
@FEWER_SHAPES
def test_memory_that_scripts_change_after_the_wrap(jobs: Any, size: int, per_host: str) -> None:
    jobs("changed_memory.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.parametrize("how", ["plain", "shard", "adasum"])
def test_what_is_loaded_goes_into_the_groups_that_schedulers_hold(jobs: Any, how: str) -> None:
    jobs("held_groups.py", how, ranks=2).passed(2)
