"""Limits of the machine: open files, processes, a full or missing TMPDIR, a directory that is gone."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.errors import RefusedError
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.launch.mpirun.mpirun_process import open_files, open_files_needed
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, place

pytestmark = pytest.mark.mpi
root_only = pytest.mark.root("mount a small file system")
RUN = (sys.executable, "-m", "ringleader", "run")
SAY_LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


def plan(ranks: int):
    facts = HostFacts(
        host=Host(name="localhost"), hostname="localhost", identity="i", is_local=True, cpus=(0,)
    )
    return place(Job(command=("x",), np=ranks, oversubscribe=True), (facts,))


def test_open_files_are_counted_raised_and_refused():
    needed = open_files_needed(plan(300), files=True)
    assert 1024 < needed < 2000
    assert open_files_needed(plan(2), files=False) < 100
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    sleeper = subprocess.Popen(("sleep", "60"), preexec_fn=None)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE, (256, before[1]))
        with open_files(needed, sleeper.pid) as soft:
            assert soft == 256
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= needed
            assert resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE)[0] >= needed
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
        with pytest.raises(RefusedError, match="open files on this machine"), open_files(10**9, sleeper.pid):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        sleeper.kill()
        sleeper.wait()


def test_a_low_limit_on_open_files(workplace, python):
    """Twelve ranks of whom mpirun and launcher need more than is allowed at first; ranks get theirs back."""
    script = 'ulimit -S -n "$1"; test -z "$2" || ulimit -H -n "$2"; shift 2; exec "$@"'
    words = (*RUN, "-n", "12", "--oversubscribe", python, "-c", SAY_LIMIT)
    for soft, hard, code in (("60", "", 0), ("60", "70", 3)):
        done = subprocess.run(
            ("sh", "-c", script, "sh", soft, hard, *words),
            capture_output=True, text=True, timeout=90, env=workplace.environ, check=False,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        if code == 0:
            assert sorted(line.split()[-1] for line in done.stdout.splitlines()) == ["60"] * 12
        else:
            assert "open files: the job needs 116 open files on this machine, 70 are allowed" in done.stderr


@root_only
def test_directories_that_cannot_be_used(workplace, python):
    small = workplace.tmp / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o {options} small {place} && {then}; shift; {env} exec "$@"'
    full = mount.format(
        options="size=64k", place=small, env=f"TMPDIR={small}",
        then=f"dd if=/dev/zero of={small}/fill bs=1k 2>/dev/null; true",
    )  # fmt: skip
    read_only = mount.format(options="ro", place=small, env=f"TMPDIR={small}", then="true")
    missing = f'shift; TMPDIR={small}/none exec "$@"'
    # What lies below /tmp stays there: this checkout may.
    everywhere = "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp"
    everywhere += ' && shift; TMPDIR=/tmp exec "$@"'
    for script, code, said in (
        (full, 0, f"TMPDIR: {small} is full; the job's own files go to /tmp"),
        (read_only, 0, f"TMPDIR: {small} cannot be written; the job's own files go to /tmp"),
        (missing, 0, ""),
        (everywhere, 3, "cannot be written: Read-only file system"),
    ):
        words = (*RUN, "-n", "1", "echo", "ran")
        done = subprocess.run(
            ("unshare", "-m", "sh", "-c", script, "sh", "", *words),
            capture_output=True, text=True, timeout=90, env=workplace.environ, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        assert said in done.stderr and ("ran" in done.stdout) == (code == 0), done.stderr


@pytest.mark.long
@root_only
def test_shared_memory_that_cannot_be_written_is_named(workplace, python):
    pytest.importorskip("torch")
    script = "import ringleader.torch as hvd; hvd.init()"
    # Without shared memory Open MPI uses TCP; other interfaces of this machine may be those of labs that end.
    words = (*RUN, "-n", "2", "--oversubscribe", "--grace", "1", "-x", "OMPI_MCA_btl_tcp_if_include=lo")
    words += (python, "-c", script)
    mount = 'mount -t tmpfs -o ro small /dev/shm && exec "$@"'
    done = subprocess.run(
        ("unshare", "-m", "sh", "-c", mount, "sh", *words),
        capture_output=True, text=True, timeout=90, env=workplace.environ, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "ringleader: /dev/shm cannot be written: ranks that share memory" in done.stderr
    assert "RuntimeError: the ranks of this host get no shared memory of" in done.stderr


@pytest.mark.root("become a user whose processes are counted")
@pytest.mark.parametrize(("most", "code"), [(1, 3), (3, 2), (6, 3)])
def test_a_limit_on_processes_ends_in_words(workplace, most, code):
    """Where launcher, supervisor, mpirun or agents get no process, somebody says so and all of it ends.

    Three are enough to look and too few for two ranks, which is known before anything starts.
    """
    user = 64123
    python, path = programs.interpreter_for(user)
    home = workplace.tmp / "h"
    home.mkdir()
    for directory in (workplace.tmp, home):
        os.chown(directory, user, user)
    environ = workplace.environ | {"TMPDIR": str(home), "HOME": str(home), "PYTHONPATH": path}
    mpirun = find_mpi("embedded", environ=os.environ).mpirun
    words = ("run", "-n", "2", "--oversubscribe", "--mpi", mpirun, "true")
    done = subprocess.run(
        ("bash", "-c", f'ulimit -u {most}; exec "$@"', "sh", python, "-m", "ringleader", *words),
        user=user, group=user, extra_groups=[], env=environ, cwd=home, capture_output=True, timeout=90,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr and b"ringleader: " in done.stderr, done.stderr
