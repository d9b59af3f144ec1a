"""``--sync`` on hosts with separate file systems: /var/tmp is each lab host's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.time_limits import patience

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.timeout(180)]

SCRIPT = """
import os, pathlib, socket, sys
import numbers_of_mine
where = pathlib.Path(__file__).resolve().parent
assert where == pathlib.Path.cwd() and not os.path.exists("data"), where
print("on", socket.gethostname(), where, numbers_of_mine.SECRET, flush=True)
if "fail" in sys.argv and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(7)
"""
ELASTIC = """
import pathlib, socket, time
import torch
import ringleader.torch as hvd
import numbers_of_mine
hvd.init()
print("on", socket.gethostname(), pathlib.Path.cwd(), numbers_of_mine.SECRET, flush=True)

@hvd.elastic.run
def train(state):
    if hvd.rank() == 0:
        print("size", hvd.size(), flush=True)
    while hvd.size() < 2:
        hvd.allreduce(torch.ones(4), name="sum")
        state.commit()
        time.sleep(0.02)

train(hvd.elastic.TorchState(model=torch.nn.Linear(2, 2), step=0))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "my project"
    (made / "data").mkdir(parents=True)
    (made / "data/large").write_bytes(b"x" * 10000)
    (made / ".gitignore").write_text("data\n")
    (made / "numbers_of_mine.py").write_text("SECRET = 4711\n")
    (made / "train.py").write_text(SCRIPT)
    (made / "elastic.py").write_text(ELASTIC)
    return made


@pytest.fixture
def store() -> Iterator[str]:
    """A directory that each host has for itself, as has this machine."""
    made = f"/var/tmp/rl-code-{os.getpid()}"
    yield made
    shutil.rmtree(made, ignore_errors=True)


def copies(on_host, host: str, store: str) -> list[str]:
    return on_host(host, "ls", store).stdout.split()


def test_ranks_run_in_the_copies_and_a_restart_has_the_same_code(lab, ringleader, on_host, project, store):
    first, second = (host.name for host in lab.hosts[:2])
    words = ("run", "-H", f"{first},{second}", "--ssh-config", str(lab.ssh_config), "--workdir", str(project))
    words += ("--sync", "--sync-to", store, "--max-restarts", "1", "--no-prefix")
    planned = ringleader(*words, "--dry-run", sys.executable, "train.py", "fail")
    assert planned.returncode == 0, planned.stderr
    assert "\n# code that is sent\n4 files, " in planned.stdout
    assert re.search(rf"^{second}: {store}/\w{{16}}/tree by (rsync|tar)$", planned.stdout, re.MULTILINE)
    assert copies(on_host, first, store) == copies(on_host, second, store) == []
    done = ringleader(*words, sys.executable, "train.py", "fail")
    assert done.returncode == 0, done.stderr
    (copy,) = copies(on_host, first, store)
    assert copies(on_host, second, store) == [copy] == os.listdir(store)
    on = re.findall(r"^on (.*)$", done.stdout, re.MULTILINE)
    wanted = {f"{host} {store}/{copy}/tree 4711" for host in (first, second)}
    assert set(on) == wanted and on.count(f"{second} {store}/{copy}/tree 4711") == 2, "a restart"
    assert f"ranks run in a copy of {project} (4 files, " in done.stderr
    again = ringleader(*words, "--dry-run", sys.executable, "train.py")
    assert f"{second}: {store}/{copy}/tree is there already" in again.stdout


@pytest.mark.long
def test_a_host_that_joins_an_elastic_job_gets_what_the_job_began_with(lab, on_host, project, store):
    first, second = (host.name for host in lab.hosts[:2])
    offer, script = project / "data/hosts", project / "data/discover"
    script.write_text(f"#!/bin/sh\ncat '{offer}'\n")
    script.chmod(0o755)
    offer.write_text(f"{first}:1\n")
    words = ("--ssh-config", str(lab.ssh_config), "--sync-from", str(project), "--sync-to", store)
    words += ("--min-np", "1", "--max-np", "2", "--host-discovery-script", str(script), "--no-prefix")
    argv = [sys.executable, "-m", "ringleader", "run", *words, sys.executable, "elastic.py"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project
    ) as job:
        try:
            seen = ""
            for line in job.stdout or ():
                seen += line
                if line == "size 1\n":
                    (project / "numbers_of_mine.py").write_text("SECRET = 'edited'\n")
                    offer.write_text(f"{first}:1\n{second}:1\n")
            assert job.wait(patience(60)) == 0, seen
        finally:
            job.kill()
    (copy,) = copies(on_host, second, store)
    wanted = {f"{host} {store}/{copy}/tree 4711" for host in (first, second)}
    assert set(re.findall(r"^on (.*)$", seen, re.MULTILINE)) == wanted, seen
