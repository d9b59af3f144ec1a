"""The campaign of bad input calls every command that there is."""

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import bad_input_cases

from ringleader.cli.main import ringleader


def test_every_command_has_cases():
    assert bad_input_cases.unknown_commands() == []
    commands = {case.command for case in bad_input_cases.all_cases()}
    assert commands == {words for words, _ in bad_input_cases.leaves()}


def test_a_new_command_is_found():
    group = click.Group("new", commands={"one": click.Command("one"), "two": click.Command("two")})
    assert [words for words, _ in bad_input_cases.leaves(group, ("new",))] == ["new one", "new two"]
    assert all(words for words, _ in bad_input_cases.leaves(ringleader))


def test_a_sample_has_every_command():
    cases = bad_input_cases.all_cases()
    assert len(cases) >= 200
    chosen = bad_input_cases.sample(cases, 60, seed=7)
    assert len(chosen) == 60 and chosen == bad_input_cases.sample(cases, 60, seed=7)
    assert {case.command for case in chosen} == set(bad_input_cases.SUBJECTS)
