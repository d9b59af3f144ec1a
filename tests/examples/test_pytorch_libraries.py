"""Libraries on top of torch.distributed: the real packages, where `make test-libraries` installed them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.docs.pages import blocks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PAGE = "docs/guides/pytorch-libraries.md"
SCRIPTS = ("ddp_torchrun", "libraries/fsdp2", "libraries/with_accelerate", "libraries/with_transformers")
SCRIPTS += ("libraries/with_lightning",)
"""In the page's order."""


def ended(run: Callable, script: str, *words: object) -> list[str]:
    """Run a script on 2 ranks; return what it prints. These libraries warn and log on standard error."""
    return run(f"libraries/{script}.py", *words, ranks=2, launched=True, quiet=False).lines


def reported(lines: list[str], pattern: str, what: str = "rank") -> list[str]:
    """Return what both ranks report, each with its own number and the job's size."""
    found = [re.match(rf"\[(\d)\] {what} (\d) of 2{pattern}$", line) for line in lines if " of 2" in line]
    matches = sorted((match[1], match[2], match[3]) for match in found if match)
    assert [match[:2] for match in matches] == [("0", "0"), ("1", "1")], lines
    return [match[2] for match in matches]


def falls(lines: list[str]) -> bool:
    """Return whether rank 0 printed three losses, each smaller than the last."""
    losses = [float(line.rpartition(" ")[2]) for line in lines if re.match(r"\[0\] epoch \d: loss", line)]
    return len(losses) == 3 and losses == sorted(losses, reverse=True)


@pytest.mark.torch
@pytest.mark.mpi
@pytest.mark.long
def test_a_script_for_torchrun_runs_unmodified(run: Callable) -> None:
    ended = run("ddp_torchrun.py", ranks=2, launched=True, quiet=False)
    assert falls(ended.lines)
    one, other = reported(ended.lines, ": (.*)", "parameters of rank")
    assert one == other
    [line] = ended.errors.splitlines()  # what carried it is said, for it is not the engine's
    assert line.startswith("ringleader: localhost, between its ranks: TCP on lo carried 100% of ")
    text = (EXAMPLES / "ddp_torchrun.py").read_text().lower()
    assert "ringleader" not in text and "hvd" not in text


@pytest.mark.torch
@pytest.mark.mpi
@pytest.mark.long
def test_fsdp2_shards_parameters_over_ranks(run: Callable) -> None:
    lines = ended(run, "fsdp2")
    assert falls(lines), lines
    assert reported(lines, r" holds (.*) parameters") == ["1121 of 2242"] * 2


@pytest.mark.torch
@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_a_library_divides_the_data_and_keeps_ranks_equal(
    run: Callable, library: str, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    lines = ended(run, f"with_{library}", *(["--output-dir", tmp_path] if library == "transformers" else []))
    assert falls(lines), lines
    one, other = reported(lines, ": (16 batches, checksum .*)")  # half of 2048 samples, 64 in a batch, say
    assert one == other


def test_the_page_shows_what_the_scripts_do() -> None:
    """Lines of each block, but those of `...`, are lines of its script, in their order."""
    shown = [body for _, body in blocks(PAGE, "python")]
    for script, body in zip(SCRIPTS, shown, strict=False):
        lines = iter([line.strip() for line in (EXAMPLES / f"{script}.py").read_text().splitlines()])
        for line in body.splitlines():
            if line.strip() not in ("...", "# …"):
                assert line.strip() in lines, f"{script}: {line}"
