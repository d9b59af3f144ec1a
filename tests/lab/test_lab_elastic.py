"""Elastic jobs in the lab: hosts that are added and removed cost no rank, nor does a daemon that is lost."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringleader.lab import saved_state

pytestmark = pytest.mark.lab

SCRIPT = """
import os, time
import torch
import ringleader.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    if hvd.rank() == 0:
        print("size", hvd.size(), "from", state.step, flush=True)
    while True:
        total = hvd.allreduce(torch.ones(4), op=hvd.Sum, name="sum")
        assert int(total[0]) == hvd.size(), total
        state.step += 1
        state.commit()
        if hvd.rank() == 0 and state.step % 50 == 0:
            print("step", state.step, flush=True)
        time.sleep(0.02)

train(hvd.elastic.TorchState(model=torch.nn.Linear(2, 2), step=0))
"""


@contextlib.contextmanager
def launched(lab, place: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run SCRIPT in ``place`` on hosts of the lab in an elastic job; its outcome is in ``out.json`` there."""
    (place / "train.py").write_text(SCRIPT)
    words += ("--ssh-config", str(lab.ssh_config), "--json-file", str(place / "out.json"))
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "ringleader", "run"),
            *words,
            "--workdir",
            str(place),
            sys.executable,
            "train.py",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield launcher
        launcher.send_signal(signal.SIGTERM)
        launcher.communicate(timeout=60)
    finally:
        launcher.kill()


def until(launcher: subprocess.Popen[str], size: int) -> int:
    """Read until this many ranks train; return the step that they begin with."""
    seen = []
    for line in launcher.stdout:
        seen.append(line)
        if found := re.search(rf"size {size} from (\d+)", line):
            return int(found[1])
    raise AssertionError("".join(seen))


@pytest.mark.long
def test_hosts_come_and_go_and_ranks_stay(lab, tmp_path: Path):
    hosts = [line.split()[0] for line in Path(lab.hostfile).read_text().splitlines()][:3]
    offer, script = tmp_path / "hosts", tmp_path / "discover"
    script.write_text(f"#!/bin/sh\ncat {offer}\n")
    script.chmod(0o755)
    offer.write_text(f"{hosts[0]}:2\n")
    with launched(
        lab, tmp_path, "--min-np", "1", "--max-hosts", "2", "--host-discovery-script", str(script)
    ) as launcher:
        assert until(launcher, 2) == 0
        offer.write_text("".join(f"{host}:2\n" for host in hosts))  # one more than it may have
        grown = until(launcher, 4)
        offer.write_text(f"{hosts[1]}:2\n")
        shrunk = until(launcher, 2)
        assert 0 < grown < shrunk
        time.sleep(0.5)
    assert launcher.returncode == 143
    elastic = json.loads((tmp_path / "out.json").read_text())["elastic"]
    assert elastic["generations"] == 3 and elastic["worlds"] == 3
    assert elastic["ranks_started"] == 4, "no rank that trained was started anew"


OTHER_TORCH = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("no torch on this host", name="torch")
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.long
def test_new_hosts_with_other_code_are_named_and_the_job_goes_on(
    ringleader, scratch_name: str, tmp_path: Path
) -> None:
    hosts = [f"{scratch_name}-h{number}" for number in (1, 2, 3, 4)]
    words = ("--name", scratch_name, "--hosts", "4", "--slots", "1", "--ssh-port", "39", "--private-tmp")
    assert ringleader("lab", "up", *words).returncode == 0
    state = saved_state.load(scratch_name)
    place = Path(tempfile.mkdtemp(prefix="ringleader-elastic-", dir="/tmp"))
    for host, files in zip(
        hosts, ({}, {"train.py": None}, {"train.py": "pass"}, {"sitecustomize.py": OTHER_TORCH}), strict=True
    ):
        for name, text in ({"train.py": SCRIPT} | files).items():
            if text is not None:
                put = f"mkdir -p {place}; cat > {place}/{name}"
                argv = ["ssh", "-F", state.ssh_config, host, put]
                subprocess.run(argv, input=text, text=True, check=True, timeout=30)
    offer = tmp_path / "hosts"
    offer.write_text(f"{hosts[0]} slots=1\n")
    words = ("--min-np", "1", "--hostfile", str(offer), "-x", f"PYTHONPATH={place}")
    try:
        with launched(state, place, *words) as launcher:
            assert until(launcher, 1) == 0
            offer.write_text("".join(f"{host} slots=1\n" for host in hosts))
            said = lines_with(launcher, *(f"{host} cannot take part" for host in hosts[1:]))
            assert "does not exist" in said[0] and "differs from ours" in said[1]
            assert "import torch: ModuleNotFoundError" in said[2] and f"it is there on {hosts[0]}" in said[2]
            offer.rename(tmp_path / "away")
            assert "No such file" in lines_with(launcher, "cannot be read")[0]
            (tmp_path / "away").rename(offer)
            lines_with(launcher, "names hosts again", "step")
        outcome = json.loads((place / "out.json").read_text())
    finally:
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
