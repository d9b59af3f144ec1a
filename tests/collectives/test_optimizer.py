"""The distributed optimizer on real ranks: every argument, every way to fall back, compression, the guide."""

from __future__ import annotations

import re
import sys
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
        (4, "2"),
        (3, "2"),
    ],
    ids=["1", "2", "3", "2x1", "2x2", "unequal 2+1"],
)

FEWER_SHAPES = pytest.mark.parametrize(
    ("size", "per_host"),
    [pytest.param(2, "", marks=pytest.mark.long), (3, ""), pytest.param(2, "1", marks=pytest.mark.long)],
    ids=["2", "3", "2x1"],
)


@SHAPES
def test_every_argument_equals_training_in_one_process(jobs: Any, size: int, per_host: str) -> None:
    jobs("optimizing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@FEWER_SHAPES
def test_compressed_gradients(jobs: Any, size: int, per_host: str) -> None:
    jobs("compressing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@FEWER_SHAPES
def test_parameters_frozen_thawed_and_added(jobs: Any, size: int, per_host: str) -> None:
    jobs("thawing.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


def test_the_page_on_mixed_precision(jobs: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    script = tmp_path / "script.py"
    same = (
        "assert len(set(hvd.allgather_object(str([p.tolist() for p in model.parameters()])))) == 1\n"
        'print("rank done", flush=True)\n'
    )
    script.write_text("\n".join(blocks) + same)
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    jobs.run([mpirun, "--oversubscribe", "-n", "2", sys.executable, str(script)]).passed(2)
