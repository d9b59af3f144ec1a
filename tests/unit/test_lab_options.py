"""Which lab is meant: by an option of two spellings, or by RINGLEADER_LAB."""

from __future__ import annotations

import click
import pytest

from ringleader.cli.lab import command
from ringleader.cli.run.command import find_lab
from ringleader.errors import LabError


def params_of(words: str, argv: list[str]) -> dict[str, object]:
    found = command.get_command(click.Context(command), words)
    assert found is not None
    with found.make_context(words, argv) as ctx:
        return dict(ctx.params)


@pytest.mark.parametrize("words", ["up", "down", "status"])
def test_a_lab_is_named_by_an_option_or_a_variable(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGLEADER_LAB", raising=False)
    assert params_of(words, [])["name"] == ("lab" if words == "up" else None)
    monkeypatch.setenv("RINGLEADER_LAB", "slow")
    assert params_of(words, [])["name"] == "slow"
    for spelling in ("--name", "--lab-name"):
        assert params_of(words, [spelling, "big"])["name"] == "big"


def test_a_job_looks_for_the_lab_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLEADER_LAB", "other")
    with pytest.raises(LabError, match="absent"):
        find_lab("absent")
    with pytest.raises(LabError, match="other"):
        find_lab(None)
