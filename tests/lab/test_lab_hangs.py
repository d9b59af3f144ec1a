"""Hangs of FSDP2 on two hosts, and a healthy job; the other kinds of hangs: tests/mpi/test_hangs.py."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import patience

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long]

FSDP2 = """\
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard

how = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def load():
    time.sleep(300)

def train():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

for step in range(6):
    if step == 4 and dist.get_rank() == 1:
        if how == "sleeps":
            load()
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leaves out":
            dist.barrier()
    train()
print("trained")
"""
FSDP2_LINE = {name: FSDP2.split("\n").index(f"def {name}():") + 2 for name in ("load", "train")}


@pytest.fixture
def hung(lab: Any, ringleader: Any, tmp_path: Path) -> Any:
    def run(script: str, *words: str) -> tuple[Any, dict[str, Any]]:
        (tmp_path / "train.py").write_text(script)
        hosts = ",".join(f"{host.name}:1" for host in lab.hosts[:2])
        options = ("--hang-seconds", "5", "--timeout", "90", "--grace", "2", "--workdir", str(tmp_path))
        options += ("-H", hosts, "--ssh-config", lab.ssh_config, "--json-file", str(tmp_path / "out"))
        command = ("-x", "OMP_NUM_THREADS=1", sys.executable, "train.py", *words)
        done = ringleader("run", *options, *command, timeout=patience(150))
        return done, json.loads((tmp_path / "out").read_text())

    return run


@pytest.mark.parametrize("how", ["sleeps", "dies", "leaves out"])
def test_fsdp2_names_the_rank_that_the_other_waits_for(hung: Any, lab: Any, how: str) -> None:
    done, document = hung(FSDP2, how)
    found = document["hang"]
    assert done.returncode != 0, done.stderr
    places = "\n".join(found["places"])
    assert "all_gather" in found["operation"], found
    assert f"train.py:{FSDP2_LINE['train']} in train" in places, places
    if how == "leaves out":
        assert found["kind"] in ("operation", "order", "shape") and found["ranks"] == [0, 1], found
    else:
        assert (found["kind"], found["ranks"]) == ("missing", [1]), found
    if how == "sleeps":
        assert f"train.py:{FSDP2_LINE['load']} in load" in places, places
    if how == "dies":
        assert document["first_failure"]["host"] == lab.hosts[1].name
        assert "rank 1 (ended by SIGKILL) is missing" in found["text"]


def test_a_healthy_job_is_not_accused(hung: Any) -> None:
    done, document = hung(FSDP2, "healthy")
    assert done.returncode == 0 and done.stdout.count("trained") == 2, done.stderr
    found = document["hang"]  # a start that takes longer than --hang-seconds is no accusation
    assert found is None or (found["kind"], found["ranks"]) == ("none", []), found
    assert "is missing" not in done.stderr
