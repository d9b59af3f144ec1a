"""Everything that a job needs to run for real: cluster, nodes, operator; and what a user does with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.simulated_containers import Processes
from tests.kube.fake.store import Document
from tests.kube.training import images
from tests.kube.training.api_proxy import listen_in, open_door
from tests.kube.training.nodes import Nodes
from tests.time_limits import patience

from ringleader.lab.saved_state import Lab

PATIENCE = 240.0
"""Seconds that a job may take on a busy machine; only a test that fails takes this long."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What came out of a job that was submitted."""

    code: int
    out: str
    """The launcher's log, as it came."""
    err: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A cluster with an operator, and a folder for files."""

    cluster: FakeCluster
    nodes: Nodes
    folder: Path
    kubeconfig: Path

    def submit(self, document: Document | str) -> Ended:
        """Submit a job as a user does, and stay until its end."""
        text = document if isinstance(document, str) else json.dumps(document)
        file = self.folder / "job.yaml"
        file.write_text(text, encoding="utf-8")
        return self.run(str(file), verb="submit")

    def run(self, *words: str, verb: str = "run") -> Ended:
        """Run a job from the command line to its end."""
        try:
            done = self.ringleader(verb, "--kubeconfig", str(self.kubeconfig), *words)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}: {error.stderr!r}\n{self.story()}")
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    def logs(self, job: str) -> str:
        """Return the launcher's log, asked for again after the job's end."""
        done = self.ringleader("logs", "--kubeconfig", str(self.kubeconfig), job)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @staticmethod
    def ringleader(*words: str) -> subprocess.CompletedProcess[str]:
        """Call the command line."""
        argv = (sys.executable, "-m", "ringleader", *words)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        return subprocess.run(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def condition(self, job: str, type_: str) -> Document:
        """Return a condition of a job; {} where it has none of this type."""
        status = (self.cluster.get("mpijobs", job) or {}).get("status") or {}
        return next((one for one in status.get("conditions") or () if one["type"] == type_), {})

    def reasons(self, job: str) -> list[str]:
        """Return the reasons of a job's events, in their order; an earlier one of its name had its own."""
        uid = (self.cluster.get("mpijobs", job) or {})["metadata"]["uid"]
        found = [one for one in self.cluster.list("events") if one["involvedObject"]["uid"] == uid]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [one["reason"] for one in found]

    def story(self) -> str:
        """Return all that containers and the operator have said: for a test that fails."""
        logs = self.cluster.call(
            lambda: {key: runs[-1].lines for key, runs in self.cluster.containers.logs.items()}
        )
        parts = [f"--- {key}\n{b''.join(lines).decode(errors='replace')}" for key, lines in logs.items()]
        return "\n".join([*parts, (self.folder / "operator.log").read_text(errors="replace")])

    def delete(self, job: str) -> None:
        """Delete a job and wait until its Pods are gone, and so the ports of their hosts free."""
        if self.cluster.get("mpijobs", job) is not None:
            self.cluster.delete("mpijobs", job)
        until("its Pods are gone", lambda: not self.cluster.list("pods"))
        self.nodes.forget(job)


@contextmanager
def opened(lab: Lab, folder: Path) -> Iterator[Stage]:
    """Set the stage on the hosts of a lab; at the end nothing of it is left."""
    with ExitStack() as stack:
        # Programs in Go send tokens over https only.
        cluster = stack.enter_context(FakeCluster(stand_in=StandInOptions(), tls=True))
        doors = {host.name: listen_in(host.namespace) for host in lab.hosts}
        for listener in doors.values():
            stack.callback(listener.close)
            cluster.run(open_door(listener, cluster.port))
        ports = {name: listener.getsockname()[1] for name, listener in doors.items()}
        nodes = Nodes(cluster, lab, images.build(folder / "images"), images.etc(folder), ports)
        place = folder / "pods"
        runner = Processes(
            cluster.objects,
            cluster.containers,
            directory=place,
            prepare=nodes.prepare,
            execute=nodes.execute,
        )
        cluster.kubelet.runner = runner
        stack.callback(lambda: cluster.run(runner.close()))
        cluster.execute_with(nodes.execute)
        kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
        stack.enter_context(_operator(cluster, folder))
        yield Stage(cluster=cluster, nodes=nodes, folder=folder, kubeconfig=kubeconfig)


@contextmanager
def _operator(cluster: FakeCluster, folder: Path) -> Iterator[None]:
    """Install the operator by its own manifests, and run it with the rights that they give it."""
    words = ("operator", "manifests", "--image", images.OPERATOR, "--exec-spawn", "--log-tails", "--json")
    done = Stage.ringleader(*words)
    assert done.returncode == 0, done.stderr
    documents = json.loads(done.stdout)["items"]
    deployment = next(one for one in documents if one["kind"] == "Deployment")
    for document in documents:
        if document is not deployment:
            cluster.create(document)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    namespace = deployment["metadata"]["namespace"]
    token = cluster.add_service_account(namespace, account)
    kubeconfig = cluster.write_kubeconfig(folder / "operator", token=token, namespace=namespace)
    log = folder / "operator.log"
    options = (
        "--kubeconfig",
        str(kubeconfig),
        "--image",
        images.OPERATOR,
        "--port",
        "0",
        "--exec-spawn",
        "--log-tails",
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            (sys.executable, "-m", "ringleader", "operator", "run", *options),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text(errors="replace")
        finally:
            process.kill()
            process.wait()


def until(what: str, holds: Callable[[], Any]) -> Any:
    """Wait until something holds and return it."""
    end = time.monotonic() + patience(PATIENCE)
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)
    return found
