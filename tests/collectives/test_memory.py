"""Where gradients lie, and what is left of shared memory after a violent end."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@programs(
    ("gradients_home.py shared", "2 3", "2x2"),
    ("gradients_home.py own", "2", "", {"RINGLEADER_TRANSPORT": "mpi"}),
    ("releasing.py", "3 2x2", ""),
    ("dropping.py", "", "2 3"),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.long
def test_killed_ranks_leave_no_window(jobs: Any) -> None:
    """All ranks and then their mpirun are killed; the window's files are gone all the same."""
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    command = [mpirun, "--oversubscribe", "-n", "2", sys.executable, str(jobs.programs / "killed.py")]
    job = subprocess.Popen(
        command, env=jobs.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    pids: list[int] = []
    try:
        for line in job.stdout:
            pids.append(int(line.split()[1]))
            if len(pids) == 2:
                break
        assert len(pids) == 2, "the ranks ended by themselves"
        windows = [name for pid in pids for name in _shared_files(pid) if "osc" in name]
        assert windows, "the ranks use no window"
    finally:
        for pid in [*pids, job.pid]:
            os.kill(pid, signal.SIGKILL)
        job.communicate()
    assert [name for name in windows if Path(name).exists()] == []


def _shared_files(pid: int) -> list[str]:
    """Files in /dev/shm that a process has mapped, by the names that they had."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return sorted(path.removesuffix(" (deleted)") for path in paths)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it likes")
def test_backward_takes_no_new_pages_in_each_step(jobs: Any) -> None:
    jobs("freed_memory.py", ranks=2).passed(2)
