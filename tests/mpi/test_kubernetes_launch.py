"""The launcher's rendered command and variables, run by each real MPI on hosts that stand in for Pods.

A host is a UTS namespace with a worker's name, reached through a stand-in for ssh. What the operator leaves
in the launcher's volume is hidden there, as it is in a worker's Pod.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.commands import finished
from tests.fork_server import session_directory
from tests.interpreter import skip_where_mpirun_splits
from tests.time_limits import patience

from ringleader.kubernetes.mpijob.object_names import HOSTFILE_PATH
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects.launcher_and_workers import launcher_job
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.service_and_config_map import hostfile_text
from ringleader.kubernetes.pod.__main__ import main
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, place
from ringleader.render.mpirun_command import mpirun_command, scrubbed

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.root("make namespaces")]
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


def test_every_planned_host_is_reached(mpi: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pod, path, more = launch_of(mpi, request.node.callspec.params["mpi"], tmp_path, 4)
    done = pod.run(path, **more)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["train-worker-0"] * 2 + ["train-worker-1"] * 2
    assert pod.reached() == WORKERS


def test_a_launch_that_stays_at_home_fails(mpi: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pod, path, more = launch_of(mpi, request.node.callspec.params["mpi"], tmp_path, 4, "--oversubscribe")
    lost = {name: None for name, value in pod.env.items() if value == str(pod.hostfile)}
    assert lost
    done = pod.run(path, **more, **lost)
    assert pod.reached() == []
    assert done.returncode == 3, done.stderr
    assert "reached 0 of the 2 hosts that its 4 ranks need" in done.stderr


def test_whole_names_reach_ssh(mpi: str, tmp_path: Path) -> None:
    """Pods resolve by their whole name only, and hosts of two domains may share the first part of theirs."""
    found = find_mpi(mpi, environ=os.environ)
    skip_where_mpirun_splits(found.prefix)
    names = ["worker.a.svc", "worker.b.svc"]
    hosts = tuple(Host(name=name, slots=1) for name in names)
    facts = tuple(
        HostFacts(host=host, identity=host.name, hostname="worker", is_local=False, cpus=(0,))
        for host in hosts
    )
    job = Job(command=("true",), hosts=hosts)
    record, ssh, hostfile = (tmp_path / name for name in ("record", "ssh", "hostfile"))
    ssh.write_text(SSH.partition("name=")[0] + "while kill -0 $PPID; do sleep 0.1; done\n")  # no daemon
    ssh.chmod(0o755)
    command = mpirun_command(
        plan=place(job, facts),
        mpi=found,
        job=job,
        agent=("/bin/true",),
        hostfile=str(hostfile),
        session=str(tmp_path),
        backing=str(tmp_path),
        ssh=(str(ssh), "-x"),
        here="127.0.0.1",
        exported=("RECORD",),
    )
    hostfile.write_text(command.hostfile)
    environ = scrubbed(os.environ) | {"RECORD": str(record)} | dict(command.environment)
    record.touch()
    until = time.monotonic() + patience(30)
    with subprocess.Popen(
        command.argv, env=environ, stderr=subprocess.DEVNULL, start_new_session=True
    ) as mpirun:
        while len(record.read_text().split()) < len(names) and mpirun.poll() is None:
            assert time.monotonic() < until, record.read_text()
            time.sleep(0.02)
        os.killpg(mpirun.pid, signal.SIGKILL)
    assert sorted(record.read_text().split()) == names
