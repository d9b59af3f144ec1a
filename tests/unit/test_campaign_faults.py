"""The campaign of faults (``make campaign-faults``): what is drawn and what is expected."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import faults

PLACES = ("host", "lab")


def test_every_kind_of_fault_is_drawn_as_often_as_any_other():
    every = set(faults.drawn(PLACES, 1000, seed=1))
    assert len(every) > 150
    drawn = faults.drawn(PLACES, 2 * len(every), seed=1)
    assert all(drawn.count(row) == 2 for row in every)
    assert drawn == faults.drawn(PLACES, 2 * len(every), seed=1)
    assert all(faults.expected(row)[0] for row in every)
