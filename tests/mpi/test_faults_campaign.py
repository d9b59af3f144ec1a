"""A few seeded trials of the campaign of faults; ``make campaign-faults`` runs hundreds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import faults_table as table

CAMPAIGNS = Path(table.__file__).parent

pytestmark = pytest.mark.mpi


def test_some_faults_on_one_host():
    words = (sys.executable, str(CAMPAIGNS / "faults.py"), "--where", "host", "--trials", "6", "--seed", "4")
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout
    assert "6 trials, 0 exceptions" in done.stdout


def test_every_kind_of_fault_is_drawn_as_often_as_any_other():
    every = table.rows("host") + table.rows("lab")
    assert len(set(every)) == len(every) > 150
    drawn = table.drawn(("host", "lab"), 2 * len(every), seed=1)
    assert all(drawn.count(row) == 2 for row in every)
    assert drawn == table.drawn(("host", "lab"), 2 * len(every), seed=1)
    assert all(table.expected(row).codes for row in every)
