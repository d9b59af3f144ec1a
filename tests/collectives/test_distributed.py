"""What rests on torch.distributed: on the CPU with Gloo here, with NCCL where there are GPUs."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ringleader.torch.c10d.connect import addresses, chosen_interfaces
from ringleader.torch.cuda.gpu_transport import GpuFacts, obstacle_to_nccl

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

GLOO = {"RINGLEADER_TRANSPORT": "distributed"}
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cuda_step.py"


@pytest.mark.parametrize(
    ("size", "per_host"),
    [
        pytest.param(2, 0, marks=pytest.mark.long),
        (3, 0),
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((4, 2), (3, 2))),
    ],
)
def test_contract(jobs: Any, size: int, per_host: int) -> None:
    """The contract of all transports; several hosts find the address on which they reach each other."""
    jobs("contract.py", "distributed", ranks=size, RINGLEADER_RANKS_PER_HOST=str(per_host), **GLOO).passed(
        size
    )


@pytest.mark.parametrize("size", [2, 3])
def test_exchanges_and_a_group_of_the_script(jobs: Any, size: int) -> None:
    jobs("distributed.py", "operations", ranks=size, **GLOO).passed(size)


def test_ranks_whose_hosts_have_no_address_of_ipv4(jobs: Any) -> None:
    jobs("distributed.py", "ipv6", ranks=3, RINGLEADER_RANKS_PER_HOST="1", **GLOO).passed(3)


@pytest.mark.long
def test_process_sets_have_groups_of_their_own(jobs: Any) -> None:
    jobs("contract_operations.py", "distributed", "3", ranks=3, **GLOO).passed(3)
    jobs("sets.py", ranks=3, HOROVOD_DYNAMIC_PROCESS_SETS="1", **GLOO).passed(3)


@pytest.mark.long
def test_training(jobs: Any) -> None:
    jobs("training.py", ranks=2, **GLOO).passed(2)


def test_again_and_again(jobs: Any) -> None:
    jobs("life.py", ranks=2, **GLOO).passed(2)


@pytest.mark.parametrize("size", [2, 3])
def test_tensors_of_a_device_through_the_host(jobs: Any, size: int) -> None:
    jobs("distributed.py", "host", ranks=size).passed(size)


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
    """On the CPU too it sees that the parameters are those of plain torch."""
    few = ["--device", "cpu", "--models", "mlp", "--rounds", "1", "--steps", "1"]
    result = jobs.run([sys.executable, str(BENCHMARK), *few])
    assert result.code == 0 and "a step over one of plain PyTorch" in result.out, result.err + result.out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for PyTorch here")
def test_one_gpu_against_plain_torch(jobs: Any) -> None:
    """The benchmark checks that the parameters are those of plain torch, and that nothing was copied."""
    result = jobs.run([sys.executable, str(BENCHMARK), "--steps", "20"])
    assert result.code == 0, result.err + result.out


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs for PyTorch here")
def test_two_gpus(jobs: Any) -> None:
    jobs("contract_cuda.py", ranks=2).passed(2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for PyTorch here")
def test_two_ranks_on_one_gpu(jobs: Any) -> None:
    """NCCL refuses that, so the tensors go through the host, and one line says so."""
    job = jobs("contract_cuda.py", "shared", ranks=2)
    assert job.code == 0 and job.out.count("rank done") == 2, job.out + job.err
    assert job.err.count("use the same GPU") == 1
