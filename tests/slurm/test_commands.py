"""``ringleader run --on slurm`` and ``ringleader slurm``, in a real Slurm: what a user sees of a job."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest
from tests.conftest import Workplace
from tests.slurm.conftest import Place
from tests.slurm.test_real_training import wait_for_log
from tests.time_limits import patience

pytestmark = [pytest.mark.process, pytest.mark.mpi, pytest.mark.long]


@pytest.fixture
def user(workplace: Workplace, place: Place) -> Workplace:
    """Somebody on this machine, on which are both nodes of the cluster."""
    for name in [name for name in workplace.environ if name.startswith("SLURM_")]:
        del workplace.environ[name]
    workplace.environ |= place.environ | {"PATH": workplace.environ["PATH"]}
    return workplace


def log_with(path: Path, text: str) -> None:
    end = time.monotonic() + patience(30.0)
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end, path.read_text() if path.exists() else "no output"
        time.sleep(0.05)


def test_a_job_is_followed_to_its_end(user: Workplace, tmp_path: Path) -> None:
    # It lasts longer than the time between two looks at its state.
    program = 'echo "rank $RANK of $WORLD_SIZE: $1"; sleep 4; exit $((RANK * 3))'
    words = ["run", "--on", "slurm", "--time", "5", "--job-name", "try", "--json-file", "end.json", "-n", "1"]
    done = user.run(*words, "--", "sh", "-c", program, "x", "a 'b' $(c)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert "[0] rank 0 of 1: a 'b' $(c)\n" in done.stdout.decode()
    told = done.stderr.decode()
    end = json.loads((tmp_path / "end.json").read_text())
    assert (end["exit_code"], end["whose"], end["state"]) == (0, "", "COMPLETED")
    assert re.search(rf"^ringleader: {end['job']}: running on n[12]$", told, re.MULTILINE), told
    done = user.run(*words, "--oversubscribe", "--", "sh", "-c", "exit 5", cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr.decode().endswith("ringleader: exit code 5 (launcher)\n")
    assert json.loads((tmp_path / "end.json").read_text())["exit_code"] == 5


def test_a_job_is_left_found_and_cancelled(user: Workplace, tmp_path: Path) -> None:
    words = ["run", "--on", "slurm", "--time", "5", "-n", "1", "--", "sh", "-c", "echo begun; sleep 60"]
    following = user.ringleader(*words, cwd=tmp_path)
    log = wait_for_log(tmp_path)
    one = log.stem.removeprefix("slurm-")
    log_with(log, "begun")
    following.send_signal(signal.SIGINT)  # nobody can be asked: the job continues
    out, err = following.communicate(timeout=patience(20.0))
    assert following.returncode == 130
    assert err.decode().endswith(
        f"the job {one} continues in Slurm\n"
        f"    → follow it: ringleader slurm logs -f {one}\n"
        f"    → cancel it: ringleader slurm cancel {one}\n"
        "ringleader: stopped by SIGINT\nringleader: exit code 130 (ringleader)\n"
    )
    shown = user.run("slurm", "status", "--json")
    found = [(job["id"], job["state"], job["title"]) for job in json.loads(shown.stdout)]
    assert (one, "RUNNING", "sh") in found
    detached = user.run("run", "--on", "slurm", "--nodes", "9", "--detach", "--", "true", cwd=tmp_path)
    two = detached.stdout.decode().strip()
    assert detached.returncode == 0 and two.isdigit(), detached
    text = user.run("slurm", "status").stdout.decode()
    assert text.splitlines()[0].split() == ["JOB", "NAME", "STATE", "NODES", "ELAPSED", "LIMIT", "WHY"]
    assert "the partition main never has the nodes that it asks for" in text
    assert user.run("slurm", "logs", "--tail", "1", one).stdout == b"[0] begun\n"
    waiting = user.ringleader("slurm", "logs", "-f", one)
    done = user.run("slurm", "cancel", one, two, "99999")
    assert (done.returncode, done.stdout.decode()) == (3, f"{one} cancelled\n{two} cancelled\n")
    assert done.stderr.startswith(b"ringleader: job 99999: Slurm does not know it\n")
    out, err = waiting.communicate(timeout=patience(30.0))
    assert waiting.returncode == 143
    assert b"[0] begun\n" in out
    last = f"ringleader: job {one}: it was cancelled\nringleader: exit code 143 (Slurm)\n"
    assert err.decode().endswith(last)
    ended = user.run("slurm", "status", one).stdout.decode()
    assert "cancelled" in ended and f"output: {log}\n" in ended


def test_what_slurm_refuses_is_said_and_nothing_is_left(user: Workplace, tmp_path: Path) -> None:
    words = ["run", "--on", "slurm", "--partition", "nowhere", "--json-file", "end.json", "--", "true"]
    done = user.run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        "ringleader: --partition: Slurm has no partition nowhere\n    → there are main, small\n"
    )
    assert json.loads((tmp_path / "end.json").read_text())["exit_code"] == 2
    assert not list(tmp_path.glob("slurm-*"))
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    (tmp_path / "squeue").chmod(0o755)
    user.environ["PATH"] = f"{tmp_path}:{user.environ['PATH']}"
    assert user.run("slurm", "status").stderr == b"ringleader: you have no jobs in Slurm\n"
