"""The campaigns of bad input and of faults: what is called, drawn and expected."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import bad_input_cases
import faults


def test_every_command_has_cases():
    assert bad_input_cases.unknown_commands() == []
    commands = {case.command for case in bad_input_cases.all_cases()}
    assert commands == {words for words, _ in bad_input_cases.leaves()}


def test_a_sample_has_every_command():
    cases = bad_input_cases.all_cases()
    assert len(cases) >= 200
    chosen = bad_input_cases.sample(cases, 60, seed=7)
    assert len(chosen) == 60 and chosen == bad_input_cases.sample(cases, 60, seed=7)
    assert {case.command for case in chosen} == set(bad_input_cases.SUBJECTS)


PLACES = ("host", "lab")


def test_every_kind_of_fault_is_drawn_as_often_as_any_other():
    every = set(faults.drawn(PLACES, 1000, seed=1))
    assert len(every) > 150
    drawn = faults.drawn(PLACES, 2 * len(every), seed=1)
    assert all(drawn.count(row) == 2 for row in every)
    assert drawn == faults.drawn(PLACES, 2 * len(every), seed=1)
    assert all(faults.expected(row)[0] for row in every)
