"""The launcher's command of a job on Kubernetes, run by each real MPI: what its ranks see.

That it reaches the workers, and fails where it does not: tests/kube/test_training.py.
"""

import json
import os
import subprocess

import pytest

from ringleader.kubernetes.jobs.job_request import JobRequest
from ringleader.kubernetes.jobs.mpijob_builder import launcher_program
from ringleader.kubernetes.mpijob.model import MpiImplementation
from ringleader.launch.mpirun.mpi_discovery import find_mpi

pytestmark = pytest.mark.mpi

SCRIPT = """
import json, os, pathlib, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "A", "PATH")
names += ("JAX_COORDINATOR_ADDRESS", "OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
told = json.dumps([{name: os.environ.get(name) for name in names}, sys.argv[1:]])
pathlib.Path(os.environ["OUT"], os.environ["RANK"]).write_text(told)
"""
HARD = ("a b", "", "'", '"', ";", "$HOME", "`id`", "*", "line\nbreak", "é", "-x", "$(A)", "$$")
OF = {"embedded": "OpenMPI", "openmpi4": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}


def as_the_kubelet(text: str) -> str:
    """Undo the escapes, as the kubelet does; nothing that it would expand may be left."""
    out, rest = "", text
    while rest:
        if rest.startswith("$$"):
            out, rest = out + "$", rest[2:]
            continue
        assert not rest.startswith("$("), f"{text!r} would be expanded"
        out, rest = out + rest[0], rest[1:]
    return out


@pytest.mark.parametrize("further", [(), ("-n", ":", "-s", "200")], ids=["plain", "colon"])
def test_ranks_get_their_numbers_and_arguments_unharmed(mpi, python, request, tmp_path, further):
    found = find_mpi(mpi, environ=os.environ)
    implementation = MpiImplementation(OF[request.node.callspec.params["mpi"]])
    made = launcher_program(
        JobRequest(
            name="train",
            command=(python, "-c", SCRIPT, *HARD, *further),
            image="none",
            np=2,
            slots=2,
            mpi_implementation=implementation,
            mpirun=found.mpirun,
            mpirun_args=("--oversubscribe",) if implementation is MpiImplementation.OPENMPI else (),
            env=(("A", "b $(c) $$ d"), ("OUT", str(tmp_path))),
        )
    )
    argv = [as_the_kubelet(word) for word in (*made.command, *made.args)]
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LD_LIBRARY_PATH": "/nowhere"}
    if found.library:
        environ["LD_LIBRARY_PATH"] = os.path.dirname(found.library)
    environ |= {name: as_the_kubelet(value) for name, value in made.env}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert [one[0]["RANK"] for one in ranks] == ["0", "1"]
    for index, (env, arguments) in enumerate(ranks):
        assert arguments == [*HARD, *further]
        assert env["LOCAL_RANK"] == str(index)
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("train-worker-0.train", "29500")
        assert (env["OMPI_COMM_WORLD_RANK"], env["OMPI_COMM_WORLD_SIZE"]) == (str(index), "2"), "as JAX asks"
        assert env["JAX_COORDINATOR_ADDRESS"] == "train-worker-0.train:61440" and env["OMPI_MCA_orte_hnp_uri"]
        assert env["A"] == "b $(c) $$ d"
        assert env["PATH"].endswith(os.environ["PATH"]), "the image's PATH reaches the ranks"
