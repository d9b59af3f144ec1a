"""The reporter of a training script."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.commands import finished

from ringleader.agents import training_progress
from ringleader.agents.training_progress import INTERVAL, Reporter, cpu_model, report_fd


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def messages(fd: int) -> list[dict[str, object]]:
    os.set_blocking(fd, False)
    try:
        data = os.read(fd, 1 << 20)
    except BlockingIOError:
        return []
    return [json.loads(line) for line in data.splitlines()]


Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_lines_are_cumulative_and_not_too_many(pipe: Pipe) -> None:
    read, write = pipe
    clock = Clock()
    reporter = Reporter(write, clock)
    for _ in range(10):
        reporter.add(32, 1)
        clock.now += INTERVAL / 4
    found = messages(read)
    assert [(m["samples"], m["steps"]) for m in found] == [(32, 1), (160, 5), (288, 9)]
    assert [m["seconds"] for m in found] == pytest.approx([100, 100 + INTERVAL, 100 + 2 * INTERVAL])
    clock.now += 1000
    reporter.flush()
    # What is told at the end was trained at the last call, not when the process ended.
    (last,) = messages(read)
    assert (last["samples"], last["seconds"]) == (320, pytest.approx(100 + 9 * INTERVAL / 4))
    reporter.flush()
    assert messages(read) == []
    os.close(read)  # a pipe that nobody reads ends the reports only
    reporter.add(1, 1)
    clock.now += 1000
    reporter.add(1, 1)


def test_numbers_must_be_whole_and_positive() -> None:
    for samples, steps in ((0, 1), (-4, 1), (4, 0), (4, -1)):
        for fd in (None, 1):
            with pytest.raises(ValueError, match="tell how many"):
                Reporter(fd).add(samples, steps)
    for wrong in (1.5, "3", None):
        with pytest.raises(TypeError):
            Reporter(None).add(wrong, 1)  # type: ignore[arg-type]


def test_only_a_pipe_is_taken(tmp_path: Path, pipe: Pipe) -> None:
    assert report_fd({"RINGLEADER_REPORT_FD": str(pipe[1])}) == pipe[1]
    with (tmp_path / "file").open("w") as file:
        assert report_fd({"RINGLEADER_REPORT_FD": str(file.fileno())}) is None
    for text in ("", "-1", "x", "²", "99999", "9" * 40):
        assert report_fd({"RINGLEADER_REPORT_FD": text}) is None
    assert report_fd({}) is None


SCRIPT = """
import os, sys
import ringleader
ringleader.progress(8)
ringleader.progress(samples=8, steps=2)
if os.fork() == 0:
    ringleader.progress(1000)
    sys.exit(0)
os.wait()
"""


@pytest.mark.process
def test_a_script_reports_and_its_forked_children_do_not(pipe: Pipe) -> None:
    environ = os.environ | {"RINGLEADER_REPORT_FD": str(pipe[1])}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environ, pass_fds=[pipe[1]], timeout=60)
    assert done.returncode == 0
    context, *reports = messages(pipe[0])
    assert context["kind"] == "context" and context["python"] == ".".join(map(str, sys.version_info[:3]))
    assert [(m["samples"], m["steps"]) for m in reports] == [(8, 1), (16, 3)]
    del environ["RINGLEADER_REPORT_FD"]  # without a launcher nothing happens
    done = finished([sys.executable, "-c", SCRIPT], env=environ, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SPAWN = """
import multiprocessing, os, sys
from ringleader.agents import training_progress
from ringleader.agents.training_progress import report_fd

def tell():
    print(report_fd({"RINGLEADER_REPORT_FD": "1"}), flush=True)

if __name__ == "__main__":
    tell()
    child = multiprocessing.get_context("spawn").Process(target=tell)
    child.start()
    child.join()
"""


@pytest.mark.process
def test_spawned_helpers_do_not_take_a_number_for_the_pipe(tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["1", "None"], "")


def test_a_reporter_is_made_once(monkeypatch) -> None:
    monkeypatch.setattr(training_progress, "_reporter", None)
    monkeypatch.delenv("RINGLEADER_REPORT_FD", raising=False)
    monkeypatch.setattr(training_progress.atexit, "register", lambda *_: None)
    monkeypatch.setattr(training_progress.os, "register_at_fork", lambda **_: None)
    assert training_progress.start() is training_progress.start()


def test_context_is_known_to_older_pythons_that_load_the_file(monkeypatch, tmp_path) -> None:
    """In Python 3.9 ``zip`` takes no keyword, and the package of another Python may not even be parsed."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor: 0\nmodel name\t: Fast One\n\nprocessor : 1\n")
    monkeypatch.setattr(training_progress, "zip", lambda *sequences: zip(*sequences), raising=False)  # noqa: B905
    assert cpu_model(cpuinfo) == "Fast One" and cpu_model(tmp_path / "none")
    broken = type("Broken", (), {"__getattr__": lambda self, name: 1 // 0})()
    for module in (SimpleNamespace(), broken):
        monkeypatch.setitem(sys.modules, "ringleader.agents.usable_cores", module)
        assert training_progress.context_of()["cores"] == len(os.sched_getaffinity(0))
