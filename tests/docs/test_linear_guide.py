"""The guide "How close to linear am I, and why not closer?": what it shows is what its stored runs say."""

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import pytest
from tests.docs.pages import ROOT, blocks, ringleader, text_of

from ringleader.bench import run_file
from ringleader.bench.nccl_tests import text_table
from ringleader.cli.bench import pair_text, train
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.report.text import runs_text
from ringleader.scaling import Run

STORED = ROOT / "tests/golden/guide"
PAGES = ("how-close-to-linear.md", "how-close-to-linear.zh-CN.md")
ARMS = ("uncoupled", "in step", "ringleader")


def printed(run: object) -> str:
    """Return what the command that measured a run printed at its end."""
    if isinstance(run, PointToPointRun):
        return pair_text.as_text(run)
    if isinstance(run, CollectiveRun):
        return text_table.as_text(run) + text_table.comparison(run)
    if isinstance(run, TrainingRun):
        return train.as_text(run)
    assert isinstance(run, Run)
    return runs_text([run])


def shown() -> list[tuple[list[str], str]]:
    """Return (words, output) of each command whose output the guide shows."""
    found, last = [], []
    for language, body in blocks(f"docs/guides/{PAGES[0]}"):
        if language == "console":
            last = shlex.split(body.splitlines()[-1][2:])[1:]
        elif not language and last:
            found.append((last, body))
            last = []
    return found


def test_outputs_shown_are_those_of_the_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED, "runs")
    names = []
    for words, output in shown():
        if words[0] in ("report", "predict"):
            code, text = ringleader(words, capsys)
            assert code == 0
        elif "--name" in words:
            text = printed(run_file.read_any(STORED / words[words.index("--name") + 1]))
        else:  # doctor: what it finds depends on the machine
            continue
        at = 0
        for part in output.split("…\n"):
            assert f"\n{part}" in f"\n{text[at:]}", (
                f"ringleader {' '.join(words)} does not print, here,\n{part}"
            )
            at = text.index(part, at) + len(part)
        names.append(words[0])
    assert names == ["bench", "bench", "bench", "scale", "predict", "report"]


@pytest.mark.parametrize("page", PAGES)
def test_numbers_in_the_text_are_those_of_the_runs(page: str) -> None:
    text = text_of(f"docs/guides/{page}")
    training, collective = (run_file.read_any(STORED / name) for name in ("train", "allreduce"))
    assert isinstance(training, TrainingRun) and isinstance(collective, CollectiveRun)
    arms = {arm.name: arm.rates for arm in (*training.arms, training.alone) if arm is not None}
    levels = [tuple(2 * rate for rate in arms["alone"]), *(arms[name] for name in ARMS)]
    for (before, after), name in zip(pairwise(levels), ARMS, strict=True):
        left = geometric_mean(y / x for x, y in zip(before, after, strict=True))
        assert re.search(rf"`{name}` \| {100 * (1 - left):.0f} ?% \|", text), name
    assert f"{training.gradient_bytes / 1e6:.1f} MB" in text
    at_one_mib = {
        series.implementation: result.in_place.seconds * 1e3
        for series in collective.series
        for result in series.results
        if result.size == 1 << 20 and result.in_place
    }
    assert f"{at_one_mib['ringleader']:.1f} ms" in text and f"{at_one_mib['gloo']:.1f}" in text
