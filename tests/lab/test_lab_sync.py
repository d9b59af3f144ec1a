"""Code on hosts with separate file systems: `--sync` brings it; without, what differs is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringleader.lab import saved_state

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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "my project"
    (made / "data").mkdir(parents=True)
    (made / "data/large").write_bytes(b"x" * 10000)
    (made / ".gitignore").write_text("data\n")
    (made / "numbers_of_mine.py").write_text("SECRET = 4711\n")
    (made / "train.py").write_text(SCRIPT)
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
    assert "\n# code that is sent\n3 files, " in planned.stdout
    assert re.search(rf"^{second}: {store}/\w{{16}}/tree by (rsync|tar)$", planned.stdout, re.MULTILINE)
    assert copies(on_host, first, store) == copies(on_host, second, store) == []
    done = ringleader(*words, sys.executable, "train.py", "fail")
    assert done.returncode == 0, done.stderr
    (copy,) = copies(on_host, first, store)
    assert copies(on_host, second, store) == [copy] == os.listdir(store)
    on = re.findall(r"^on (.*)$", done.stdout, re.MULTILINE)
    wanted = {f"{host} {store}/{copy}/tree 4711" for host in (first, second)}
    assert set(on) == wanted and on.count(f"{second} {store}/{copy}/tree 4711") == 2, "a restart"
    assert f"ranks run in a copy of {project} (3 files, " in done.stderr
    again = ringleader(*words, "--dry-run", sys.executable, "train.py")
    assert f"{second}: {store}/{copy}/tree is there already" in again.stdout


# --- hosts that join a job, with other code than it has ---------------------------------------------------

TRAIN = """
import time
import torch
import ringleader.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    while True:
        hvd.allreduce(torch.ones(4), op=hvd.Sum, name="sum")
        state.step += 1
        state.commit()
        if state.step % 50 == 0:
            print("step", state.step, flush=True)
        time.sleep(0.02)

train(hvd.elastic.TorchState(model=torch.nn.Linear(2, 2), step=0))
"""
OTHER_TORCH = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("no torch on this host", name="torch")
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.long
def test_new_hosts_with_other_code_are_named_and_the_job_goes_on(ringleader, scratch_name, tmp_path):
    hosts = [f"{scratch_name}-h{number}" for number in (1, 2, 3, 4)]
    words = ("--name", scratch_name, "--hosts", "4", "--slots", "1", "--ssh-port", "39", "--private-tmp")
    assert ringleader("lab", "up", *words).returncode == 0
    config, offer = saved_state.load(scratch_name).ssh_config, tmp_path / "hosts"
    place = Path(tempfile.mkdtemp(prefix="ringleader-elastic-", dir="/tmp"))
    (place / "train.py").write_text(TRAIN)
    other = ({}, {"train.py": ""}, {"train.py": "pass"}, {"sitecustomize.py": OTHER_TORCH})
    for host, files in zip(hosts, other, strict=True):
        for name, text in ({"train.py": TRAIN} | files).items():
            put = ["ssh", "-F", config, host, f"mkdir -p {place}; cat > {place}/{name}"]
            if text:
                subprocess.run(put, input=text, text=True, check=True, timeout=30)
    offer.write_text(f"{hosts[0]} slots=1\n")
    words = ("--min-np", "1", "--hostfile", str(offer), "-x", f"PYTHONPATH={place}", "--workdir", str(place))
    words += ("--ssh-config", config, "--json-file", str(place / "out.json"), sys.executable, "train.py")
    argv = (sys.executable, "-m", "ringleader", "run", *words)
    launcher = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines_with(launcher, "step")
        offer.write_text("".join(f"{host} slots=1\n" for host in hosts))
        said = lines_with(launcher, *(f"{host} cannot take part" for host in hosts[1:]))
        assert "does not exist" in said[0] and "differs from ours" in said[1]
        assert "import torch: ModuleNotFoundError" in said[2] and f"it is there on {hosts[0]}" in said[2]
        offer.rename(tmp_path / "away")
        assert "No such file" in lines_with(launcher, "cannot be read")[0]
        (tmp_path / "away").rename(offer)
        lines_with(launcher, "names hosts again", "step")
        launcher.terminate()
        launcher.communicate(timeout=60)
        outcome = json.loads((place / "out.json").read_text())
    finally:
        launcher.kill()
        shutil.rmtree(place)
    assert outcome["elastic"]["generations"] == 1


def lines_with(launcher: subprocess.Popen[str], *texts: str) -> list[str]:
    """Read until each text was in a line; return the lines."""
    found: dict[str, str] = {}
    for line in launcher.stdout:
        found |= {text: line for text in texts if text in line}
        if len(found) == len(texts):
            return [found[text] for text in texts]
    raise AssertionError(f"{set(texts) - set(found)}")
