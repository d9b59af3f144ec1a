"""The table of the campaign of faults (``make campaign-faults``): what is drawn and what is expected."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import faults_table as table


def test_every_kind_of_fault_is_drawn_as_often_as_any_other():
    every = table.rows("host") + table.rows("lab")
    assert len(set(every)) == len(every) > 150
    drawn = table.drawn(("host", "lab"), 2 * len(every), seed=1)
    assert all(drawn.count(row) == 2 for row in every)
    assert drawn == table.drawn(("host", "lab"), 2 * len(every), seed=1)
    assert all(table.expected(row).codes for row in every)
