"""The sharded optimizer on real ranks."""

from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import programs

# Thousands of meetings of four ranks: beside others each takes as long as theirs until the last has its turn.
pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(400)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sharded-optimizer.md"


@programs(
    ("sharding.py", "2", "1 3 2x2 2+1"),
    ("sharding.py", "", "2", {"RINGLEADER_TRANSPORT": "distributed"}),
    ("sharding_state.py", "2", "1 3 2x2 2+1"),
    ("sharding_scripts.py", "2", "1 3 2x2 2+1"),
    ("divided_regions.py", "2x2", "3x2"),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.long
def test_the_guide(jobs: Any, tmp_path: Path) -> None:
    jobs.train_page(GUIDE, tmp_path, blocks=3, replaced=("checkpoint.pt", str(tmp_path / "checkpoint.pt")))
