"""What carried the bytes of a job between hosts, and links whose slow direction is named."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ringleader.doctor.active_tests import measure_hosts
from ringleader.doctor.active_verdicts import judge
from ringleader.engine.transports.pipeline import FIRST_BYTES, LAST_BYTES, REPEATS
from ringleader.fabric.check_result import Verdict
from ringleader.lab import saved_state
from ringleader.plan.job import Host, Job, Ssh

pytestmark = [pytest.mark.lab, pytest.mark.mpi]

PROGRAM = """
import sys
import numpy as np
from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.adapters.basics import begin_session
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import global_process_set
from ringleader.adapters.reductions import Sum

begin_session(NumpyAdapter, None, None)
array = np.ones(2 << 20, "float32")
for _ in range(int(sys.argv[1])):
    ALLREDUCE.run(array, None, global_process_set, Sum)
"""
MIB = 1 << 20
DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(1024, 1024, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(16):
    optimizer.zero_grad()
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
GRADIENTS = 16 * 4 * MIB
"""Bytes of all steps: between two ranks an allreduce of S bytes sends S each way."""


def exchanged(ringleader: Any, lab: Any, folder: Path, times: int, *words: str) -> tuple[Any, Any]:
    """Run allreduces of 8 MiB on one rank of each of two hosts; return how it ended and its document."""
    script, written = folder / "exchange.py", folder / "out.json"
    script.write_text(PROGRAM)
    hosts = ",".join(f"{host.name}:1" for host in lab.hosts[:2])
    done = ringleader(
        *("run", "-H", hosts, "--ssh-config", lab.ssh_config, "--json-file", str(written), *words),
        *("--", sys.executable, str(script), str(times)),
        timeout=170,
    )
    return done, json.loads(written.read_text())


MEASUREMENT = 2 * REPEATS * (FIRST_BYTES + LAST_BYTES)
"""Bytes at most that the two ranks of a host send to see how fast the line is; no array's."""


@pytest.mark.long
def test_the_engines_bytes_are_those_of_the_link(lab: Any, ringleader: Any, tmp_path: Path) -> None:
    times = 128
    done, document = exchanged(ringleader, lab, tmp_path, times, "--require", "tcp")
    assert done.returncode == 0, done.stderr
    names = [host.name for host in lab.hosts[:2]]
    for name in names:
        assert f"ringleader: {name} to other hosts: TCP on eth0 carried 100%" in done.stderr
    bytes_each_way = times * 8 * MIB
    for host in document["proof"]["hosts"]:
        assert host["between"]["exchanged"] == 2 * bytes_each_way
        (link,) = [one for one in host["carried"] if one["name"] == "eth0"]
        for way in ("sent", "received"):
            assert bytes_each_way <= link["moved"][way] <= 1.05 * bytes_each_way + MEASUREMENT


@pytest.mark.long
def test_plain_ddp_is_judged_by_its_connections(lab: Any, ringleader: Any, tmp_path: Path) -> None:
    """Without Ringleader's engine: the interface, TCP, and the bytes of the gradients in both directions."""
    pytest.importorskip("torch")
    script, written = tmp_path / "ddp.py", tmp_path / "out.json"
    script.write_text(DDP)
    names = [host.name for host in lab.hosts[:2]]
    hosts = ",".join(f"{name}:1" for name in names)
    words = ("run", "-H", hosts, "--ssh-config", lab.ssh_config, "--threads=1", "--json-file", str(written))
    done = ringleader(*words, "--require", "tcp", "--", sys.executable, str(script), timeout=170)
    assert done.returncode == 0, done.stderr
    proof = json.loads(written.read_text())["proof"]
    for name, host in zip(names, proof["hosts"], strict=True):
        assert f"ringleader: {name} to other hosts: TCP on eth0 carried 100% of " in done.stderr
        assert "the job's TCP connections moved" in done.stderr
        between = host["between"]
        assert between["by_connections"] and between["shares"] == {"tcp": 1.0}
        assert between["devices"] == {"tcp": ["eth0"]}
        # Before the first step rank 0's parameters are sent once.
        assert 2 * GRADIENTS <= between["exchanged"] <= 2.1 * GRADIENTS + 8 * MIB
    assert {(pair["host"], pair["peer"]) for pair in proof["pairs"]} == {tuple(names), tuple(names[::-1])}


def test_hosts_without_rdma_are_named_before_anything_starts(
    lab: Any, ringleader: Any, tmp_path: Path
) -> None:
    done, document = exchanged(ringleader, lab, tmp_path, 1, "--require", "rdma")
    assert done.returncode == document["exit_code"] == 3
    for host in lab.hosts[:2]:
        assert f"ringleader: {host.name}: rdma is required, and it has no RDMA device" in done.stderr
    assert "plan" not in document


# --- active tests -----------------------------------------------------------------------------------------


@pytest.fixture
def slow_lab(scratch_name, ringleader):
    """Four hosts at 400 Mbit/s: far below what the machine itself can carry."""
    words = ("--hosts", "4", "--slots", "1", "--bandwidth", "400mbit", "--ssh-port", "42")
    done = ringleader("lab", "up", "--lab-name", scratch_name, *words)
    assert done.returncode == 0, done.stderr
    return saved_state.load(scratch_name)


def named(lab):
    """Measure, and return (id, subject) of what is not well."""
    job = Job(
        command=(), hosts=tuple(Host(name=host.name) for host in lab.hosts), ssh=Ssh(config=lab.ssh_config)
    )
    results = measure_hosts(
        job, facts={}, environ=os.environ, seconds=6.0, program_seconds=60.0, progress=lambda text: None
    )
    assert not results.failure and results.one_machine
    assert len(results.best_rates()) == 12
    bad = [one for one in judge(results) if one.verdict in (Verdict.FAIL, Verdict.WARN)]
    return {(one.id, one.subject) for one in bad}, [one.seen for one in bad]


@pytest.mark.long
def test_the_slow_host_and_its_direction_are_named_and_of_equal_links_nobody(slow_lab, ringleader):
    name, host = slow_lab.name, slow_lab.hosts[2].name
    found, seen = named(slow_lab)
    assert not found, seen
    for option, direction in (("--into", "into"), ("--out-of", "out of")):
        done = ringleader("lab", "slow", "h3", "--name", name, option, "100mbit")
        assert done.returncode == 0, done.stderr
        found, seen = named(slow_lab)
        assert found == {("active.host", f"{direction} {host}")}, seen
        assert ringleader("lab", "slow", "h3", "--name", name, "--off").returncode == 0
