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
LOG = """
import os, socket
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
with open(name, "w") as log:
    log.write("h:1:2 [0] NCCL INFO Using network Socket\\n")
print(os.environ["NCCL_DEBUG"], name, flush=True)
"""


def run(*words: str, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "ringleader", "run", "--oversubscribe", *words]
    return finished(
        [*argv, "--", sys.executable, "-c", script],
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
    )


def test_one_host_shares_memory(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run("-n", "2", "--require", "shm", "--json-file", str(out), script=EXCHANGE)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "shared memory" not in done.stderr and "other hosts" not in done.stderr, "a good end is silent"
    document: Any = json.loads(out.read_text())
    (host,) = document["proof"]["hosts"]
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
    document: Any = json.loads(out.read_text())
    (host,) = document["proof"]["hosts"]
    assert host["within"]["by_connections"] and host["within"]["shares"] == {"tcp": 1.0}
    assert 2 * GRADIENTS <= host["within"]["exchanged"] < 3 * GRADIENTS


SOCKETS = """
import os, socket, time
where = "127.0.0.1", int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(where) as server:
        near, _ = server.accept()
        near.sendall(bytes(int(os.environ["NBYTES"])))
        near.recv(1)
else:
    for _ in range(600):
        try:
            near = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
    left = int(os.environ["NBYTES"])
    while left:
        left -= len(near.recv(min(left, 1 << 20)))
    time.sleep(1.5)
    near.sendall(b"1")
"""


def test_two_jobs_of_one_user_do_not_count_each_others_bytes(tmp_path: Path) -> None:
    jobs = []
    for mib in (8, 40):
        words = ("-n", "2", "-x", f"NBYTES={mib << 20}", "--json-file", str(tmp_path / f"{mib}.json"))
        argv = [sys.executable, "-m", "ringleader", "run", "--oversubscribe", *words]
        jobs.append(subprocess.Popen([*argv, "--", sys.executable, "-c", SOCKETS], stderr=subprocess.PIPE))
    for job in jobs:
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
    for mib in (8, 40):
        document: Any = json.loads((tmp_path / f"{mib}.json").read_text())
        (host,) = document["proof"]["hosts"]
        assert host["within"]["shares"] == {"tcp": 1.0}, host
        assert mib << 20 <= host["within"]["exchanged"] < (mib + 1) << 20


def test_a_job_that_tells_nothing_shows_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run("-n", "2", "--require", "shm", "--json-file", str(out), script="pass")
    assert done.returncode == 3
    assert "--require shm: localhost: " in done.stderr and "TCP connections" in done.stderr
    document: Any = json.loads(out.read_text())
    assert document["proof"]["hosts"][0]["carried"], "counters were read"
    assert run("-n", "1", "--json-file", str(out), script="pass").returncode == 0
    assert json.loads(out.read_text())["proof"] is None, "one rank exchanges nothing"


def test_nccls_log_goes_with_the_jobs_directory() -> None:
    done = run("-n", "1", "--no-prefix", script=LOG, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 0, done.stderr
    level, name = done.stdout.split()
    assert level == "INFO" and "/ringleader-" in name and not Path(name).exists()


def test_nccls_log_of_the_user_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.log"
    done = run("-n", "1", script=LOG, CUDA_VISIBLE_DEVICES="0", NCCL_DEBUG="WARN", NCCL_DEBUG_FILE=str(mine))
    assert (done.returncode, done.stdout) == (0, f"[0] WARN {mine}\n"), done.stderr
    assert mine.read_text().endswith("Using network Socket\n")


def test_samples_of_a_host_while_its_ranks_run(workplace: Any, python: str) -> None:
    script = "import time; time.sleep(0.4)"
    outcome, heard = workplace.launch(python, "-c", script, sample_seconds=0.1)
    assert outcome.exit_code == 0
    samples = [report for _rank, report in heard.reports if report["kind"] == "host_sample"]
    assert len(samples) >= 2 and {one["host"] for one in samples} == {"localhost"}
    assert [one["at"] for one in samples] == sorted(one["at"] for one in samples)
    assert all("lo" in one["interfaces"] and "ports" in one for one in samples)
