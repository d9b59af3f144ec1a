"""The engine between hosts: the same contract and the same training over a lab's links."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import CONTRACT
from tests.fork_server import clean_environment
from tests.interpreter import skip_where_mpirun_splits
from tests.labs import a_lab

from ringleader.lab.saved_state import Lab

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(400)]

PROGRAMS = Path(__file__).parent / "programs"
RINGLEADER = [sys.executable, "-m", "ringleader"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab("e", hosts=4, port=35) as made:
        yield made


def _run(jobs: Any, lab: Lab, slots: tuple[int, ...], *words: str, **environ: str) -> Any:
    hosts = ",".join(f"{host.name}:{count}" for host, count in zip(lab.hosts, slots, strict=False))
    command = [*RINGLEADER, "run", "--ssh-config", lab.ssh_config, "-H", hosts, sys.executable, *words]
    # Each host has a /dev/shm of its own, without the pools' directory.
    return jobs.run(command, timeout=300, environ=clean_environment() | environ)


PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "0.2"}
SLOTS = {"2x1": (1, 1), "2x2": (2, 2), "4x2": (2, 2, 2, 2), "2+1": (2, 1)}
PROGRAMS_OF = {
    f"{CONTRACT} torch": "2x1 2x2 4x2 2+1",
    # Eight ranks on a few cores wait for each other longer than all other shapes together.
    "contract_operations.py {transport}": "2x1 2x2 2+1",
    "training.py": "2x1 2x2 4x2 2+1",
    "converted.py": "2x1 2x2 2+1",
    # Memory that the ranks of a host share, reductions that come again, and the sharded optimizer.
    **dict.fromkeys(("registered.py", "registering.py", "kept_reductions.py"), "2x2"),
    "sharding.py": "2x2 2+1",
    "sharding_state.py": "2+1",
    "sharding_scripts.py": "2x2",
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "shape"), [(words, shape) for words, shapes in PROGRAMS_OF.items() for shape in shapes.split()]
)
def test_programs(jobs: Any, lab: Lab, words: str, shape: str) -> None:
    program, *arguments = words.format(transport="mpi" if shape == "2x1" else "hosts").split()
    job = _run(jobs, lab, SLOTS[shape], str(PROGRAMS / program), *arguments, **PATIENCE)
    job.passed(sum(SLOTS[shape]))


@pytest.mark.long
def test_torch_distributed_meets_without_shared_files_or_settings(jobs: Any, lab: Lab) -> None:
    """Hosts of a lab reach each other on its network alone. torch may warn of names it cannot look up."""
    job = _run(jobs, lab, (2, 1), str(PROGRAMS / CONTRACT), "torch", RINGLEADER_TRANSPORT="distributed")
    assert job.code == 0 and job.out.count("rank done") == 3, job.out + job.err


@pytest.mark.long
@pytest.mark.parametrize("hosts", [2, 4])
def test_bytes_on_the_wire(jobs: Any, lab: Lab, hosts: int) -> None:
    """A host sends 2(H-1)/H of an array, and not more than the headers of its packets on top."""
    job = _run(jobs, lab, (2,) * hosts, str(PROGRAMS / "wire_bytes.py"))
    job.passed(2 * hosts)
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
        [*command, str(PROGRAMS / "contract_operations.py"), "hosts"],
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
