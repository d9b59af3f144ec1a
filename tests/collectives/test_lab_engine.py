"""The engine between hosts: the same contract and the same training over a lab's links."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import clean_environment
from tests.interpreter import skip_where_mpirun_splits
from tests.labs import a_lab

from ringleader.lab.saved_state import Lab

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(400)]

PROGRAMS = Path(__file__).parent / "programs"
RINGLEADER = [sys.executable, "-m", "ringleader"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Four hosts with two slots each."""
    with a_lab("e", hosts=4, port=35) as made:
        yield made


def _run(jobs: Any, lab: Lab, slots: tuple[int, ...], *words: str, **environ: str) -> Any:
    hosts = ",".join(f"{host.name}:{count}" for host, count in zip(lab.hosts, slots, strict=False))
    command = [*RINGLEADER, "run", "--ssh-config", lab.ssh_config, "-H", hosts, sys.executable, *words]
    # Each host has a /dev/shm of its own, without the pools' directory.
    return jobs.run(command, timeout=300, environ=clean_environment() | environ)


SHAPES = [
    pytest.param((1, 1), "mpi", 2, id="2x1", marks=pytest.mark.long),
    pytest.param((2, 2), "hosts", 4, id="2x2"),
    pytest.param((2, 2, 2, 2), "hosts", 8, id="4x2", marks=pytest.mark.long),
    pytest.param((2, 1), "hosts", 3, id="unequal 2+1", marks=pytest.mark.long),
]
"""What differs from ranks that are only told to be on several hosts shows in one shape."""


@pytest.mark.long
@pytest.mark.parametrize(("slots", "transport", "size"), SHAPES)
def test_contract(jobs: Any, lab: Lab, slots: tuple[int, ...], transport: str, size: int) -> None:
    _run(jobs, lab, slots, str(PROGRAMS / "contract.py"), transport).passed(size)


FEWER = [shape for shape in SHAPES if shape.id != "4x2"]
"""Eight ranks on a few cores wait for each other longer than all other shapes together."""


@pytest.mark.long
@pytest.mark.parametrize(("slots", "transport", "size"), FEWER)
def test_exchanges(jobs: Any, lab: Lab, slots: tuple[int, ...], transport: str, size: int) -> None:
    _run(jobs, lab, slots, str(PROGRAMS / "contract_operations.py"), transport, str(size)).passed(size)


@pytest.mark.long
@pytest.mark.parametrize(("slots", "transport", "size"), SHAPES)
def test_training(jobs: Any, lab: Lab, slots: tuple[int, ...], transport: str, size: int) -> None:
    _run(jobs, lab, slots, str(PROGRAMS / "training.py")).passed(size)


@pytest.mark.long
@pytest.mark.parametrize(("slots", "transport", "size"), FEWER)
def test_another_element_type_on_the_wire(
    jobs: Any, lab: Lab, slots: tuple[int, ...], transport: str, size: int
) -> None:
    _run(jobs, lab, slots, str(PROGRAMS / "converted.py")).passed(size)


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "slots"),
    [
        ("registered", (2, 2)),
        ("registering", (2, 2)),
        ("kept_reductions", (2, 2)),
        ("sharding", (2, 2)),
        ("sharding", (2, 1)),
        ("sharding_state", (2, 1)),
        ("sharding_scripts", (2, 2)),
    ],
)
def test_shared_memory_and_sharding(jobs: Any, lab: Lab, program: str, slots: tuple[int, ...]) -> None:
    """Memory that the ranks of a host share, reductions that come again, and the sharded optimizer."""
    job = _run(jobs, lab, slots, str(PROGRAMS / f"{program}.py"), RINGLEADER_MISMATCH_PATIENCE="0.2")
    job.passed(sum(slots))


@pytest.mark.long
def test_torch_distributed_meets_without_shared_files_or_settings(jobs: Any, lab: Lab) -> None:
    """Hosts of a lab reach each other on its network alone. torch may warn of names it cannot look up."""
    job = _run(
        jobs, lab, (2, 1), str(PROGRAMS / "contract.py"), "distributed", RINGLEADER_TRANSPORT="distributed"
    )
    assert job.code == 0 and job.out.count("rank done") == 3, job.out + job.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("slots", "hosts"),
    [((2, 2), 2), ((2, 2, 2, 2), 4)],
    ids=["2x2", "4x2"],
)
def test_bytes_on_the_wire(jobs: Any, lab: Lab, slots: tuple[int, ...], hosts: int) -> None:
    """A host sends 2(H-1)/H of an array, and not more than the headers of its packets on top."""
    job = _run(jobs, lab, slots, str(PROGRAMS / "wire_bytes.py"))
    job.passed(sum(slots))
    found = re.findall(r"(allreduce|step) on host (\d+): ([0-9.]+) times the least", job.out)
    assert sorted((what, int(host)) for what, host, _ in found) == [
        (what, host) for what in ("allreduce", "step") for host in range(hosts)
    ]
    assert all(1.0 <= float(ratio) <= 1.05 for _, _, ratio in found), job.out


@pytest.mark.long
def test_a_rank_that_returns_while_others_wait(jobs: Any, lab: Lab) -> None:
    """Each waiting rank says who has ended, also where that rank was on another host."""
    job = _run(jobs, lab, (2, 2), str(PROGRAMS / "ending.py"), "returns")
    for rank in range(3):
        assert f"[{rank}] rank {rank} got after " in job.out, job.err
    assert job.out.count("has ended") >= 3


@pytest.mark.long
def test_plain_mpirun_over_ssh(jobs: Any, lab: Lab) -> None:
    """Without Ringleader's launcher: a hostfile, ssh, and the same program."""
    skip_where_mpirun_splits(sys.prefix)
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    command = [mpirun, "--hostfile", lab.hostfile, "-n", "4", sys.executable]
    job = jobs.run(
        [*command, str(PROGRAMS / "contract.py"), "hosts"],
        timeout=300,
        environ=clean_environment()
        | {
            "PRTE_MCA_plm_ssh_agent": f"ssh -F {lab.ssh_config}",
            "PRTE_MCA_prte_if_include": lab.spec.subnet,
            "OMPI_MCA_btl_tcp_if_include": lab.spec.subnet,
            "OMPI_MCA_pml": "ob1",
        },
    )
    assert job.code == 0, job.err
    assert job.out.count("rank done") == 4
