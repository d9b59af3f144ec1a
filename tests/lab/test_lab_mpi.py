"""Real MPI launchers start ranks on the lab's hosts over ssh."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.interpreter import skip_where_mpirun_splits

pytestmark = [pytest.mark.lab, pytest.mark.mpi]

SYSTEM = Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "")

PROGRAM = """
import json, socket
from mpi4py import MPI
import numpy
world = MPI.COMM_WORLD
total = numpy.empty(70_000)
world.Allreduce(numpy.full(70_000, world.rank + 1.0), total)
node = world.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate_shared(8, 8, comm=node)
words = world.gather([socket.gethostname(), total.min(), total.max(), node.size])
if world.rank == 0:
    print(json.dumps([MPI.Get_library_version(), words]), flush=True)
window.Free()
"""


def _start(argv, environ, program, *, patience=100.0, may_hang_at_the_end=False):
    words = [*argv, sys.executable, str(program)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
    process = subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        answer = process.stdout.readline()
        try:
            _, said = process.communicate(timeout=patience)
            assert process.returncode == 0, said
        except subprocess.TimeoutExpired:
            assert may_hang_at_the_end, "it did not end"
    finally:
        process.terminate()
        process.communicate(timeout=20)
    return json.loads(answer)


def _ways(lab, tool, folder):
    agent = f"ssh -F {lab.ssh_config}"
    root = ("--allow-run-as-root",)
    hostfile = folder / "hostfile"
    hostfile.write_text("".join(f"{host.name}:{host.slots}\n" for host in lab.hosts))
    embedded = str(Path(sys.executable).parent / "mpirun")
    return {
        "Open MPI v5": (
            (embedded, *root, "--hostfile", lab.hostfile, "--prtemca", "plm_ssh_agent", agent),
            {},
        ),
        "Open MPI v4": (
            (
                *(tool("mpirun.openmpi"), *root, "--hostfile", lab.hostfile, "--mca", "plm_rsh_agent", agent),
                *("-x", "MPI4PY_LIBMPI"),
            ),
            {"MPI4PY_LIBMPI": str(SYSTEM / "libmpi.so.40")},
        ),
        "MPICH": (
            (tool("mpiexec.mpich"), "-f", str(hostfile), "-n", str(sum(host.slots for host in lab.hosts))),
            {
                "HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {lab.ssh_config}",
                "MPI4PY_LIBMPI": str(SYSTEM / "libmpich.so.12"),
                "LD_LIBRARY_PATH": str(folder),
            },
        ),
    }


@pytest.mark.parametrize(
    "mpi",
    [
        pytest.param("Open MPI v5", marks=pytest.mark.smoke),
        pytest.param("Open MPI v4", marks=pytest.mark.long),
        pytest.param("MPICH", marks=pytest.mark.long),
    ],
)
def test_allreduce_of_four_hosts_with_two_ranks_each(mpi, lab, tool, tmp_path):
    if mpi == "Open MPI v5":
        skip_where_mpirun_splits(sys.prefix)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "libmpi.so.12").symlink_to(SYSTEM / "libmpich.so.12")
    argv, environ = _ways(lab, tool, tmp_path)[mpi]
    # MPICH 4.0 on UCX over TCP may hang in MPI_Finalize, with a lab or without one: that is not ours to test.
    ends = {"patience": 5.0, "may_hang_at_the_end": True} if mpi == "MPICH" else {}
    version, words = _start(argv, environ, tmp_path / "program.py", **ends)
    assert version.startswith(mpi)
    assert words == [[host.name, 36.0, 36.0, 2] for host in lab.hosts for _ in range(2)]
