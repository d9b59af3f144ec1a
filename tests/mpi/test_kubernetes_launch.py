"""The launcher's command of a job on Kubernetes, run by each real MPI on hosts that stand in for Pods."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.commands import finished
from tests.fork_server import session_directory
from tests.interpreter import skip_where_mpirun_splits

from ringleader.kubernetes.jobs.job_request import JobRequest
from ringleader.kubernetes.jobs.mpijob_builder import launcher_program
from ringleader.kubernetes.mpijob.model import MpiImplementation
from ringleader.kubernetes.mpijob.object_names import HOSTFILE_PATH
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects.launcher_and_workers import launcher_job
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.service_and_config_map import hostfile_text
from ringleader.kubernetes.pod.__main__ import main
from ringleader.launch.mpirun.mpi_discovery import find_mpi

pytestmark = pytest.mark.mpi

OF = {"embedded": "OpenMPI", "openmpi4": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}
SETTINGS = OperatorSettings(image="ringleader-operator:1", has_exec_spawn=True)
SSH = """#!/bin/sh
while :; do
    case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac
done
printf '%s\\n' "$1" >>"$RECORD"
name=${1%%.*}
shift
unset RINGLEADER_CONTACTED
exec unshare --mount --uts sh -c 'mount -t tmpfs none "$HIDE"; hostname "$1"; exec sh -c "$2"' sh "$name" "$*"
"""


class Pod:
    """A launcher's Pod: folders in place of its volumes, the rendered command in place of its container."""

    def __init__(self, root: Path, implementation: str, mpirun: Sequence[str], spawn: str) -> None:
        kind = {"template": {"spec": {"containers": [{"name": "c", "image": "i", "command": list(mpirun)}]}}}
        job = read(
            {
                "apiVersion": "kubeflow.org/v2beta1",
                "kind": "MPIJob",
                "metadata": {
                    "name": "train",
                    "namespace": "team",
                    "annotations": {"ringleader/spawn": spawn},
                },
                "spec": {
                    "slotsPerWorker": 2,
                    "mpiImplementation": implementation,
                    "mpiReplicaSpecs": {"Launcher": kind, "Worker": {"replicas": 2, **kind}},
                },
            }
        )
        self.root, self.tools, self.hostfile = root, root / "tools", root / "hostfile"
        (root / "bin").mkdir()
        self.tools.mkdir()
        self.hostfile.write_text("")  # nobody to wait for: these hosts have no sshd
        spec = launcher_job(job, SETTINGS, suspend=False)["spec"]["template"]["spec"]
        assert main([self.here(word) for word in spec["initContainers"][-1]["args"]]) == 0
        self.hostfile.write_text(hostfile_text(job, SETTINGS))
        first = spec["containers"][0]
        self.argv = [self.here(word) for word in first["command"]]
        self.env = {one["name"]: self.here(one["value"]) for one in first["env"]}

    def here(self, word: str) -> str:
        return word.replace(HOSTFILE_PATH, str(self.hostfile)).replace("/opt/ringleader", str(self.tools))

    def run(self, path: str, **more: str | None) -> subprocess.CompletedProcess[str]:
        (self.root / "bin/ssh").write_text(SSH)
        (self.root / "bin/ssh").chmod(0o755)
        record = self.root / "reached"
        record.write_text("")
        environ = {"PATH": f"{self.root / 'bin'}:{path}", "HOME": str(self.root)}
        environ |= {"RECORD": str(record), "HIDE": str(self.tools), **session_directory(), **self.env}
        for name, value in more.items():
            environ.pop(name, None)
            environ |= {} if value is None else {name: value}
        return subprocess.run(self.argv, env=environ, capture_output=True, text=True, timeout=120)

    def reached(self) -> list[str]:
        return sorted((self.root / "reached").read_text().split())


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """Skip where this machine does not let us stand in for hosts."""
    tried = finished(["unshare", "--mount", "--uts", "hostname", "x"], timeout=30)
    if tried.returncode:
        pytest.skip(f"namespaces cannot be made: {tried.stderr.strip()}")


WORKERS = ["train-worker-0.train.team.svc", "train-worker-1.train.team.svc"]


def launch_of(mpi: str, name: str, tmp_path: Path, ranks: int, *more: str) -> tuple[Pod, str, dict[str, str]]:
    found = find_mpi(mpi, environ=os.environ)
    skip_where_mpirun_splits(found.prefix)
    is_open = OF[name] == "OpenMPI"
    words = ["--allow-run-as-root", *more] if is_open else []
    program = ["sh", "-c", "echo $(hostname)"]
    pod = Pod(tmp_path, OF[name], [Path(found.mpirun).name, *words, "-n", str(ranks), *program], "ssh")
    path = f"{Path(found.mpirun).parent}:{os.environ['PATH']}"
    library = {"LD_LIBRARY_PATH": str(Path(found.library).parent)} if found.library and not is_open else {}
    return pod, path, library


@pytest.mark.lab
@pytest.mark.root("make namespaces")
def test_every_planned_host_is_reached(mpi: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pod, path, more = launch_of(mpi, request.node.callspec.params["mpi"], tmp_path, 4)
    done = pod.run(path, **more)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["train-worker-0"] * 2 + ["train-worker-1"] * 2
    assert pod.reached() == WORKERS


@pytest.mark.lab
@pytest.mark.root("make namespaces")
def test_a_launch_that_stays_at_home_fails(mpi: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pod, path, more = launch_of(mpi, request.node.callspec.params["mpi"], tmp_path, 4, "--oversubscribe")
    lost = {name: None for name, value in pod.env.items() if value == str(pod.hostfile)}
    assert lost
    done = pod.run(path, **more, **lost)
    assert pod.reached() == []
    assert done.returncode == 3, done.stderr
    assert "reached 0 of the 2 hosts that its 4 ranks need" in done.stderr


# --- what ranks see ---------------------------------------------------------------------------------------

SCRIPT = """
import json, os, pathlib, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "A", "PATH")
names += ("JAX_COORDINATOR_ADDRESS", "OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
told = json.dumps([{name: os.environ.get(name) for name in names}, sys.argv[1:]])
pathlib.Path(os.environ["OUT"], os.environ["RANK"]).write_text(told)
"""
HARD = ("a b", "", "'", '"', ";", "$HOME", "`id`", "*", "line\nbreak", "é", "-x", "$(A)", "$$")


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
