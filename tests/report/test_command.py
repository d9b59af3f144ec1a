"""``ringleader scale`` and ``ringleader report`` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ringleader.bench import run_file
from ringleader.cli.report import ReportOptions, command
from ringleader.measurements.collective import CollectiveRun, Timing
from ringleader.measurements.run_kinds import AnyRun
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Run


def ringleader(*words: str, cwd: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringleader", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
    )


def test_every_fault_of_the_command_line_is_told_at_once(tmp_path: Path) -> None:
    words = ("--grid", "1x1,two", "--repeats", "0", "--warmup", "1", "--threads", "z", "--name", "a/b")
    done = ringleader("scale", *words, "--", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    for place in (
        "--threads: 'z'",
        "COMMAND: nothing to run",
        "--grid: 'two'",
        "--repeats: 0",
        "--name: 'a/b'",
    ):
        assert place in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_size_that_needs_more_hosts_is_refused(tmp_path: Path) -> None:
    done = ringleader("scale", "--no-allocation", "--grid", "1x1,2x1", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "2x1 needs 2 hosts" in done.stderr


def test_a_size_that_needs_more_cores_is_refused(tmp_path: Path) -> None:
    done = ringleader("scale", "--no-allocation", "--grid", "1x4096", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "1x4096 needs 4096 cores" in done.stderr


def test_dry_run_and_sizes_print_and_write_nothing(tmp_path: Path) -> None:
    plan = ringleader(
        "scale", "--no-allocation", "--oversubscribe", "--grid", "1x2", "--repeats", "1", "--dry-run",
        "python", "a b.py", "--epochs", "2", cwd=tmp_path,
    )  # fmt: skip
    assert (plan.returncode, plan.stderr) == (0, "")
    assert plan.stdout.splitlines()[:5] == [
        "1\t1x1 coupled, repetition 1\t1 rank\tlocalhost:1",
        "2\t1x2 coupled, repetition 1\t2 ranks\tlocalhost:2",
        "3\t1x2 uncoupled, repetition 1\t2 ranks\tlocalhost:2",
        "4\t1x2 in step, repetition 1\t2 ranks\tlocalhost:2",
        "command\tpython 'a b.py' --epochs 2",
    ]
    sizes = ringleader("scale", "-H", "a:2,b:2,c:1", "--grid", "1x1,2x2,3x1", "--sizes", cwd=tmp_path)
    assert sizes.stdout.splitlines() == ["1x1\t1\ta:1", "2x2\t4\ta:2,b:2", "3x1\t3\ta:1,b:1,c:1"]
    assert list(tmp_path.iterdir()) == []


def test_a_measured_run_is_not_written_over(tmp_path: Path, run: Run) -> None:
    run_file.write(run, tmp_path / "runs" / "mine")
    done = ringleader("scale", "--no-allocation", "--grid", "1x1", "--name", "mine", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "a run of this name is there already" in done.stderr


def test_stored_runs_are_rendered_and_compared(tmp_path: Path, run: Run) -> None:
    run_file.write(run, tmp_path / "one")
    run_file.write(replace(run, name="other"), tmp_path / "two")
    shown = ringleader("report", "one", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "8 ranks do 5.92× the work of one" in shown.stdout
    document = json.loads(ringleader("report", "one", "--format", "json", cwd=tmp_path).stdout)
    assert document["results"][3]["efficiency"]["median"] == pytest.approx(0.74)
    both = ringleader("report", "one", "two", "--format", "markdown", cwd=tmp_path)
    assert both.stdout.startswith("## mnist-lab and other\n")
    page = ringleader("report", "one", "two", "--format", "html", "-o", "page.html", cwd=tmp_path)
    assert (page.returncode, page.stdout, page.stderr) == (0, "", "")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_what_report_cannot_read_or_write(tmp_path: Path, run: Run) -> None:
    run_file.write(run, tmp_path / "one")
    (tmp_path / "bad.json").write_text("{")
    done = ringleader("report", "bad.json", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.json:1:2: is not JSON" in done.stderr
    assert "none: there is no stored run here" in done.stderr
    assert ringleader("report", cwd=tmp_path).returncode == 2
    refused = ringleader("report", "one", "-o", "no/such/file", cwd=tmp_path)
    assert refused.returncode == 2
    assert "-o: there is no directory no/such" in refused.stderr


def test_a_file_is_not_written_over_without_the_word(tmp_path: Path, run: Run) -> None:
    run_file.write(run, tmp_path / "one")
    (tmp_path / "page").write_text("mine")
    done = ringleader("report", "one", "-o", "page", cwd=tmp_path)
    assert done.returncode == 2 and "page is there already" in done.stderr and "--replace" in done.stderr
    assert (tmp_path / "page").read_text() == "mine"
    assert ringleader("report", "one", "-o", "page", "--replace", cwd=tmp_path).returncode == 0
    assert "8 ranks do" in (tmp_path / "page").read_text()


@pytest.mark.parametrize("option", [("--json-file",), ("--replace", "-o")])
@pytest.mark.parametrize("runs", [("one",), ("one/run.json",), ("two", "--against", "one")])
def test_a_run_that_is_read_is_not_written_over(
    tmp_path: Path, run: Run, runs: tuple[str, ...], option: tuple[str, ...]
) -> None:
    run_file.write(run, tmp_path / "one")
    run_file.write(replace(run, name="other"), tmp_path / "two")
    before = (tmp_path / "one" / "run.json").read_bytes()
    (tmp_path / "link.json").symlink_to("one/run.json")
    done = ringleader("report", *runs, *option, "link.json", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{option[-1]}: link.json is read by this command, and would be lost" in done.stderr
    assert (tmp_path / "one" / "run.json").read_bytes() == before


def test_the_guard_has_a_code_of_its_own(tmp_path: Path, run: Run) -> None:
    slow = tuple(replace(sample, rate=sample.rate * 0.8) for sample in run.points[3].samples)
    run_file.write(run, tmp_path / "base")
    points = (*run.points[:3], replace(run.points[3], samples=slow))
    run_file.write(replace(run, name="now", points=points), tmp_path / "now")
    words = ("report", "now", "--against", "base")
    failed = ringleader(*words, "--fail-below", "0.9", "--json", cwd=tmp_path)
    assert failed.returncode == 1 and "4x2: 0.800 of mnist-lab" in failed.stderr
    assert json.loads(failed.stdout)["guard"]["failed"] == ["4x2"]
    passed = ringleader(*words, "--fail-below", "0.7", cwd=tmp_path)
    assert (passed.returncode, passed.stderr) == (0, "") and "Passed: none of 4 numbers" in passed.stdout
    assert "slower at 4x2" in passed.stdout


def test_wrong_results_fail_the_guard(
    tmp_path: Path, collective: CollectiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    series, result = collective.series[0], collective.series[0].results[0]
    timing = Timing(seconds=1.0, wrong=7)
    wrong = replace(series, results=(replace(result, out_of_place=timing), *series.results[1:]))
    run_file.write(collective, tmp_path / "base")
    run_file.write(replace(collective, series=(wrong, *collective.series[1:])), tmp_path / "now")
    options = ReportOptions(runs=(str(tmp_path / "now"),), against=str(tmp_path / "base"), fail_below=0.9)
    assert command.run(options) == 1
    assert "7 wrong elements (#wrong), so its rates mean nothing" in capsys.readouterr().err


def guarded(directory: Path, before: AnyRun, after: AnyRun, *, allow_missing: bool = False) -> int:
    run_file.write(before, directory / "base")
    run_file.write(after, directory / "now")
    return command.run(
        ReportOptions(
            runs=(str(directory / "now"),),
            against=str(directory / "base"),
            fail_below=0.9,
            allow_missing=allow_missing,
        )
    )


def test_failed_and_partial_runs_fail_the_guard(
    tmp_path: Path,
    run: Run,
    collective: CollectiveRun,
    training: TrainingRun,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = replace(collective.series[0], results=collective.series[0].results[:1])
    cases: tuple[tuple[AnyRun, AnyRun, str], ...] = (
        (
            run,
            replace(run, points=run.points[:1], failure="rank 3 ended"),
            "the run ended early: rank 3 ended",
        ),
        (
            collective,
            replace(collective, series=collective.series[1:]),
            "ringleader, 1 KiB; ringleader, 1 KiB",
        ),
        (collective, replace(collective, series=(first, *collective.series[1:])), "are missing"),
        (training, replace(training, failure="weights differ on rank 1"), "weights differ on rank 1"),
    )
    for number, (before, after, said) in enumerate(cases):
        assert guarded(tmp_path / str(number), before, after) == 1
        told = capsys.readouterr()
        assert "Failed: " in told.out and said in told.out and "Passed" not in told.out
        allowed = guarded(tmp_path / str(number), before, after, allow_missing=True)
        assert allowed == (1 if getattr(after, "failure", "") else 0)
        capsys.readouterr()


def test_words_of_report_that_do_not_go_together(tmp_path: Path) -> None:
    done = ringleader(
        "report", "a", "b", "--against", "c", "--fail-below", "x", "--port", "y", "--replace", cwd=tmp_path
    )
    assert done.returncode == 2
    for text in ("--against: compares one RUN; 2 given", "--fail-below: 'x' is not a number above 0",
                 "--port: 'y' is not a port", "--replace: counts with -o only"):  # fmt: skip
        assert text in done.stderr
    alone = ringleader("report", "a", "--against", "c", "--allow-missing", "--port", "80", cwd=tmp_path)
    assert alone.returncode == 2 and "--allow-missing: counts with --fail-below only" in alone.stderr
    assert "--port: counts with --serve only" in alone.stderr
    served = ringleader("report", "--serve", "--json", "nowhere", cwd=tmp_path)
    assert served.returncode == 2 and "--json does not go with it" in served.stderr


TRAIN = """
import time
import ringleader
for _ in range(40):
    time.sleep(0.02)
    ringleader.progress(samples=10)
"""


@pytest.mark.long
@pytest.mark.mpi
def test_a_real_script_is_measured(tmp_path: Path) -> None:
    (tmp_path / "train it.py").write_text(TRAIN)
    done = ringleader(
        "scale", "--no-allocation", "--oversubscribe", "--grid", "1x1,1x2", "--repeats", "2",
        "--name", "t", "--json", sys.executable, "train it.py", cwd=tmp_path, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    one, two = document["results"]
    # A rank that sleeps 20 ms for each 10 samples cannot do more than 500 a second.
    assert 0 < one["rate"]["high"] <= 500 and 0 < two["rate"]["high"] <= 1000
    assert two["rate"]["count"] == two["against_uncoupled"]["count"] == 2
    assert document["context"]["hosts"][0]["cores"] and document["context"]["mpi"]
    assert document["context"]["python"] == ".".join(map(str, sys.version_info[:3]))
    kept = {path.name for path in (tmp_path / "runs" / "t").iterdir()}
    assert kept == {"run.json", "report.md", "report.json", "report.html"}
    assert two["against_in_step"]["count"] == two["in_step_against_uncoupled"]["count"] == 2
    assert len(done.stderr.splitlines()) == 8 + 2


FAIL = """
import os, sys
if os.environ["WORLD_SIZE"] == "2":
    sys.exit("no disk")
"""


@pytest.mark.mpi
def test_a_failing_script_gives_its_code_and_what_it_printed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + FAIL)
    done = ringleader(
        "scale", "--no-allocation", "--oversubscribe", "--no-uncoupled", "--no-page", "--grid", "1x1,1x2",
        "--repeats", "1", "--name", "t", sys.executable, "train.py", cwd=tmp_path, timeout=170,
    )  # fmt: skip
    assert done.returncode == 1
    assert "1x2 coupled, repetition 1: rank" in done.stderr and "no disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert "The run ended early" in done.stdout
    kept = run_file.read(tmp_path / "runs" / "t")
    assert [len(point.samples) for point in kept.points] == [1, 0]
