"""What `make test` itself relies on: the summary of stages, and deadlines that grow with the load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import time_limits
from tests.interpreter import write_program

STAGE = Path(__file__).resolve().parents[2] / "scripts/stage"


def stage(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, str(STAGE), *words)
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.process
def test_the_summary_counts_skipped_tests_by_reason(tmp_path: Path) -> None:
    assert stage(tmp_path, "--begin").returncode == 0
    outcomes = (
        "skipped\t0.1\ttests/a.py::one\tonly root can make namespaces\n"
        "skipped\t0.1\ttests/a.py::two\tonly root can make namespaces\n"
        "skipped\t0.0\ttests/b.py::one\tchromium is not installed: apt-get install chromium\n"
        "passed\t2.0\ttests/b.py::two\t\n"
    )
    (tmp_path / "build/stages/x.outcomes").write_text(outcomes)
    done = stage(tmp_path, "--summary")
    assert done.returncode == 0, done.stderr
    part = done.stdout.partition("tests that were skipped\n")[2].splitlines()
    assert [line.split(None, 1) for line in part] == [
        ["2", "only root can make namespaces"],
        ["1", "chromium is not installed: apt-get install chromium"],
    ]


def test_a_busy_machine_has_longer_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(time_limits.VARIABLE, raising=False)
    monkeypatch.setattr(time_limits, "_slowness", 1.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    for load, factor in ((0.0, 1.0), (2.0, 2.0), (20.0, 11.0), (1000.0, time_limits.LARGEST)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert time_limits.factor() == factor
    monkeypatch.setenv(time_limits.VARIABLE, "3")
    assert time_limits.patience(10) == 30


@pytest.mark.process
def test_only_deadlines_of_tests_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(time_limits.VARIABLE, "1000")
    call = "subprocess.run(('sleep', '0.3'), timeout=0.1, check=True)"
    exec(compile(call, __file__, "exec"))
    subprocess.run(("sleep", "0.3"), timeout=0.1, check=True)
    with subprocess.Popen(("sleep", "0.3")) as process:
        assert process.wait(0.1) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        exec(compile(call.replace("0.3", "60"), str(tmp_path / "code_under_test.py"), "exec"))


@pytest.mark.process
def test_a_program_for_path_runs_in_this_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "a program"
    write_program(path, "import sys\nprint(sys.executable, sys.argv, sys.flags.isolated)\n", "-I")
    done = subprocess.run((path, "a b"), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{sys.executable} {[str(path), 'a b']} 1\n"
