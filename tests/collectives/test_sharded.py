"""The sharded optimizer on real ranks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sharded-optimizer.md"
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


def test_it_does_what_the_optimizer_of_pytorch_does(jobs: Any) -> None:
    jobs.fresh("sharding_zero.py", ranks=2).passed(2)


def test_the_guide(jobs: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    script = tmp_path / "script.py"
    same = (
        "assert len(set(hvd.allgather_object(str([p.tolist() for p in model.parameters()])))) == 1\n"
        'print("rank done", flush=True)\n'
    )
    script.write_text("\n".join(blocks).replace("checkpoint.pt", str(tmp_path / "checkpoint.pt")) + same)
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    jobs.run([mpirun, "--oversubscribe", "-n", "2", sys.executable, str(script)]).passed(2)


def test_the_calls_that_gpus_get_carry_it_too(jobs: Any) -> None:
    jobs.fresh("sharding.py", ranks=2, RINGLEADER_TRANSPORT="distributed").passed(2)
