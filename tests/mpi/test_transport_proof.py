"""The proof of the transport on one host, and what agents read of NCCL's log."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import finished

pytestmark = pytest.mark.mpi

EXCHANGE = """
import numpy as np
from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.adapters.basics import begin_session
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import global_process_set
from ringleader.adapters.reductions import Sum

begin_session(NumpyAdapter, None, None)
for _ in range(4):
    ALLREDUCE.run(np.ones(1 << 20, "float32"), None, global_process_set, Sum)
"""


RUN = (sys.executable, "-m", "ringleader", "run", "--oversubscribe")


def host_of(file: Path) -> Any:
    """Return what is shown of the only host."""
    (host,) = json.loads(file.read_text())["proof"]["hosts"]
    return host


def run(*words: str, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return finished(
        [*RUN, *words, "--", sys.executable, "-c", script],
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
    )


def test_one_host_shares_memory(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run("-n", "2", "--require", "shm", "--json-file", str(out), script=EXCHANGE)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "shared memory" not in done.stderr and "other hosts" not in done.stderr, "a good end is silent"
    host = host_of(out)
    assert host["within"]["shares"] == {"shm": 1.0}
    assert host["within"]["exchanged"] == 2 * 4 * (4 << 20)
    assert host["carried"], "counters were read"


def test_messages_over_the_loopback_interface_are_told() -> None:
    words = ("--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo")
    over_tcp = [f"--mpirun-arg={word}" for word in words]
    done = run("-n", "2", "-x", "RINGLEADER_TRANSPORT=mpi", "--require", "shm", *over_tcp, script=EXCHANGE)
    assert done.returncode == 3, done.stderr
    assert "--require shm: " in done.stderr and "lo carried" in done.stderr  # others may use lo too


DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(1024, 1024, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
GRADIENTS = 8 * (4 << 20)
"""Bytes of all steps: between two ranks an allreduce of S bytes sends S each way."""


def test_plain_ddp_on_one_host_is_judged_by_its_connections(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out.json"
    done = run("-n", "2", "--json-file", str(out), script=DDP)
    assert done.returncode == 0, done.stderr
    assert "ringleader: localhost, between its ranks: TCP on lo carried 100% of " in done.stderr
    host = host_of(out)
    assert host["within"]["by_connections"] and host["within"]["shares"] == {"tcp": 1.0}
    assert 2 * GRADIENTS <= host["within"]["exchanged"] < 3 * GRADIENTS


def test_a_job_that_tells_nothing_shows_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run("-n", "2", "--require", "shm", "--json-file", str(out), script="pass")
    assert done.returncode == 3
    assert "--require shm: localhost: " in done.stderr and "TCP connections" in done.stderr
    assert host_of(out)["carried"], "counters were read"
    assert run("-n", "1", "--json-file", str(out), script="pass").returncode == 0
    assert json.loads(out.read_text())["proof"] is None, "one rank exchanges nothing"
