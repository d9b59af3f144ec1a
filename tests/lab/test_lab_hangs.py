"""Hangs of plain `torch.distributed` jobs on two hosts: five ways, FSDP2, and healthy jobs."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mpi.test_hangs import HANGS, LINE
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
        done = ringleader(
            "run",
            *options,
            "-x",
            "OMP_NUM_THREADS=1",
            sys.executable,
            "train.py",
            *words,
            timeout=patience(150),
        )
        return done, json.loads((tmp_path / "out").read_text())

    return run


@pytest.mark.parametrize(
    ("how", "kinds", "ranks", "line"),
    [
        ("sleeps", {"missing"}, [1], "load"),
        ("dies", {"missing"}, [1], ""),
        ("another shape", {"shape", "missing"}, [0, 1], "reduce"),
        ("another order", {"operation", "order"}, [0, 1], "spread"),
        ("leaves out", {"operation", "order"}, [0, 1], "spread"),
    ],
)
def test_the_rank_the_operation_and_the_lines_are_named(
    hung: Any, lab: Any, how: str, kinds: set[str], ranks: list[int], line: str
) -> None:
    done, document = hung(HANGS, how, "1", "12")
    found = document["hang"]
    assert done.returncode != 0 and found["kind"] in kinds, done.stderr
    assert (found["operation"], found["number"]) == ("all_reduce", 5)
    # Of two ranks that disagree nobody knows which one is wrong; the one that Gloo has aborted is missing.
    if how == "another shape" and found["kind"] == "missing":
        assert len(found["ranks"]) == 1 and "see whether the ranks' shapes differ" in found["text"], found
    else:
        assert found["ranks"] == ranks, found
    places = "\n".join(found["places"])
    if found["kind"] != "missing" or how == "sleeps":
        assert f"train.py:{LINE[line]} in {line}" in places, places
    assert f"train.py:{LINE['reduce']} in reduce" in places, places
    if how == "dies":
        assert document["first_failure"]["host"] == lab.hosts[1].name
        assert "rank 1 (ended by SIGKILL) is missing" in found["text"]


@pytest.mark.parametrize("how", ["sleeps", "dies", "leaves out"])
def test_fsdp2_names_the_rank_that_the_other_waits_for(hung: Any, how: str) -> None:
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


def test_a_healthy_job_is_not_accused(hung: Any) -> None:
    done, document = hung(FSDP2, "healthy")
    assert done.returncode == 0 and done.stdout.count("trained") == 2, done.stderr
    found = document["hang"]  # a start that takes longer than --hang-seconds is no accusation
    assert found is None or (found["kind"], found["ranks"]) == ("none", []), found
    assert "is missing" not in done.stderr
