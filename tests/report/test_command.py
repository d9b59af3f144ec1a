"""``ringleader scale`` and ``ringleader report`` as a user calls them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests import transcripts
from tests.report.conftest import Call
from tests.report.recorded import trained
from tests.report.test_recorded_job import elastic, restarted, stored

from ringleader.bench import run_file
from ringleader.measurements.collective import CollectiveRun, Timing
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import AnyRun
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Run


@pytest.fixture
def files(
    tmp_path: Path, run: Run, pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun
) -> Path:
    """A directory with runs of every kind, and some that the guard has to refuse."""
    slow = tuple(replace(sample, rate=sample.rate * 0.8) for sample in run.points[3].samples)
    first, *others = collective.series
    result = replace(first.results[0], out_of_place=Timing(seconds=1.0, wrong=7))
    wrong = replace(first, results=(result, *first.results[1:]))
    runs: dict[str, AnyRun] = {
        **dict.fromkeys(("one", "two", "runs/mine"), run),
        "slow": replace(run, name="now", points=(*run.points[:3], replace(run.points[3], samples=slow))),
        "failed": replace(run, points=run.points[:1], failure="rank 3 ended"),
        "pairs": pairs,
        "collective": collective,
        "fewer": replace(collective, series=tuple(others)),
        "odd": replace(collective, series=(wrong, *others)),
        "training": training,
    }
    for name, one in runs.items():
        run_file.write(one, tmp_path / name)
    trained(tmp_path / "job", slow=1.6)
    elastic(tmp_path / "elastic")
    restarted(tmp_path / "restarted", None)
    stored(tmp_path / "outcome.json")
    stored(tmp_path / "failed.json", exit_code=7, reason="rank 0 ended")
    (tmp_path / "bad.json").write_text("x")
    (tmp_path / "link.json").symlink_to("one/run.json")
    return tmp_path


@pytest.mark.parametrize("name", ["wrong", "guard", "printed"])
def test_what_is_printed_and_nothing_is_written(files: Path, call: Call, name: str) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}

    before = contents()
    transcripts.check(f"report/{name}.txt", call)
    assert contents() == before


def test_a_page_is_written_and_replaced(files: Path, call: Call) -> None:
    page = files / "page.html"
    for words, begin in (("html", "<!DOCTYPE html>"), ("markdown --replace", "## mnist-lab")):
        assert call(f"report one two -o page.html --format {words}") == (0, "", "")
        assert page.read_text().startswith(begin)
    code, out, err = call("report slow --against one --fail-below 0.9 --json")
    assert code == 1 and json.loads(out)["guard"]["failed"] == ["4x2"] and "4x2: 0.800 of" in err


TRAIN = """
import time
import ringleader
for _ in range(40):
    time.sleep(0.02)
    ringleader.progress(samples=10)
"""


def measured(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = ("scale", "--no-allocation", "--oversubscribe", "--grid", "1x1,1x2", "--name", "t", *words)
    argv = [sys.executable, "-m", "ringleader", *words]
    return subprocess.run(argv, capture_output=True, text=True, cwd=cwd, timeout=170)


@pytest.mark.long
@pytest.mark.mpi
def test_a_real_script_is_measured(tmp_path: Path) -> None:
    (tmp_path / "train it.py").write_text(TRAIN)
    done = measured("--repeats", "2", "--json", sys.executable, "train it.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    one, two = document["results"]
    # A rank that sleeps 20 ms for each 10 samples cannot do more than 500 a second.
    assert 0 < one["rate"]["high"] <= 500 and 0 < two["rate"]["high"] <= 1000
    for field in ("rate", "against_uncoupled", "against_in_step", "in_step_against_uncoupled"):
        assert two[field]["count"] == 2
    context = document["context"]
    assert context["hosts"][0]["cores"] and context["mpi"]
    assert context["python"] == ".".join(map(str, sys.version_info[:3]))
    kept = {path.name for path in (tmp_path / "runs" / "t").iterdir()}
    assert kept == {"run.json", "report.md", "report.json", "report.html"}
    assert len(done.stderr.splitlines()) == 8 + 2


FAIL = """
import os, sys
if os.environ["WORLD_SIZE"] == "2":
    sys.exit("no disk")
"""


@pytest.mark.mpi
def test_a_failing_script_gives_its_code_and_what_it_printed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + FAIL)
    words = ("--no-uncoupled", "--no-page", "--repeats", "1")
    done = measured(*words, sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 1 and "The run ended early" in done.stdout
    assert "1x2 coupled, repetition 1: rank" in done.stderr and "no disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert [len(point.samples) for point in run_file.read(tmp_path / "runs" / "t").points] == [1, 0]
