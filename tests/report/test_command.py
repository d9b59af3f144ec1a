"""``ringleader scale`` and ``ringleader report`` as a user calls them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.conftest import Call

from ringleader.bench import run_file
from ringleader.measurements.collective import CollectiveRun, Timing
from ringleader.scaling import Run


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "scale --grid 1x1,two --repeats 0 --warmup 1 --threads z --name a/b --",
            "--threads: 'z'|COMMAND: nothing to run|--grid: 'two'|--repeats: 0|--name: 'a/b'",
        ),
        ("scale --no-allocation --grid 1x1 --name mine true", "a run of this name already exists"),
        ("report bad.json none", "bad.json:1:2: is not JSON|none: there is no stored run here"),
        ("report", "no stored run given"),
        ("report one -o no/such/file", "-o: there is no directory no/such"),
        ("report one -o bad.json", "bad.json already exists|--replace"),
        (
            "report a b --against c --fail-below x --port y --replace",
            "--against: compares one RUN; 2 given|--fail-below: 'x' is not a number above 0"
            "|--port: 'y' is not a port|--replace: counts with -o only",
        ),
        (
            "report a --against c --allow-missing --port 80",
            "--allow-missing: counts with --fail-below only|--port: counts with --serve only",
        ),
        ("report --serve --json nowhere", "--json does not go with it"),
        *(
            (f"report {runs} {option} link.json", f"{option.split()[-1]}: link.json is read by this command")
            for runs in ("one", "two --against one")
            for option in ("--json-file", "--replace -o")
        ),
    ],
)
def test_all_that_is_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, call: Call, run: Run, line: str, said: str
) -> None:
    for place in ("one", "two", "runs/mine"):
        run_file.write(replace(run, name=place), tmp_path / place)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "link.json").symlink_to("one/run.json")
    before = contents(tmp_path)
    code, out, err = call(line)
    assert (code, out, contents(tmp_path)) == (2, "", before)
    assert all(part in err for part in said.split("|")) and "Traceback" not in err


def test_dry_run_and_sizes_print_and_write_nothing(tmp_path: Path, call: Call) -> None:
    words = "scale --no-allocation --oversubscribe --grid 1x2 --repeats 1 --dry-run python"
    code, out, err = call(words, "a b.py", "--epochs", "2")
    assert (code, err) == (0, "")
    assert out.splitlines()[:5] == [
        "1\t1x1 coupled, repetition 1\t1 rank\tlocalhost:1",
        "2\t1x2 coupled, repetition 1\t2 ranks\tlocalhost:2",
        "3\t1x2 uncoupled, repetition 1\t2 ranks\tlocalhost:2",
        "4\t1x2 in step, repetition 1\t2 ranks\tlocalhost:2",
        "command\tpython 'a b.py' --epochs 2",
    ]
    _, out, _ = call("scale -H a:2,b:2,c:1 --grid 1x1,2x2,3x1 --sizes")
    assert out.splitlines() == ["1x1\t1\ta:1", "2x2\t4\ta:2,b:2", "3x1\t3\ta:1,b:1,c:1"]
    assert list(tmp_path.iterdir()) == []


def test_stored_runs_are_rendered_and_compared(tmp_path: Path, call: Call, run: Run) -> None:
    run_file.write(run, tmp_path / "one")
    run_file.write(replace(run, name="other"), tmp_path / "two")
    code, out, err = call("report one")
    assert (code, err) == (0, "") and "8 ranks do 5.92× the work of one" in out
    document = json.loads(call("report one --format json")[1])
    assert document["results"][3]["efficiency"]["median"] == pytest.approx(0.74)
    page = tmp_path / "page.html"
    for words in ("one two --format html -o page.html", "one -o page.html --replace"):
        assert call(f"report {words}") == (0, "", "") and page.read_text().startswith("<!DOCTYPE html>")
    assert "8 ranks do" in page.read_text()


def test_the_guard_has_a_code_of_its_own(tmp_path: Path, call: Call, run: Run) -> None:
    slow = tuple(replace(sample, rate=sample.rate * 0.8) for sample in run.points[3].samples)
    points = (*run.points[:3], replace(run.points[3], samples=slow))
    run_file.write(run, tmp_path / "base")
    run_file.write(replace(run, name="now", points=points), tmp_path / "now")
    code, out, err = call("report now --against base --fail-below 0.9 --json")
    assert code == 1 and "4x2: 0.800 of mnist-lab" in err
    assert json.loads(out)["guard"]["failed"] == ["4x2"]
    code, out, err = call("report now --against base --fail-below 0.7")
    assert (code, err) == (0, "") and "Passed: none of 4 numbers" in out and "slower at 4x2" in out


def test_failed_partial_and_wrong_runs_fail_the_guard(
    tmp_path: Path, call: Call, run: Run, collective: CollectiveRun
) -> None:
    first, *others = collective.series
    result = replace(first.results[0], out_of_place=Timing(seconds=1.0, wrong=7))
    wrong = replace(first, results=(result, *first.results[1:]))
    fewer, odd = (replace(collective, series=many) for many in (tuple(others), (wrong, *others)))
    failed = replace(run, points=run.points[:1], failure="rank 3 ended")
    for before, after, said, allowed in (
        (run, failed, "Failed: the run ended early: rank 3 ended", 1),
        (collective, fewer, "missing: ringleader, 1 KiB; ringleader, 1 KiB", 0),
        (collective, odd, "7 wrong elements (#wrong), so its rates mean nothing", 1),
    ):
        run_file.write(before, tmp_path / "base")
        run_file.write(after, tmp_path / "now")
        words = "report now --against base --fail-below 0.9"
        code, out, err = call(words)
        assert code == 1 and said in out + err and "Passed" not in out
        assert call(f"{words} --allow-missing")[0] == allowed


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
