"""A script written for torchrun runs as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.torch, pytest.mark.mpi]


@pytest.mark.long
def test_a_script_for_torchrun_runs_unmodified(run: Callable) -> None:
    ended = run("ddp_torchrun.py", ranks=2, launched=True, quiet=False)
    losses = [float(ended.line(f"[0] epoch {epoch}: loss ")) for epoch in (1, 2, 3)]
    assert losses == sorted(losses, reverse=True)
    hashes = [ended.line(f"[{rank}] parameters of rank {rank} of 2: ") for rank in (0, 1)]
    assert hashes[0] == hashes[1]
    [line] = ended.errors.splitlines()  # what carried it is said, for it is not the engine's
    assert line.startswith("ringleader: localhost, between its ranks: TCP on lo carried 100% of ")


def test_the_script_knows_nothing_of_us() -> None:
    text = (EXAMPLES / "ddp_torchrun.py").read_text().lower()
    assert "ringleader" not in text and "hvd" not in text
