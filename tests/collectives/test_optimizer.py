"""The distributed optimizer on real ranks: every argument, every way to fall back, compression, the guide."""

from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "mixed-precision.md"


@programs(
    ("optimizing.py", "1 3", "2 2x1 2x2 2+1"),
    ("converted.py", "1 3", "2 2x1 2x2 2+1"),
    ("compressing.py", "", "2 3 2x1"),
    ("thawing.py", "", "2 3 2x1"),
    *((f"held_groups.py {how}", "2", "") for how in ("plain", "shard", "adasum")),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.long
def test_the_page_on_mixed_precision(jobs: Any, tmp_path: Path) -> None:
    jobs.train_page(GUIDE, tmp_path, blocks=3)
