"""What a job of several hosts loses is named: trials of the campaign of faults in the tests' lab."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import faults
from faults import Row

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("fault", "target"),
    [
        pytest.param("kill host", "host", marks=pytest.mark.smoke),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (("kill", "prted"), ("term", "prted"), ("kill", "sshd"), ("cut link", "link"))
        ),
    ],
)
def test_what_is_lost_is_named(lab, fault, target):
    row = Row("lab", fault, target, "training")
    # With twice the time that the campaign allows: it runs alone, this beside other tests.
    found = faults.one(row, random.Random(1), lab, "embedded", time_factor=2.0)
    assert not found["faults"], (found["faults"], found["whose"], found["output"][-20:])
