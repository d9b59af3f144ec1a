"""What rests on torch.distributed: on the CPU with Gloo here, with NCCL where there are GPUs."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.collectives.layouts import CONTRACT, programs

from ringleader.torch.c10d.connect import addresses, chosen_interfaces
from ringleader.torch.cuda.gpu_transport import GpuFacts, obstacle_to_nccl

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

GLOO = {"RINGLEADER_TRANSPORT": "distributed"}
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cuda_step.py"


@programs(
    # Several hosts find the address on which they reach each other.
    (f"{CONTRACT} torch", "3", "2x2", GLOO),
    ("contract_operations.py {transport}", "", "2 3 2+1", GLOO),
    ("distributed.py operations", "2 3", "", GLOO),
    ("distributed.py ipv6", "3x1", "", GLOO),
    ("distributed.py host", "2 3", ""),
    ("sets.py", "", "3", GLOO | {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
    ("training.py", "", "2", GLOO),
    ("lives.py 12", "2", "", GLOO),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.long
def test_a_peer_dies(jobs: Any) -> None:
    # An mpirun that leaves the other rank alone: it might end it before that has noticed.
    alone = ("--runtime-options", "recoverable")
    job = jobs.fresh("distributed.py", "dies", ranks=2, options=alone, timeout=60)
    assert job.code != 0
    assert "rank 0 got: " in job.out, job.out + job.err


def test_obstacles_to_nccl() -> None:
    fine = [GpuFacts(gpu=f"GPU-{number}", obstacle="") for number in range(4)]
    assert obstacle_to_nccl(fine) == ""
    assert obstacle_to_nccl([*fine, GpuFacts(gpu="", obstacle="no NCCL")]) == "no NCCL (rank 4)"
    shared = obstacle_to_nccl([*fine, GpuFacts(gpu="GPU-1", obstacle="")])
    assert shared.startswith("ranks 1 and 4 use the same GPU") and "set_device" in shared


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("", []),
        ("eth", ["eth0", "eth01"]),
        ("=eth0", ["eth0"]),
        ("ib,lo", ["lo", "ib0"]),
        ("^lo,docker", ["eth0", "eth01", "ib0"]),
        ("^=eth0", ["lo", "eth01", "ib0", "docker0"]),
    ],
)
def test_interfaces_are_named_as_for_nccl(wanted: str, meant: list[str]) -> None:
    assert chosen_interfaces(wanted, ["lo", "eth0", "eth01", "ib0", "docker0"]) == meant


def test_addresses_that_other_hosts_reach_the_named_ones_first() -> None:
    there = {
        "lo": ["127.0.0.1", "::1"],
        "eth0": ["192.0.2.1", "fd00::1"],
        "ib0": ["192.0.2.2", "fd00::2"],
        "eth1": ["fe80::fc:ff:fe00:1"],
    }
    found = addresses({"NCCL_SOCKET_IFNAME": "ib"}, there)
    assert found[:2] == ["192.0.2.2", "fd00::2"]
    assert found.index("192.0.2.1") < found.index("fd00::1")
    assert not [one for one in found if one.startswith(("127.", "fe80:")) or one == "::1"]


@pytest.mark.long
def test_the_benchmark_itself(jobs: Any) -> None:
    """On the CPU, and on a GPU if there is one, the parameters are those of plain torch."""
    few = ["--device", "cpu", "--models", "mlp", "--rounds", "1", "--steps", "1"]
    result = jobs.run([sys.executable, str(BENCHMARK), *few])
    assert result.code == 0 and "a step over one of plain PyTorch" in result.out, result.err + result.out
    if torch.cuda.is_available():
        result = jobs.run([sys.executable, str(BENCHMARK), "--steps", "20"])
        assert result.code == 0, result.err + result.out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for PyTorch here")
def test_two_ranks_on_one_gpu(jobs: Any) -> None:
    """NCCL refuses that, so the tensors go through the host, and one line says so."""
    job = jobs("contract_cuda.py", ranks=2)
    assert job.code == 0 and job.out.count("rank done") == 2, job.out + job.err
    assert job.err.count("use the same GPU") == 1
