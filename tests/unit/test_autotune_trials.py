"""Trials of bucket sizes, on one rank and with a clock of the test's."""

from itertools import accumulate

import pytest

import ringleader.torch as hvd
from ringleader.adapters.autotune import STEPS, Autotune
from ringleader.torch.basics import session

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def joined():
    hvd.init()
    yield
    hvd.shutdown()


def test_the_shortest_step_wins_and_the_first_step_of_each_does_not_count(capsys):
    seconds = {8 << 20: [9.0, 5, 5, 5, 5, 5], 2 << 20: [99.0, 3, 90, 3, 3, 90], None: [0.1, 4, 4, 4, 4, 4]}
    lasted = [one for each in seconds.values() for one in (0.0, *each)]
    clock = iter(list(accumulate(lasted)))
    trials = Autotune(session().engine, list(seconds), clock=lambda: next(clock))
    used = []
    while not trials.over:
        used.append(trials.cap_bytes)
        changes = trials.step("autotune")
        assert changes == (len(used) % (STEPS + 2) == 0)
    assert used == [size for size in seconds for _ in range(STEPS + 2)]
    assert trials.cap_bytes == 2 << 20
    assert not trials.step("autotune"), "nothing is tried any more"
    assert capsys.readouterr().err == (
        "ringleader: autotune chose buckets: 2 MiB (a step took with 8 MiB 5000.00 ms, 2 MiB 3000.00 ms, "
        "no limit 4000.00 ms)\n"
    )
