"""`make gpu` as a command: without a GPU it runs nothing, and its rehearsal runs parts on real ranks."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import finished
from tests.fork_server import clean_environment
from tests.time_limits import until

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
COMMAND = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "gpu.py")]


def run(*words: str, **more: str) -> Any:
    environ = clean_environment() | more
    return finished([*COMMAND, *words], env=environ, timeout=300)


def test_without_a_gpu_nothing_runs(tmp_path: Path) -> None:
    done = run("--output", str(tmp_path), "--only", "first,elastic", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing ran: there is no GPU here (PyTorch ")
    assert "first                  60 s  " in done.stdout and "elastic " in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_rehearsal_is_marked(tmp_path: Path) -> None:
    done = run("--device", "cpu", "--output", str(tmp_path), "--deadline", "280")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("REHEARSAL on the CPU") and "REHEARSAL, not a GPU: " in done.stdout
    (path,) = tmp_path.iterdir()
    stored = json.loads(path.read_text())
    assert (path.name, stored["kind"]) == ("rehearsal.json", "rehearsal")
    assert stored["parts"]["first"]["result"] == stored["parts"]["nccl-2"]["result"] == "passed"


def test_a_part_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    """One of its processes is in another process group, as mpirun's ranks are, and ignores SIGTERM."""
    script = (
        "import sys, signal; sys.path.insert(0, sys.argv[1]); import gpu, pathlib, os, subprocess\n"
        "away = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)'\n"
        'inner = f\'import subprocess, sys; print(subprocess.Popen([sys.executable, "-c", {away!r}], '
        "start_new_session=True).pid, flush=True); sys.stdin.read(); import time; time.sleep(300)'\n"
        "place = pathlib.Path(sys.argv[2])\n"
        "code = gpu._run([sys.executable, '-c', inner], {gpu.TOKEN: 'a-token'}, place, 1.5)\n"
        "print(code)\n"
    )
    done = finished([sys.executable, "-c", script, str(Path(COMMAND[1]).parent), str(tmp_path)], timeout=60)
    assert done.stdout == "None\n", done.stdout + done.stderr
    pid = int((tmp_path / "output").read_text())
    try:
        until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text(), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
